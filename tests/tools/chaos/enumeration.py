"""Every file-system change of a command, one after another: killed there, and failing there.

In: a scenario and a driver. Out: for each point and fault a `Trial` that says what went wrong, if anything did.

A trial is: the folder as it was before the command; the command with the fault; what must be true of the folder now;
the same command again, undisturbed; what must be true at the end. Where a fault left exactly what another fault had
left before, the second run is not repeated: it has been seen how it ends.
"""

import random
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.chaos.driver import Driver, Fault, Run
from tools.chaos.scenarios import Scenario
from tools.chaos.state import (
    Tree,
    changed,
    difference,
    digest,
    false_datasets,
    false_indices,
    stamps,
    tree,
    whole_datasets,
)

FAULTS = {"kill": False, "ENOSPC": True, "EIO": False, "EACCES": False}
"""What happens at a point, and whether it goes on to happen: a full disk stays full."""

BESIDE_SQLITE = ("-wal", "-shm")
"""Files that SQLite says nothing of where it cannot remove them; the next command that opens the store does."""

SECONDS = 30.0
"""A command that takes longer hangs: undisturbed it takes one."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One fault at one point of one command. `wrong` is empty when all that is promised held."""

    scenario: str
    fault: str
    point: str
    wrong: tuple[str, ...]
    reached: bool = True

    def __str__(self) -> str:
        return f"{self.scenario}: {self.fault} at {self.point}: {'; '.join(self.wrong) or 'survived'}"


@dataclass
class Prepared:
    """A scenario set up in the driver's folder: what stands before (`template`, a copy), what must stand at the end.

    `undisturbed` is what goes wrong without any fault; files of others that are lost then are not asked for again.
    """

    scenario: Scenario
    driver: Driver
    template: Path
    wanted: Tree
    foreign: dict[str, str]
    points: tuple[str, ...]
    undisturbed: tuple[str, ...]
    seen: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def reset(self) -> None:
        """The folder as it was before the command."""
        clear(self.driver.folder)
        shutil.copytree(self.template, self.driver.folder, symlinks=True, dirs_exist_ok=True)

    def run(self, fault: Fault | None = None, *, own_process: bool = False) -> Run:
        return self.driver.run(
            self.scenario.arguments,
            fault=fault,
            watch=fault is not None,
            environment=self.scenario.environment,
            seconds=SECONDS,
            own_process=own_process,
        )


class CannotFinishError(Exception):
    """The command does not end well even undisturbed: after the interruption that its scenario begins with."""


def prepare(scenario: Scenario, driver: Driver, templates: Path) -> Prepared:
    """Sets up a scenario, runs its command undisturbed, and lists the points. Raises CannotFinishError."""
    clear(driver.folder)
    scenario.prepare(driver.folder, driver)
    clear(driver.folder / "tmp")
    template = templates / re.sub(r"\W+", "-", scenario.name)
    shutil.rmtree(template, ignore_errors=True)
    shutil.copytree(driver.folder, template, symlinks=True)
    foreign = stamps(driver.folder, scenario.foreign)
    prepared = Prepared(
        scenario=scenario, driver=driver, template=template, wanted={}, foreign=foreign, points=(), undisturbed=()
    )
    whole = driver.run(scenario.arguments, environment=scenario.environment, seconds=SECONDS)
    if whole.code:
        raise CannotFinishError(f"{scenario.name} fails undisturbed with exit code {whole.code}: {whole.output}")
    prepared.undisturbed = (*_false(prepared), *_foreign(prepared))
    lost = _lost(prepared)
    prepared.foreign = {name: stamp for name, stamp in foreign.items() if name not in lost}
    prepared.wanted, prepared.points = tree(driver.folder), whole.changes
    if scenario.interrupted is None:
        return prepared
    prepared.reset()
    killed = prepared.run(Fault(what="kill", number=max(1, int(scenario.interrupted * len(whole.changes)))))
    assert killed.fired, killed.output
    shutil.rmtree(template)
    shutil.copytree(driver.folder, template, symlinks=True)
    again = driver.run(scenario.arguments, environment=scenario.environment, seconds=SECONDS)
    if wrong := _wrong_at_the_end(prepared, again):
        raise CannotFinishError(f"after {killed.fired[0]}: {'; '.join(wrong)}")
    prepared.points = again.changes
    return prepared


def trials(
    prepared: Prepared, *, faults: Sequence[str] = tuple(FAULTS), sample: int | None = None, seed: int = 0
) -> Iterator[Trial]:
    """All trials of a scenario, or `sample` of them, drawn by `seed`."""
    for point, fault in drawn(prepared, faults, sample, seed):
        yield try_one(prepared, point, fault)


def drawn(
    prepared: Prepared, faults: Sequence[str], sample: int | None, seed: int, *, every: int = 1
) -> list[tuple[str, str]]:
    """Points and faults: all, or those of each n-th point; of them `sample`, drawn by `seed`."""
    pairs = [(point, fault) for point in prepared.points[::every] for fault in faults]
    if sample is None:
        return pairs
    return random.Random(f"{seed} {prepared.scenario.name}").sample(pairs, min(sample, len(pairs)))


