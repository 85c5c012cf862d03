"""Commands that are killed while they write, and run again: nothing is left under a temporary name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.chaos.driver import Fault
from tools.chaos.enumeration import Prepared
from tools.chaos.state import difference, tree

COMMANDS = (
    *("traces build", "traces export", "step ingest-traces"),
    *("toolcalls convert", "toolcalls merge", "toolcalls export"),
)


def temporaries(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.spanloom-tmp-*"))


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_killed_command_left_is_cleared_by_the_same_command(
    prepared: Callable[[str], Prepared], command: str
) -> None:
    """SIGKILL comes at the call that would give the first file its name: its temporary file is there then."""
    ready = prepared(command)
    folder = ready.driver.folder
    point = next(point for point in ready.points if point.startswith(("rename ", "link ")) and "spanloom-tmp-" in point)
    ready.reset()
    before = temporaries(folder)
    killed = ready.run(Fault(what="kill", at=point))
    assert killed.fired == (point,)
    assert killed.code < 0
    left = set(temporaries(folder)) - set(before)
    assert left
    again = ready.run()
    assert again.code == 0, again.output
    assert temporaries(folder) == before
    assert difference(ready.wanted, tree(folder)) == []
