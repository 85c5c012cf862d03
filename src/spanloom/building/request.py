"""A requested dataset, and its making on one machine.

In: a `DatasetRequest` of a family. Out: a validated dataset root. Containers make the same: see `steps`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.building.disk import Size
from spanloom.building.make import BuildResult, build_dataset
from spanloom.building.options import RunOptions
from spanloom.building.shards.files import DatasetJob, make_dataset, work_of
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.lock import WORK_NAME, BuildRecord, data_names
from spanloom.dataset.root.made import Differs
from spanloom.report.progress import Progress
from spanloom.split import SPLITS


@dataclass(frozen=True, kw_only=True)
class DatasetRequest:
    """A requested dataset.

    identity  what decides its bytes, besides the code: `family`, `config`, `source`, `tokenizer`; see `identity_of`
    arrays    the dtypes of its arrays, see `Layout`
    shards    how many it has
    size      about how much it holds
    opened    opens what it is made of
    carried   its files of no shard: name → a function that makes the content
    absent    further names that such files may have, which no other file may take
    """

    identity: Mapping[str, Any]
    arrays: Mapping[str, str]
    shards: int
    size: Callable[[], Size]
    opened: Callable[[], AbstractContextManager[DatasetJob]]
    carried: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    absent: Sequence[str] = ()


def build_requested(
    root: Path,
    request: DatasetRequest,
    family: DatasetFamily,
    options: RunOptions,
    progress: Progress,
    *,
    differs: Differs = lambda _: None,
    **validation: Any,
) -> BuildResult:
    """Makes and validates a dataset. The same source and options give the same bytes, whatever the workers.

    An interrupted build is resumed by the same call. Raises SpanloomError if it cannot finish. Findings do not raise:
    they are in the report. `validation`: options of `validating`.
    """
    rejects = options.max_rejects is not None
    data = data_names(shards=request.shards, splits=SPLITS, arrays=request.arrays, rejects=rejects)
    names = (*data, *request.carried, *request.absent)

    def make(target: Path) -> Manifest:
        with request.opened() as job:
            return make_dataset(job, target, root / WORK_NAME, options, progress, carried=request.carried)

    return build_dataset(
        root,
        BuildRecord(identity=dict(request.identity), files=names, work=work_of(request.shards)),
        family,
        options,
        progress,
        make=make,
        bytes_needed=lambda: request.size().bytes(request.arrays),
        differs=differs,
        **validation,
    )