def try_one(prepared: Prepared, point: str, what: str, *, own_process: bool = False) -> Trial:
    """One fault at one point."""
    prepared.reset()
    run = prepared.run(Fault(what=what, at=point, lasting=FAULTS[what]), own_process=own_process)
    if not run.fired:
        # Another order of workers than in the run that listed the points; nothing was disturbed.
        return _trial(prepared, what, point, _wrong_at_the_end(prepared, run), reached=False)
    folder = prepared.driver.folder
    wrong = [*_false(prepared), *_foreign(prepared)]
    if prepared.scenario.keeps_whole and not whole_datasets(folder / "place"):
        wrong.append("no dataset whole: neither the old nor the new stands complete anywhere")
    if not run.in_time:
        wrong.append("hangs: the disturbed command does not end")
    elif what != "kill":
        wrong += _wrong_in_words(run)
    left = tree(folder)
    differs = difference(prepared.wanted, left)
    done = all(line.startswith("left behind ") for line in differs)
    left_behind = [line for line in differs if not line.startswith("left behind tmp/")]
    spoken_of = [line for line in differs if not line.endswith(BESIDE_SQLITE)]
    if run.code == 0 and what != "kill" and spoken_of:
        if not done:
            wrong.append(f"false success: exit code 0, but {spoken_of[0]}")
        elif not any(line.split("/")[-1].partition("*")[0] in run.output for line in spoken_of):
            wrong.append(f"litter without a word: exit code 0, but {spoken_of[0]}")
    state = digest(left)
    if state not in prepared.seen:
        again = prepared.run(own_process=own_process)
        if again.code and again.in_time and done and not left_behind and tree(folder) == left:
            # All was done before the fault came, and the command that is to make it new says that it stands there.
            prepared.seen[state] = tuple(_litter(differs))
        else:
            prepared.seen[state] = tuple(_wrong_at_the_end(prepared, again))
    seen = prepared.seen[state]
    if " tmp/" in point:  # what $TMPDIR does not let go of stays there
        seen = tuple(fault for fault in seen if not fault.startswith("litter in $TMPDIR"))
    return _trial(prepared, what, point, [*wrong, *seen])


def _trial(prepared: Prepared, what: str, point: str, wrong: Sequence[str], *, reached: bool = True) -> Trial:
    return Trial(
        scenario=prepared.scenario.name,
        fault=what,
        point=point,
        wrong=tuple(dict.fromkeys(wrong)),
        reached=reached,
    )


def _wrong_in_words(run: Run) -> list[str]:
    """What a person sees of a command that failed: an error that says where and what to do, no traceback."""
    if "Traceback (most recent call last)" in run.output:
        last = [line for line in run.output.splitlines() if line and not line.startswith(" ")][-1]
        return [f"traceback: {last[:150]}"]
    if run.code and not (re.search("^error: ", run.output, re.M) and re.search("^  remedy: ", run.output, re.M)):
        return [f"wrong words: exit code {run.code} without an error and a remedy: {_shortened(run.output)}"]
    return []


def _wrong_at_the_end(prepared: Prepared, run: Run) -> list[str]:
    """The command has run undisturbed: is all as if it had never been disturbed?"""
    folder = prepared.driver.folder
    wrong = [*_false(prepared), *_foreign(prepared)]
    if not run.in_time:
        return [*wrong, "hangs: the same command again does not end"]
    if run.code:
        return [*wrong, f"stuck: the same command again ends with exit code {run.code}: {_shortened(run.output)}"]
    differs = difference(prepared.wanted, tree(folder))
    other = [line for line in differs if not line.startswith("left behind")]
    return [*wrong, *_sorted_out(other, "other bytes"), *_litter(differs)]


def _litter(differs: Sequence[str]) -> list[str]:
    """What is left behind. Of a command that was killed something may stay in $TMPDIR, which others clear."""
    lines = [line for line in differs if line.startswith("left behind")]
    temporary = [line for line in lines if line.startswith("left behind tmp/")]
    here = [line for line in lines if line not in temporary]
    return [*_sorted_out(here, "litter"), *_sorted_out(temporary, "litter in $TMPDIR")]


def _false(prepared: Prepared) -> list[str]:
    folder = prepared.driver.folder
    indices = false_indices(folder) if prepared.scenario.index_last else []
    return [*_sorted_out(false_datasets(folder), "false dataset"), *_sorted_out(indices, "index without its data")]


def _foreign(prepared: Prepared) -> list[str]:
    return _sorted_out([f"{name} was {what}" for name, what in _lost(prepared).items()], "foreign file")


def _lost(prepared: Prepared) -> dict[str, str]:
    moved = prepared.scenario.root if prepared.scenario.keeps_whole else None
    return changed(prepared.driver.folder, prepared.foreign, moved_with=moved)


def _sorted_out(lines: Sequence[str], kind: str) -> list[str]:
    return [f"{kind}: {lines[0]}{f' and {len(lines) - 1} more' if lines[1:] else ''}"] if lines else []


def _shortened(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if not line.endswith(("…", " s"))]
    return " / ".join(lines)[:300]


def clear(folder: Path) -> None:
    """Makes a folder empty, whatever is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
