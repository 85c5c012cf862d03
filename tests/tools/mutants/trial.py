"""One run of pytest over a copy of the sources.

In: a fault or none, and tests. Out: how each test ended, and what the run took. The working tree is never written to:
sources are copied, and temporary files, caches and Hypothesis's examples go to a temporary folder. The copy is outside
of git, so tests that ask git for the commit cannot be named by a fault.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.faults import Fault
from tools.mutants.outcomes import OUTCOMES, SOURCE, Outcome

REPOSITORY = Path(__file__).parents[3]
SOURCES = REPOSITORY / "src"
TESTS = REPOSITORY / "tests"
SECONDS = 600
"""A run that takes longer is ended: with some faults a test would wait for ever."""


class StaleFaultError(Exception):
    """The list no longer fits the code: says which fault must be changed, and why."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run of pytest left. `trouble`: why there are no outcomes to go by, with the last lines that it printed."""

    outcomes: Sequence[Outcome]
    seconds: float
    trouble: str = ""

    @property
    def failed(self) -> Outcome | None:
        return first_failed(self.outcomes)


def first_failed(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The first test that failed, or the first file that could not be collected."""
    return next((outcome for outcome in outcomes if outcome.result in ("failed", "not collected")), None)


def module_path(module: str) -> Path:
    """`spanloom.dataset.rows.table` → `spanloom/dataset/rows/table.py`, below a folder of sources."""
    parts = Path(*module.split("."))
    package = parts / "__init__.py"
    return package if (SOURCES / package).is_file() else parts.with_suffix(".py")


def check_fits(fault: Fault) -> None:
    """Raises StaleFaultError unless the text that the fault replaces is in its module exactly once."""
    path = SOURCES / module_path(fault.module)
    times = path.read_text("utf-8").count(fault.old) if path.is_file() else None
    if times == 1:
        return
    why = "there is no such module" if times is None else f"its text stands there {times} times, not once"
    holders = [file for file in sorted(SOURCES.rglob("*.py")) if file != path and fault.old in file.read_text("utf-8")]
    places = ", ".join(".".join(file.relative_to(SOURCES).with_suffix("").parts) for file in holders)
    raise StaleFaultError(
        f"the fault {fault.name} in tests/tools/mutants/faults.py must be updated: {fault.module}: {why}\n"
        f"  its text: {fault.old!r}\n  it is in: {places or 'no other module'}"
    )


def copy_sources(folder: Path) -> Path:
    """A copy of `src/` with its byte code, which stays valid since times are kept."""
    return Path(shutil.copytree(SOURCES, folder / "src"))


def apply(fault: Fault, source: Path) -> None:
    """Puts the fault into a copy of the sources."""
    path = source / module_path(fault.module)
    path.write_text(path.read_text("utf-8").replace(fault.old, fault.new), "utf-8")
    # Byte code is told to be stale by time and size, and both may stay the same.
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        stale.unlink()


def run_tests(
    tests: Sequence[str], fault: Fault | None = None, *, first_failure: bool = True, folder: Path | None = None
) -> Run:
    """Runs tests, given as node ids, over a copy of the sources, into which the fault has been put where one is given.

    `first_failure`: stop there. `folder`: where temporary files go.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=folder, ignore_cleanup_errors=True) as name:
        place = Path(name)
        source = copy_sources(place)
        if fault is not None:
            apply(fault, source)
            if trouble := _import_trouble(fault.module, source):
                return Run(outcomes=(), seconds=time.monotonic() - began, trouble=trouble)
        outcomes, trouble = _pytest(tests, source, place, first_failure=first_failure)
    return Run(outcomes=outcomes, seconds=time.monotonic() - began, trouble=trouble)


def _environment(source: Path, place: Path) -> dict[str, str]:
    """The copy comes first on the path of every process that inherits this, before what is installed as editable."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (source, TESTS))),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "hypothesis"),
        SOURCE: str(source),
        OUTCOMES: str(place / "outcomes.json"),
    }


def _import_trouble(module: str, source: Path) -> str:
    """Why the module that was changed cannot be imported: no test would fail for the fault's own sake then."""
    code = "import importlib, sys; print(importlib.import_module(sys.argv[1]).__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code, module],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env=_environment(source, source),
    )
    if done.returncode:
        return f"{module} cannot be imported with it: {_tail(done.stderr, 1)}"
    place = done.stdout.strip().splitlines()[-1]
    return "" if Path(place).is_relative_to(source) else f"{module} is imported from {place}, not from the copy"


def _pytest(tests: Sequence[str], source: Path, place: Path, *, first_failure: bool) -> tuple[list[Outcome], str]:
    options = (
        f"-q -p tools.mutants.outcomes -p no:cacheprovider -n 0 --hypothesis-seed 0 {'-x' if first_failure else ''}"
    )
    command = [sys.executable, "-m", "pytest", *options.split(), "--basetemp", str(place / "tests"), *tests]
    printed = place / "printed.txt"
    with (
        printed.open("w") as stream,
        _ended(
            subprocess.Popen(
                command,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=_environment(source, place),
                start_new_session=True,
            )
        ) as process,
    ):
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return [], f"no end after {SECONDS} s"
    written = place / "outcomes.json"
    records = json.loads(written.read_text()) if written.is_file() else []
    outcomes = [Outcome(**{**record, "raised": tuple(record["raised"])}) for record in records]
    if outcomes and (first_failed(outcomes) or process.returncode == 0):
        return outcomes, ""
    return [], f"pytest ended with {process.returncode}: {_tail(printed.read_text(errors='replace'), 3)}"


@contextmanager
def _ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """However the block is left, the process and all that it has started in its session are gone."""
    _running.add(process)
    try:
        yield process
    finally:
        _kill(process)
        process.wait()
        _running.discard(process)


_running: set["subprocess.Popen[bytes]"] = set()


def end_runs() -> None:
    """Ends what other threads are running, so that Ctrl-C need not wait for it."""
    for process in list(_running):
        _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _tail(text: str, lines: int) -> str:
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])
