"""The validation of a build, in a process of its own: it loads its libraries while others make the dataset.

In: a family, the options of validation. Out: a function that validates a root. The process may be running already, so
that a command can start it before it imports its own libraries (`spanloom.megatron.validator`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.validate.dataset import validated
from spanloom.findings import Report
from spanloom.megatron.readers import ReaderChoice
from spanloom.megatron.validator import Validator, validating_process
from spanloom.report.pages.report import load_report_page
from spanloom.report.progress import Progress

Validate = Callable[[Path, Manifest], tuple[Report, float]]
"""Function: a root and its manifest → the report of its validation, and how many seconds that took."""


@contextmanager
def validating(
    family: DatasetFamily,
    reader: ReaderChoice,
    progress: Progress,
    *,
    validator: Validator | None = None,
    unit: str = "documents",
    ahead: Callable[[], object] | None = None,
    **given: Any,
) -> Iterator[Validate]:
    """Yields what validates a root. Meanwhile the validating process runs `ahead`.

    `validator`: the process, if it is running already; `unit`: what progress counts; `given`: further options of
    `validate_dataset`.
    """
    with validating_process(reader) if validator is None else nullcontext(validator) as process:
        if ahead is not None:
            process.pool.submit(ahead)

        def validate(root: Path, written: Manifest) -> tuple[Report, float]:
            total = written.content.totals.sequences
            with progress.stage("validate"), progress.checking(process.counters, total, unit):
                future = process.pool.submit(validated, root, family, reader=reader, **given)
                load_report_page()
                return process.pool.result(future, "validation")

        yield validate
