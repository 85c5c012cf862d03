"""Commands whose changes of files fail or are their last: a part of what `python -m tools.chaos` tries, by a seed.

SPANLOOM_CHAOS_SEED draws another part; SPANLOOM_CHAOS_TRIALS is the number of trials of each command.
"""

import os
from collections.abc import Callable

import pytest

from support.nightly import drawn, nightly
from tools.chaos.enumeration import Prepared, trials, try_one

pytestmark = pytest.mark.slow

COMMANDS = (
    "build",
    nightly("build --overwrite"),
    "build, resumed at 40%",
    "chat pack",
    "convert",
    nightly("convert-synth"),
    nightly("export"),
    nightly("convert --overwrite"),
    "export --overwrite",
    nightly("plan --overwrite"),
    "fetch",
    "plan",
    nightly("step convert-shard"),
    nightly("step assemble-source"),
    nightly("build --model"),
    nightly("audit"),
)
SEED = int(os.environ.get("SPANLOOM_CHAOS_SEED", "20261"))
TRIALS = int(os.environ.get("SPANLOOM_CHAOS_TRIALS", drawn(2, 1)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_fault_leaves_nothing_false_and_the_same_command_finishes(
    prepared: Callable[[str], Prepared], command: str
) -> None:
    tried = list(trials(prepared(command), sample=TRIALS, seed=SEED))
    assert len(tried) == TRIALS
    assert [str(trial) for trial in tried if trial.wrong] == []


@pytest.mark.parametrize("command", ["build", nightly("build --overwrite")])
def test_workers_and_kills_of_a_process_of_its_own_are_no_other(
    prepared: Callable[[str], Prepared], command: str
) -> None:
    """One point in the middle, in a fresh interpreter with spawned workers: as users run it."""
    ready = prepared(command)
    middle = ready.points[len(ready.points) // 2]
    trial = try_one(ready, middle, "kill", own_process=True)
    assert trial.reached
    assert trial.wrong == ()
