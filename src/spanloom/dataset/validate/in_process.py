"""A validation in a process of its own, which imports it, and no builder.

In: a root, a family, options. Out: the findings. What is checked is counted for the parent's progress.
"""

from pathlib import Path
from time import monotonic
from typing import Any

from spanloom import workers
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.findings import Report


def validated(root: Path, family: DatasetFamily, **options: Any) -> tuple[Report, float]:
    """Runs `validate_dataset` and counts in `workers.counters_here`. Returns the seconds too."""
    counters, checked = workers.counters_here, 0

    def count(done: int, _: int) -> None:
        nonlocal checked
        if counters:
            counters.add(0, checked=done - checked)
        checked = done

    began = monotonic()
    report = validate_dataset(root, family, on_progress=count, **options)
    return report, monotonic() - began
