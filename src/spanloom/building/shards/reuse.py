"""Shards of an earlier dataset that a build takes instead of making them: for a source that grew.

In: the root of a finished dataset, the jobs of a build. Out: for each shard that would be made of the same rows, by the
same code, with the same options: its files, linked or copied and checked, and its inventory and ids as if it were made.
A manifest records in its `environment` what each shard was made of (`made_of`), and how many of its rows were audited.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.building.assembly import INVENTORY_ARTIFACT, made_of
from spanloom.building.parts.stored import open_part, row_groups
from spanloom.building.recipe import Recipe, Target
from spanloom.building.shards.ids import Ids
from spanloom.building.shards.making import ShardJob
from spanloom.dataset import manifest
from spanloom.dataset.manifest import ListedFile, Manifest
from spanloom.dataset.root.inventory import file_fault
from spanloom.dataset.root.layout import rows_file
from spanloom.errors import ArtifactError
from spanloom.provenance import git_sha
from spanloom.storage import link_file


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A shard of an earlier dataset: its inventory in the new one, and its ids."""

    inventory: dict[str, Any]
    ids: Ids


class Earlier:
    """A finished dataset whose shards may be taken. Raises ManifestError if there is none at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._manifest: Manifest = manifest.read(root)
        shards = self._manifest.environment.get("shards")
        self._of_shard: Sequence[Mapping[str, Any]] = shards if isinstance(shards, list) else []

    def take(self, recipe: Recipe, job: ShardJob, target: Target, shards: int, root: Path) -> Taken | None:
        """Links the files of a shard into `root`; None if the earlier dataset has no shard that is made of the same.

        `shards`: how many the new dataset has. Raises ArtifactError for a file of the earlier dataset that was changed.
        """
        number, content = job.shard.index, self._manifest.content
        if number >= min(len(content.shards), len(self._of_shard)) or not self._is_alike(target):
            return None
        known, key = self._of_shard[number], made_of(recipe, job, target)
        if known.get("made_of") != key or content.shards[number].shard != number:
            return None
        shard = recipe.verified(job.shard)
        entry = content.shards[number]
        for file in _files(entry):
            if (fault := file_fault(self._root, file)) is not None:
                raise ArtifactError(
                    f"the earlier dataset is damaged: {fault.message}",
                    where=str(self._root / file.path),
                    remedy="validate it, or leave out --reuse",
                )
            link_file(self._root / file.path, root / file.path)
        inventory = {
            "artifact": INVENTORY_ARTIFACT,
            "key": "",
            "made_of": key,
            "shard": number,
            "shards": shards,
            "build": dict(target.build),
            "environment": dict(recipe.environment()),
            "input": dict(recipe.input_of(shard)),
            "audit": known.get("audit"),
            "files": [],
            "entry": entry.model_dump(mode="json", exclude_unset=True),
        }
        return Taken(inventory=inventory, ids=self._ids(number, recipe))

    def _is_alike(self, target: Target) -> bool:
        """Whether documents are split and laid out as in the new dataset, by the same code."""
        content, build = self._manifest.content, target.build
        split = content.split and {name: getattr(content.split, name) for name in build["split"]}
        alike = (content.family, split, content.arrays, list(content.span_names), content.alignment)
        return content.git_sha == git_sha() and alike == (
            build["family"],
            build["split"],
            build["arrays"],
            build["span_names"],
            build["alignment"],
        )

    def _ids(self, number: int, recipe: Recipe) -> Ids:
        entry, form = self._manifest.content.shards[number], recipe.form
        files = [rows_file(self._root, split, number) for split, counts in entry.splits.items() if counts.sequences]
        return Ids(
            column=form.split_column,
            named=form.id_column,
            index=number,
            where=str(self._root),
            rows_read=entry.rows_read,
            rows=sum(counts.sequences for counts in entry.splits.values()),
            batches=partial(_batches, files, form.split_column),
        )


def _files(entry: manifest.ShardEntry) -> Iterator[ListedFile]:
    for counts in entry.splits.values():
        yield from counts.files
    if entry.rejects_file is not None:
        yield entry.rejects_file


def _batches(files: Sequence[Path], column: str, _: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows and ids of all documents. A row group of a row table holds all documents of its source rows."""
    for path in files:
        file: pq.ParquetFile
        with open_part(path) as file:
            yield from row_groups(file, ["row", column])
