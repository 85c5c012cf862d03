"""Builds, kills, overwrites, foreign files and validations in any order, held against a simple model.

The model knows which source the finished dataset at the root was built from, which command was killed, and which files
are somebody else's. Whatever is done in whatever order: a manifest stands over whole files alone, nothing of others
changes, a finished dataset is the one of its source byte for byte, and what was killed is finished by the same command.

SPANLOOM_STATEFUL=nightly runs for minutes; otherwise it is seconds.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tools.chaos import supervisor
from tools.chaos.driver import Driver, Fault, Run
from tools.chaos.enumeration import clear
from tools.chaos.scenarios import ROOT, build_arguments, write_foreign, write_small_source
from tools.chaos.state import Tree, changed, difference, false_datasets, stamps, tree

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(supervisor.supported() is not None, reason=f"{supervisor.supported()}"),
]

NIGHTLY = os.environ.get("SPANLOOM_STATEFUL") == "nightly"
SETTINGS = settings(
    max_examples=60 if NIGHTLY else 3,
    stateful_step_count=12 if NIGHTLY else 6,
    deadline=None,
    derandomize=not NIGHTLY,
    suppress_health_check=list(HealthCheck),
    phases=list(Phase) if NIGHTLY else [Phase.explicit, Phase.generate],
)

SOURCES = ("one", "two")
CHANGES = 480
"""About how many changes a build makes. A kill at a later one does not come."""

NEAR_AN_END = st.integers(1, 40) | st.integers(CHANGES - 60, CHANGES)
"""Where a dataset is set aside, and where it is removed."""


class Builds(RuleBasedStateMachine):
    """`built`: the source of the finished dataset at the root. `killed`: source and options of a build that was."""

    overwrite = False
    """Whether `--overwrite` takes part."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = _here.driver.folder
        self.built: str | None = None
        self.killed: tuple[str, tuple[str, ...]] | None = None
        self.foreign: dict[str, str] = {}

    @initialize()
    def nothing_but_the_sources(self) -> None:
        clear(self.folder)
        for source in SOURCES:
            shutil.copytree(_here.sources / source, self.folder / source)
        if self.overwrite:
            self.done("one", self.run("one"))

    @precondition(lambda self: self.killed is None)
    @rule(source=st.sampled_from(SOURCES))
    def build(self, source: str) -> None:
        if self.built in (None, source):
            self.done(source, self.run(source))
        else:
            self.refused(source, "another dataset")

    @precondition(lambda self: self.killed is None and self.built is None)
    @rule(source=st.sampled_from(SOURCES), number=st.integers(1, CHANGES))
    def build_killed(self, source: str, number: int) -> None:
        self.perhaps_killed(source, (), number)

    @precondition(lambda self: self.killed is not None)
    @rule(number=st.integers(1, CHANGES))
    def same_command_killed(self, number: int) -> None:
        assert self.killed is not None
        self.perhaps_killed(*self.killed, number)

    @precondition(lambda self: self.killed is not None)
    @rule()
    def same_command(self) -> None:
        assert self.killed is not None
        source, more = self.killed
        self.done(source, self.run(source, *more))

    @precondition(lambda self: self.killed is not None and (self.folder / ROOT / ".work/build.json").is_file())
    @rule()
    def another_build_over_a_killed_one(self) -> None:
        assert self.killed is not None
        if (self.folder / ROOT / "manifest.json").exists():
            return
        self.refused("two" if self.killed[0] == "one" else "one", "unfinished build")

    @precondition(lambda self: self.overwrite and self.built is not None and self.killed is None)
    @rule(source=st.sampled_from(SOURCES), number=NEAR_AN_END | st.integers(1, 2 * CHANGES))
    def overwritten_or_killed(self, source: str, number: int) -> None:
        self.built = None
        self.perhaps_killed(source, ("--overwrite",), number)

    @precondition(lambda self: self.built is not None or (self.folder / ROOT / ".work/build.json").is_file())
    @rule(name=st.sampled_from(["place/notes.txt", f"{ROOT}/notes.txt", f"{ROOT}/mine/a.txt"]))
    def somebody_writes_a_file(self, name: str) -> None:
        if name not in self.foreign:
            write_foreign(self.folder, (name,))
            self.foreign |= stamps(self.folder, [name])

    @precondition(lambda self: self.built is not None and self.killed is None)
    @rule()
    def validate(self) -> None:
        arguments = ("validate", ROOT, "--source", str(self.built), "--deep", "8", "--quiet")
        run = _here.driver.run(arguments, watch=False, seconds=30)
        assert run.code == 0, run.output

    @invariant()
    def nothing_is_false(self) -> None:
        if self.folder.exists():
            assert false_datasets(self.folder) == []

    @invariant()
    def nothing_foreign_changed(self) -> None:
        assert changed(self.folder, self.foreign, moved_with=ROOT if self.overwrite else None) == {}

    # What the rules do.

    def run(self, source: str, *more: str, fault: Fault | None = None) -> Run:
        run = _here.driver.run(build_arguments(source, *more), fault=fault, watch=fault is not None, seconds=30)
        assert run.in_time, run.output
        assert "Traceback" not in run.output, run.output
        return run

    def done(self, source: str, run: Run) -> None:
        assert run.code == 0, run.output
        self.built, self.killed = source, None
        mine = {name.removeprefix(f"{ROOT}/") for name in self.foreign}
        mine |= {name.rpartition("/")[0] for name in mine}
        found = {name: what for name, what in tree(self.folder / ROOT).items() if name not in mine}
        assert difference(_here.wanted[source], found) == []

    def refused(self, source: str, why: str) -> None:
        before = tree(self.folder / ROOT)
        run = self.run(source)
        assert run.code == 1, run.output
        assert why in run.output
        assert difference(before, tree(self.folder / ROOT)) == []

    def perhaps_killed(self, source: str, more: tuple[str, ...], number: int) -> None:
        run = self.run(source, *more, fault=Fault(what="kill", number=number))
        if run.fired:
            self.built, self.killed = None, (source, more)
        else:
            self.done(source, run)


class Overwrites(Builds):
    """With `--overwrite`, killed anywhere; begins with a dataset to be overwritten."""

    overwrite = True


class _Here:
    """What the machines need, which Hypothesis makes without fixtures."""

    driver: Driver
    sources: Path
    wanted: dict[str, Tree]


_here = _Here()


@pytest.fixture(scope="module", autouse=True)
def _ready(driver: Driver) -> None:
    """Two sources, and what each of them becomes undisturbed."""
    _here.driver, _here.sources, _here.wanted = driver, Path(tempfile.mkdtemp(dir=driver.folder.parent)), {}
    for source in SOURCES:
        clear(driver.folder)
        write_small_source(_here.sources / source, source)
        shutil.copytree(_here.sources / source, driver.folder / source)
        done = driver.run(build_arguments(source), watch=False)
        assert done.code == 0, done.output
        _here.wanted[source] = tree(driver.folder / ROOT)


class TestBuilds(Builds.TestCase):
    settings = SETTINGS


@pytest.mark.nightly
class TestOverwrites(Overwrites.TestCase):
    settings = SETTINGS
