"""`make mutants`: puts each fault of the list into a copy of the sources, and sees which test finds it.

In: the lists in faults.py and builders.py. Out: progress on stderr, a table on stdout; exit 1 where a fault survives.

First the tests of all faults are run over the sources as they are, and must be green. Then each fault's tests are run
with the fault. One of them must fail by an assertion or an error of Spanloom's: not because something cannot be
imported or collected, nor by an error that the fault does not name in `raises`.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.builders import BUILDERS
from tools.mutants.faults import FAULTS as CHANGES
from tools.mutants.faults import Fault
from tools.mutants.outcomes import Outcome
from tools.mutants.trial import Run, StaleFaultError, check_fits, end_runs, run_tests

FAULTS = (*CHANGES, *BUILDERS)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a fault. `found_by`: the first test that failed, and the error; else `survived` says why not."""

    fault: Fault
    seconds: float
    found_by: Outcome | None = None
    survived: str = ""

    @property
    def result(self) -> str:
        if self.found_by is None:
            return f"SURVIVED: {self.survived}"
        return self.found_by.test.removeprefix("tests/").partition("[")[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", help="this fault; may be given several times")
    parser.add_argument("--list", action="store_true", help="print the faults and end")
    parser.add_argument("--at-once", metavar="N", type=int, default=2, help="runs of pytest side by side (2)")
    options = parser.parse_args()
    names = [fault.name for fault in FAULTS]
    if unknown := sorted(set(options.only or ()) - set(names)):
        parser.error(f"there is no fault {', '.join(unknown)}; --list names them")
    faults = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    if options.list:
        for fault in faults:
            print(f"{fault.name:<{max(map(len, names))}}  {fault.module}: {fault.why}")
        return 0
    try:
        for fault in faults:
            check_fits(fault)
    except StaleFaultError as stale:
        print(stale, file=sys.stderr)
        return 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(options.at_once) as threads:
        folder = Path(name)
        try:
            if trouble := not_green(faults, folder, threads, options.at_once):
                print(f"without any fault the tests must pass, and they do not:\n{trouble}", file=sys.stderr)
                return 1
            verdicts = tried(faults, folder, threads)
        except BaseException:  # Ctrl-C: leaving the block waits for its threads
            threads.shutdown(wait=False, cancel_futures=True)
            end_runs()
            raise
    print(table(verdicts))
    survivors = sum(verdict.found_by is None for verdict in verdicts)
    print(f"\n{len(verdicts) - survivors} of {len(verdicts)} faults found in {time.monotonic() - began:.0f} s")
    return 1 if survivors else 0


def not_green(faults: Sequence[Fault], folder: Path, threads: ThreadPoolExecutor, at_once: int) -> str:
    """What is wrong with the tests of these faults over the sources as they are; empty where all pass.

    A test that is skipped could not find anything: of each that a fault names, some case must have been run.
    """
    tests = sorted({test for fault in faults for test in fault.tests})
    progress(f"without a fault: {len(tests)} tests of {len(faults)} faults")
    files = sorted({test.partition("::")[0] for test in tests})
    shares = [[test for test in tests if test.partition("::")[0] in files[part::at_once]] for part in range(at_once)]
    runs: list[Run] = list(
        threads.map(lambda share: run_tests(share, first_failure=False, folder=folder), filter(None, shares))
    )
    wrong = [run.trouble for run in runs if run.trouble]
    outcomes = [outcome for run in runs for outcome in run.outcomes]
    wrong += [f"{case.test}: {case.error}" for case in outcomes if case.result not in ("passed", "skipped")]
    passed = [case.test for case in outcomes if case.result == "passed"]
    wrong += [
        f"{test}: no case of it was run here (skipped, or not there)"
        for test in tests
        if not wrong and not any(belongs(case, test) for case in passed)
    ]
    progress(f"without a fault: {len(passed)} cases passed in {max((run.seconds for run in runs), default=0):.0f} s")
    return "\n".join(wrong)


def belongs(case: str, test: str) -> bool:
    """Whether a case that was run is one of a test, a class, a file or a folder."""
    return case == test or case.startswith((f"{test}[", f"{test}::", f"{test}/"))


def tried(faults: Sequence[Fault], folder: Path, threads: ThreadPoolExecutor) -> list[Verdict]:
    """Each fault's verdict, in the order of the list."""
    futures = {threads.submit(verdict_on, fault, folder): fault.name for fault in faults}
    verdicts: dict[str, Verdict] = {}
    for number, future in enumerate(as_completed(futures), start=1):
        verdict = verdicts[futures[future]] = future.result()
        progress(f"[{number}/{len(faults)}] {verdict.fault.name}: {verdict.result} ({verdict.seconds:.0f} s)")
    return [verdicts[fault.name] for fault in faults]


def verdict_on(fault: Fault, folder: Path) -> Verdict:
    """Runs a fault's tests with the fault."""
    return judged(fault, run_tests(fault.tests, fault, folder=folder))


def judged(fault: Fault, run: Run) -> Verdict:
    """Whether a run with the fault has found it."""
    failed = run.failed
    if run.trouble or failed is None:
        return Verdict(fault=fault, seconds=run.seconds, survived=run.trouble or "all of its tests pass")
    if failed.result == "not collected" or not (failed.counts or set(fault.raises) & set(failed.raised)):
        why = f"{failed.test} ended for another reason: {failed.error}"
        return Verdict(fault=fault, seconds=run.seconds, survived=why)
    return Verdict(fault=fault, seconds=run.seconds, found_by=failed)


def table(verdicts: Sequence[Verdict]) -> str:
    """Markdown: fault, the test that found it, seconds."""
    lines = ["| fault | found by | seconds |", "|---|---|---:|"]
    lines += [
        f"| {verdict.fault.name} | {verdict.result.replace('|', chr(92) + '|')} | {verdict.seconds:.0f} |"
        for verdict in verdicts
    ]
    return "\n".join(lines)


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
