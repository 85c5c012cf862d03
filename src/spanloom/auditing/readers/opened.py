"""A place → its container, its units, and the declarations of its manifest.

In: a file, a prefix or a folder. Out: `Opened`. Raises SourceError for anything that is not a token dataset.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spanloom.auditing.readers.columns import STARTS
from spanloom.auditing.readers.indexed import indexed_documents, indexed_units, prefixes_in
from spanloom.auditing.readers.tables import arrow_documents, arrow_unit, parquet_documents, parquet_units
from spanloom.auditing.readers.unit import Reading, Unit
from spanloom.dataset import manifest
from spanloom.dataset.root.layout import array_prefix
from spanloom.errors import SourceError
from spanloom.law.classes import RETOKENISED
from spanloom.law.declared import declared_by
from spanloom.law.documents import Documents, Ints
from spanloom.records.arrow import saved_files, saved_splits
from spanloom.records.parquet import parquet_schema

ROWS_OF_UNIT = 1 << 13
"""The minimum of rows for a worker, if a file can be split."""

_READ = {"parquet": parquet_documents, "arrow": arrow_documents, "indexed": indexed_documents}


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A dataset to be audited.

    container  its kind, in words
    units      its parts, in order
    declared   class → who declares it: such findings are notes
    as_text    whether control tokens in texts are encoded as text
    tokenizer  the tokenizer that the manifest names, with its sha256
    """

    container: str
    units: list[Unit]
    declared: dict[str, str] = field(default_factory=dict)
    as_text: bool = False
    tokenizer: manifest.TokenizerEntry | None = None

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)


def open_data(place: Path, reading: Reading) -> Opened:
    """Opens the dataset at a place. Raises SourceError."""
    if place.is_dir():
        return _folder(place, reading)
    if place.suffix in (".bin", ".idx") or (not place.exists() and place.with_name(place.name + ".idx").is_file()):
        prefix = place.with_suffix("") if place.suffix in (".bin", ".idx") else place
        units = indexed_units(prefix, prefix.name, reading, ROWS_OF_UNIT)
        return Opened(container=".bin and .idx", units=units)
    if not place.is_file():
        raise SourceError("the dataset is missing", where=str(place), remedy="give a file, a prefix or a folder")
    if place.suffix == ".arrow":
        return Opened(container="Arrow", units=[arrow_unit(place, place.name, reading)])
    units = parquet_units(place, place.name, reading, ROWS_OF_UNIT)
    return Opened(container=_kind_of_parquet(place), units=units)


def read_unit(unit: Unit, rows: Ints | None = None) -> Iterator[Documents]:
    """The documents of a unit; `rows`: sorted numbers of rows of its file, None for all."""
    return _READ[unit.kind](unit, rows)


def _folder(folder: Path, reading: Reading) -> Opened:
    if manifest.schema_version_at(str(folder)) is not None:
        return _root(folder, reading)
    saved = [path for split in saved_splits(folder) for path in saved_files(split) or ()]
    tables = sorted(path for path in folder.rglob("*.parquet") if not path.is_dir())
    prefixes = prefixes_in(folder, reading)
    kinds = {"a folder of save_to_disk": saved, "Parquet": tables, ".bin and .idx": prefixes}
    if sum(map(bool, kinds.values())) > 1:
        raise SourceError(
            f"the folder holds several containers: {', '.join(name for name, files in kinds.items() if files)}",
            where=str(folder),
            remedy="give a file, or a prefix, of the one that is trained on",
        )
    for path in (*saved, *tables):
        if not path.is_file():
            raise SourceError("the file is missing: a link to nothing?", where=str(path), remedy="copy it again")
    if saved:
        units = [arrow_unit(path, path.relative_to(folder).as_posix(), reading) for path in saved]
        return Opened(container="save_to_disk", units=units)
    if tables:
        units = [
            unit
            for path in tables
            for unit in parquet_units(path, path.relative_to(folder).as_posix(), reading, ROWS_OF_UNIT)
        ]
        return Opened(container=_kind_of_parquet(tables[0]), units=units)
    if prefixes:
        units = [unit for prefix in prefixes for unit in indexed_units(prefix, prefix.name, reading, ROWS_OF_UNIT)]
        return Opened(container=".bin and .idx", units=units)
    raise SourceError(
        "the folder holds no token dataset",
        where=str(folder),
        remedy="give Parquet, a folder of save_to_disk, .bin and .idx, or a root of Spanloom",
    )


def _kind_of_parquet(path: Path) -> str:
    return "Megatron-Bridge's packed Parquet" if STARTS in parquet_schema(path).names else "Parquet"


def _root(root: Path, reading: Reading) -> Opened:
    """A finished dataset of Spanloom."""
    content = manifest.read(root).content
    units = []
    for split, shard in content.filled():
        prefix = array_prefix(root, split, shard, "tokens")
        units += indexed_units(prefix, f"{split}/{prefix.name}", reading, ROWS_OF_UNIT)
    declared = _declared(content)
    container = f"root of {content.family}"
    return Opened(
        container=container,
        units=units,
        declared=declared,
        as_text=RETOKENISED in declared,
        tokenizer=content.tokenizer,
    )


def _declared(content: manifest.Content) -> dict[str, str]:
    """The declarations in the manifest of a Spanloom dataset."""
    if content.block_size is not None:
        raise SourceError(
            "blocks that begin and end inside of conversations are not audited",
            remedy="`spanloom validate` derives the mask of every block",
        )
    return declared_by(content.config, content.family)
