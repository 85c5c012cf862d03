"""What forked commands save: CPU of drawn tests with forks and with fresh processes, in one run.

In: how many tests, a seed. Out: seconds of CPU of each way, all processes included, and their ratio. Drawn are tests
that run commands through the fixture `cli`, over all files.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tools.chaos.supervisor import adopt_orphans

REPOSITORY = Path(__file__).parents[3]


class Collector:
    """A plugin of pytest that keeps the ids of tests which run commands."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.ids = sorted(item.nodeid for item in items if "cli" in getattr(item, "fixturenames", ()))


def cpu_seconds(tests: list[str], *, cold: bool) -> float:
    """CPU of one run of pytest and of all processes below it. Raises RuntimeError where a test fails."""
    before = _used()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=REPOSITORY,
        env={**os.environ, "SPANLOOM_TEST_COLD": "1" if cold else ""},
        capture_output=True,
        text=True,
        check=False,
    )
    _wait_for_orphans()
    if run.returncode:
        raise RuntimeError(run.stdout[-3000:])
    return _used() - before


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _wait_for_orphans() -> None:
    """What pytest started and did not wait for, such as the fork server, counts when it is waited for here."""
    deadline = time.monotonic() + 30
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", type=int, default=87, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    collector = Collector()
    os.chdir(REPOSITORY)
    if pytest.main(["--collect-only", "-qqq"], plugins=[collector]):
        sys.exit("the tests cannot be collected")
    adopt_orphans()
    tests = random.Random(given.seed).sample(collector.ids, given.tests)
    forked, fresh = (cpu_seconds(tests, cold=cold) for cold in (False, True))
    print(f"{given.tests} of {len(collector.ids)} tests that run commands: {forked:.0f} s of CPU with forks,")
    print(f"{fresh:.0f} s with fresh processes: {forked / fresh:.2f}")


if __name__ == "__main__":
    main()
