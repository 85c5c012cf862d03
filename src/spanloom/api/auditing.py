"""The audit of any token dataset: `spanloom.audit`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from spanloom.api.building import day_of
from spanloom.api.options import Place
from spanloom.auditing.auditor import ModelOptions
from spanloom.auditing.page import audit_page
from spanloom.auditing.readers.unit import Reading
from spanloom.auditing.result import Result
from spanloom.auditing.run import AuditOptions
from spanloom.auditing.run import audit as run_audit
from spanloom.errors import OptionError
from spanloom.families.models import defaults
from spanloom.law.classes import NAMES
from spanloom.options.keywords import check_given_places
from spanloom.options.shared import OnStage
from spanloom.report.progress import Progress
from spanloom.storage import write_atomically
from spanloom.storage.hub import local_copy


def audit(
    data: Place,
    model: Place,
    *,
    messages: Place | None = None,
    mask: str | None = None,
    aligned: Literal["tokens", "labels"] | None = None,
    declare: Sequence[str] = (),
    sample: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    html: Place | None = None,
    progress: bool | OnStage = False,
) -> Result:
    """Checks the loss mask of any token dataset against the model at the folder `model`. Prints nothing. `data` and
    `messages` may be `hf://` places.

    messages  the conversations it was made from, which makes every document provable
    declare   classes of findings that are intended
    html      file for a page with the first documents of each class
    progress  True prints to stderr; a function is called with the name of the work, the amount done and the total

    The options of `spanloom audit` that are not here, such as `--template`, have its defaults. Returns a `Result`: the
    counts of each class; `exit_code` is 0 if it is clean. Raises OptionError for an unknown class.
    """
    check_given_places({"data": data, "model": model, "messages": messages, "html": html})
    if unknown := [name for name in declare if name not in NAMES]:
        raise OptionError(f"{unknown[0]} is not a class", remedy=f"one of {', '.join(NAMES)}")
    request = AuditOptions(
        data=local_copy(data),
        model=ModelOptions(folder=Path(model), date=day_of(defaults.PROBE_DATE)),
        messages=None if messages is None else local_copy(messages),
        reading=Reading(mask=mask, aligned=aligned),
        sample=sample,
        seed=seed,
        workers=workers,
        declare=tuple(declare),
    )
    with Progress.given(progress).counting("audit", "rows") as on_progress:
        result = run_audit(request, on_progress)
    if html is not None:
        write_atomically(Path(html), audit_page(result).encode())
    return result
