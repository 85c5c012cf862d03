"""What a family gives to the machine that makes its token datasets.

Recipe   one dataset to be made: its source, its options, and how rows become documents
OfFile, OfFolder   what recipes have in common whose source is one thing, and a folder of shards
Part     rows of a shard that are made together: the unit of parallel work and of resume
Made     the documents of some rows, and the rows that were refused
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from spanloom.conversations.source.folder import SourceShard, check_still_hashed, verify_hash
from spanloom.conversations.source.rejects import Reject
from spanloom.dataset.family import Layout
from spanloom.supervision import TokenDocuments


@dataclass(frozen=True, kw_only=True)
class DatasetForm:
    """The form of a family's documents.

    family        in the manifest
    layout        the arrays of a document on disk, and the names of its spans
    about         the columns that the family adds to the row table, `row` first
    split_column  the column of `about` whose hash chooses train or valid
    id_column     the name of that id in the source, for messages and rejects
    """

    family: str
    layout: Layout
    about: pa.Schema
    split_column: str
    id_column: str


class Shard(Protocol):
    """One shard of a source. `where`: its name in messages."""

    @property
    def index(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def where(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class FileShard:
    """A shard of a source that is one file, or one list: row i goes to shard i mod the number of shards."""

    index: int
    rows: int
    where: str

    @classmethod
    def of(cls, place: Path | str, rows: int, shards: int) -> "tuple[FileShard, ...]":
        """The shards of a source of so many rows. `place`: its name in messages."""
        one = shards == 1
        return tuple(
            cls(
                index=index,
                rows=len(range(index, rows, shards)),
                where=str(place) if one else f"shard {index:02d}, {place}",
            )
            for index in range(shards)
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive rows of a shard. Their number and place depend on the source alone, never on the number of workers.

    `rows`: how many; `key`: a hash or name that changes with the rows; `holds`: what `Recipe.made` needs to know of
    them, such as row groups of a file, or the rows themselves. It is pickled.
    """

    index: int
    first_row: int
    rows: int
    key: str
    holds: Any = field(repr=False)


Counts = Mapping[str, Counter[str]]
"""Counts by group and name, such as `{"cutting": {"runs": 5}}`."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """What became of the next rows of a part.

    rows_read  how many rows
    documents  N documents, each with its EOD
    about      N rows with the columns of `DatasetForm.about`
    refused    the rows that have no document, in their order
    counts     sums over the rows
    whole      False: the cap on tokens ended the part here, and later rows are not read
    """

    rows_read: int
    documents: TokenDocuments
    about: pa.RecordBatch
    refused: Sequence[Reject] = ()
    counts: Counts = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True, kw_only=True)
class Target:
    """The dataset that the files of shards are written for. `build`: what its manifest says of all shards alike, see
    `assembly.build_facts`; `code`, `libraries`: see `Recipe`; `lists_rejects`: whether refused rows are written."""

    form: DatasetForm
    build: Mapping[str, Any]
    code: str
    libraries: Sequence[str]
    lists_rejects: bool = True


class Recipe(Protocol):
    """A dataset to be made. It is pickled for each part, so it holds paths and options, nothing loaded."""

    @property
    def form(self) -> DatasetForm: ...

    @property
    def build(self) -> Mapping[str, Any]:
        """What the manifest says of all shards alike: see `assembly.build_facts`."""

    @property
    def libraries(self) -> Sequence[str]:
        """The packages that make the tokens and the files of parts."""

    @property
    def code(self) -> str:
        """The name of the family's folder: its sources are part of the key of each part."""

    def identity(self) -> Mapping[str, Any]:
        """What decides the bytes of parts, besides code and libraries, as JSON."""

    def verified(self, shard: Any) -> Any:
        """The shard, after its hash was compared with what the source says. Raises SourceError."""

    def parts(self, shard: Any, rows: int) -> Iterator[Part]:
        """The parts of the first `rows` rows of a shard, in order. Runs in one process."""

    def made(self, shard: Any, part: Part, token_budget: int | None) -> Iterator[Made]:
        """Makes the documents of a part, in order. Runs in workers, which load what they need once.

        `token_budget`: the tokens that the caps leave for this part. The row that would exceed it is not read.
        """

    def check_unchanged(self, shard: Any) -> None:
        """Raises SourceError if the source has changed since `verified`."""

    def input_of(self, shard: Any) -> Mapping[str, Any]:
        """The shard as the manifest lists it: path, rows, bytes, sha256."""

    def counted(self, counts: Counts) -> Mapping[str, Any]:
        """The counts of a shard as its record and the manifest have them, and what else its record says, as JSON."""

    def notices(self, counts: Counts) -> Sequence[str]:
        """Lines for the user about the counts of all shards, which may differ between runs."""

    def environment(self) -> Mapping[str, Any]:
        """Places as given to this run, for the manifest; they decide nothing."""


class NoNotices:
    """A recipe that has nothing to say about its counts."""

    def notices(self, counts: Counts) -> Sequence[str]:  # noqa: ARG002
        return ()


@dataclass(frozen=True, kw_only=True)
class OfFile(NoNotices):
    """The common part of recipes whose source is one thing, which is hashed before it is divided into shards.

    `build`: see `assembly.build_facts`; `given`: places as given to this run.
    """

    build: Mapping[str, Any]
    given: Mapping[str, Any]

    def verified(self, shard: FileShard) -> FileShard:
        return shard

    def counted(self, counts: Counts) -> Mapping[str, Any]:  # noqa: ARG002  # there are none
        return {}

    def environment(self) -> Mapping[str, Any]:
        return self.given


@dataclass(frozen=True, kw_only=True)
class OfFolder(NoNotices):
    """The common part of recipes whose source is a folder of shards with a manifest. `given`: places as given."""

    given: Mapping[str, Any]

    def verified(self, shard: SourceShard) -> SourceShard:
        return verify_hash(shard)

    def check_unchanged(self, shard: SourceShard) -> None:
        check_still_hashed(shard)

    def input_of(self, shard: SourceShard) -> Mapping[str, Any]:
        return shard.entry

    def environment(self) -> Mapping[str, Any]:
        return self.given


def target_of(recipe: Recipe, *, lists_rejects: bool) -> Target:
    """The dataset that a recipe makes."""
    return Target(
        form=recipe.form,
        build=recipe.build,
        code=recipe.code,
        libraries=recipe.libraries,
        lists_rejects=lists_rejects,
    )
