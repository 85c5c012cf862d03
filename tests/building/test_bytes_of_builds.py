"""A refactoring changes no byte: each builder writes what it wrote at commit 922f1340, before the builders were put on
one machine.

The expected hashes come from the code under test, as it was then: they say that bytes stayed, not that they are right,
which the tests of each family say. `support.bytes_of_builds` describes how to write them anew.
"""

import json
from pathlib import Path

import pytest

from support.bytes_of_builds import NAMES, Built, Workshop, differences, read_expected, written
from support.nightly import nightly


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, Built]]:
    return read_expected()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("builds"))


def test_the_expected_builds_are_those_that_are_made(expected: dict[str, dict[str, Built]]) -> None:
    assert list(expected) == list(NAMES)


BY_DAY = NAMES[::3]
"""Every third: of each family some."""


def test_each_family_has_a_build_by_day() -> None:
    assert {name.partition("/")[0] for name in BY_DAY} == {name.partition("/")[0] for name in NAMES}


@pytest.mark.parametrize("name", [name if name in BY_DAY else nightly(name) for name in NAMES])
def test_a_build_writes_the_bytes_that_it_wrote(
    workshop: Workshop, expected: dict[str, dict[str, Built]], name: str
) -> None:
    changed = list(differences(written(workshop, name), expected[name]))
    assert not changed, (
        f"{name}: {changed[0]} ({len(changed)} differences; python -m support.bytes_of_builds lists them)"
    )


def test_two_workers_write_the_same_bytes(tmp_path: Path, expected: dict[str, dict[str, Built]]) -> None:
    """The builds that divide work the most: parts of shards, batches of conversations and of transcripts, files."""
    workshop = Workshop(tmp_path, workers=2)
    for name in ("synth_kd/parts", "model_chat/forgetful", "packed_chat/skip", "chess/rejects"):
        assert list(differences(written(workshop, name), expected[name])) == [], name


@pytest.mark.parametrize(
    ("root", "kind", "name", "value", "line"),
    [
        ("gone", None, "", "", "root gone: missing"),
        (".", "files", "a", "2", "root .: file a: other bytes"),
        (".", "files", "a", None, "root .: file a: missing"),
        (".", "files", "b", "1", "root .: file b: new"),
        (".", "content", "totals", "2", "root .: manifest, content totals: other bytes"),
    ],
)
def test_each_difference_is_named(root: str, kind: str | None, name: str, value: str | None, line: str) -> None:
    same: dict[str, Built] = {".": {"files": {"a": "1"}, "content": {"totals": "1"}}}
    assert list(differences(same, same)) == []
    made: dict[str, Built] = json.loads(json.dumps(same))
    expected = same
    if kind is None:
        expected = {**same, root: same["."]}
    elif value is None:
        del made[root][kind][name]
    else:
        made[root][kind][name] = value
    assert list(differences(made, expected)) == [line]
