"""A pytest plugin: proves which sources are tested, and writes down how each test ended and why.

In: the environment variables `SOURCE` and `OUTCOMES`. Out: a JSON file of one `Outcome` for each test that ended, and
for each file that could not be collected. Nothing of spanloom is imported before its place has been checked.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

SOURCE, OUTCOMES = "MUTANTS_SOURCE", "MUTANTS_OUTCOMES"
"""The folder that `spanloom` must be imported from; the file that the outcomes go to."""

_ASK = "import spanloom; print(spanloom.__file__)"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a test ended: `passed`, `skipped` or `failed`, or a file that could not be collected: `not collected`.

    `error`: the type of the exception and the first line of its message. `counts`: it is an assertion, or an error that
    Spanloom raises; a test that fails with another one may have failed for a reason of its own. `raised`: the names of
    its type and of the types that this one comes from.
    """

    test: str
    result: str
    error: str = ""
    counts: bool = False
    raised: tuple[str, ...] = ()


class Recorder:
    """Holds the outcomes until the session ends."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Outcome] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before = self._outcomes.get(item.nodeid)
        if before is None or before.result == "passed":
            fault = call.excinfo.value if call.excinfo is not None and report.failed else None
            self._outcomes[item.nodeid] = _outcome(item.nodeid, report.outcome, fault)
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            lines = str(report.longrepr).strip().splitlines()
            error = lines[-1] if lines else ""
            self._outcomes[report.nodeid] = Outcome(test=report.nodeid, result="not collected", error=error)

    def pytest_sessionfinish(self) -> None:
        text = json.dumps([asdict(outcome) for outcome in self._outcomes.values()])
        Path(os.environ[OUTCOMES]).write_text(text)


def pytest_configure(config: pytest.Config) -> None:
    """Refuses to test other sources than the copy, in this process or in one that a test starts."""
    source = Path(os.environ[SOURCE]).resolve()
    import spanloom

    child = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True, cwd="/")
    for whose, place in (("this process", spanloom.__file__), ("a process that it starts", child.stdout.strip())):
        if not Path(place).resolve().is_relative_to(source):
            raise pytest.UsageError(f"{whose} imports spanloom from {place}, not from the copy in {source}")
    config.pluginmanager.register(Recorder())
    # One example that fails is enough: looking for the smallest takes minutes where an example takes seconds.
    phases = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
    settings.register_profile("mutants", phases=phases)
    settings.load_profile("mutants")


def _outcome(test: str, result: str, fault: BaseException | None) -> Outcome:
    if fault is None:
        return Outcome(test=test, result=result)
    leaves = _leaves(fault)
    first = (str(leaves[0]).strip().splitlines() or [""])[0]
    return Outcome(
        test=test,
        result=result,
        error=f"{type(leaves[0]).__name__}: {first}"[:200],
        counts=all(map(_counts, leaves)),
        raised=tuple(kind.__name__ for kind in type(leaves[0]).__mro__),
    )


def _leaves(fault: BaseException) -> list[BaseException]:
    """Hypothesis raises a group where examples fail in different ways."""
    if isinstance(fault, BaseExceptionGroup):
        return [leaf for part in fault.exceptions for leaf in _leaves(part)]
    return [fault]


def _counts(fault: BaseException) -> bool:
    """An assertion of the test, `pytest.raises` that saw nothing, or an error of Spanloom's own family."""
    ours = any(kind.__name__ == "SpanloomError" for kind in type(fault).__mro__)
    return isinstance(fault, AssertionError | pytest.fail.Exception) or ours
