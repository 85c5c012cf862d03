"""What the shared commands ask of a dataset family.

A family answers in `families/NAME/dataset.py`, a module of plain functions with these names; mypy holds each module
against `DatasetFamily`. `spanloom.families.dataset_family` looks the module up once, where a command or a container
begins, and it is handed down from there. No shared module asks which family it serves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.document import ShownMessage, ShownToken
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.rows.table import RowsReader
from spanloom.findings import Finding, Report
from spanloom.megatron.check import ParallelDatasets
from spanloom.megatron.readers import OpenIndexed
from spanloom.storage.scratch import Scratch

T = TypeVar("T")


class Vocabulary(Protocol):
    """What each token stands for: its bytes, or its name where it is special."""

    def is_special(self, token: int) -> bool: ...
    def name(self, token: int) -> str: ...
    def piece(self, token: int) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class OpenedShard:
    """One split of one shard, opened for validation: its arrays through the reader, and its rows."""

    root: Path
    content: Content
    split: str
    shard: ShardEntry
    datasets: ParallelDatasets
    rows: RowsReader

    def finding(self, check: str, message: str, sequence: int | None = None) -> Finding:
        return Finding(check=check, message=message, split=self.split, shard=self.shard.shard, sequence=sequence)


class CheckRun(Protocol):
    """The validation that a check is a part of."""

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:
        """Runs `check` on all shards side by side; what it reports is added in the order of the shards."""

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> None:
        """Counts documents as checked, takes a digest of the tokens of each. `tokens` int32 [T]; `lengths` int32 [N].

        Raises CancelledError when nobody waits for the rest.
        """

    def go_on(self) -> None:
        """Raises CancelledError when nobody waits for the rest."""


@dataclass(frozen=True, kw_only=True)
class WholeCheck:
    """A dataset of which each document was checked by itself.

    `readable`: splits and numbers of the shards whose files could be read; what is wrong with the others is reported
    already. `open_with`: the reader of arrays.
    """

    root: Path
    content: Content
    readable: frozenset[tuple[str, int]]
    run: CheckRun
    open_with: OpenIndexed

    def readable_splits(self, shard: ShardEntry) -> list[str]:
        """The splits of a shard whose files could be read."""
        return [split for split in shard.splits if (split, shard.shard) in self.readable]

    def is_readable(self, shard: ShardEntry) -> bool:
        """Whether all that a shard holds could be read."""
        held = [split for split, counts in shard.splits.items() if counts.sequences]
        return self.readable_splits(shard) == held


@dataclass(frozen=True, kw_only=True)
class SourceCheck:
    """A dataset to be checked against its source. `deep`: how many rows, or blocks of each shard, are made again.

    `at_hand`: numbers of the shards of the source whose files are on this machine; None: all.
    """

    whole: WholeCheck
    source: Path
    deep: int
    tokenizer: Path | None
    at_hand: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report page that only this family has: text before and after a table of amounts and their share.

    `lines`: what, and how many tokens; `whole`: the tokens that shares are of.
    """

    title: str
    before: str
    column: str
    lines: Sequence[tuple[str, int]]
    whole: int
    after: str


@dataclass(frozen=True, kw_only=True)
class Description:
    """What people see of a dataset, as values: for the card, the summaries on the terminal, and the report.

    tags          the card's, beside those of every dataset
    introduction  the card's first paragraph
    files         the card's paragraph on what a shard consists of
    making        lines of the card's list of how it was made, the tokenizer among them
    summary       name → line: how the tokens came to be, for `manifest show`
    result        name → line: what the end of a build tells beside the counts
    facts         what `report.json` says of the making
    provenance    term → text, of the report page's last section
    sections      of the report page
    rows_in       what the rows that were read are in: "dataset", "stream"
    one_length    all documents have one length, so that a table of lengths says nothing
    """

    tags: Sequence[str]
    introduction: str
    files: str
    making: Sequence[str]
    summary: Mapping[str, str]
    result: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    rows_in: str = "dataset"
    one_length: bool = False


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the files of a dataset are. `arrays`: file name part → dtype; `span_names`: of the span ids, from 0 on."""

    arrays: Mapping[str, str]
    span_names: tuple[str, ...]


def one_layout(arrays: Mapping[str, str], span_names: tuple[str, ...]) -> Callable[[Content], Layout]:
    """The `layout` of a family whose datasets all have the same one."""
    same = Layout(arrays=arrays, span_names=span_names)
    return lambda content: same  # noqa: ARG005  # as all families


def one_row_schema(schema: pa.Schema) -> Callable[[Content], pa.Schema]:
    """The `row_schema` of a family whose datasets all have the same columns."""
    return lambda content: schema  # noqa: ARG005  # as all families


def no_header_tokens(content: Content) -> tuple[int, int] | None:  # noqa: ARG001  # as all families
    """The `header_tokens` of a family in whose documents no pair of tokens encloses a message's header."""
    return None


@dataclass(frozen=True, kw_only=True)
class ExportColumn:
    """A column that the export takes from the rows as it is: one value for each document, of the Arrow type `kind`."""

    name: str
    meaning: str
    kind: pa.DataType = field(default_factory=pa.string)


class DatasetFamily(Protocol):
    """The functions and constants of `families/NAME/dataset.py`."""

    @property
    def ID_COLUMN(self) -> str | None:
        """The column of the row table that names a document, where one row of the source is one document."""

    @property
    def GROUP_COLUMNS(self) -> tuple[str, ...]:
        """Columns of the row table that documents can be counted by and chosen by."""

    @property
    def SPLITS(self) -> tuple[str, ...]:
        """The splits of every shard."""

    @property
    def RATIO(self) -> tuple[str, str] | None:
        """Two spans whose tokens are compared: reasoning and answer."""

    def layout(self, content: Content) -> Layout:
        """The arrays and spans that a dataset with this manifest must have."""

    def row_schema(self, content: Content) -> pa.Schema:
        """The family's own columns of the row table, in a dataset with this manifest."""

    def check_content(self, content: Content) -> Iterator[Finding]:
        """What the manifest says of options, tokenizer and input: by itself, and against the counts."""

    def check_sums(self, content: Content, shard: ShardEntry) -> Iterator[Finding]:
        """The counts of one shard in the manifest checked against each other."""

    def check_shard(self, report: Report, opened: OpenedShard, run: CheckRun) -> Digests:
        """Every document of one split of one shard, read to its end.

        Returns the digests of this split's ids, uint64 [N]; none where documents have no ids.
        """

    def check_whole(self, report: Report, whole: WholeCheck, digests: DigestRuns) -> None:
        """What only all documents together tell. `digests`: of the ids of all of them."""

    def check_source(self, report: Report, check: SourceCheck) -> None:
        """The dataset checked against the source that it was built from."""

    def stage_source(self, scratch: Scratch, place: str) -> Path:
        """What the dataset was built from, on this machine: a local place as it is, a remote one staged."""

    @property
    def stage_source_shards(self) -> Callable[[Scratch, str, tuple[int, ...]], Path] | None:
        """As `stage_source`, but of the source only its manifest and the shards of these numbers.

        None for a family that cannot be validated by shard. The others check documents in `CheckRun.each` alone, and
        need the files of one shard of the dataset and of the source for it.
        """

    def stage_tokenizer(self, scratch: Scratch, place: str | None) -> Path | None:
        """The tokenizer of the dataset on this machine; None stands for the usual places."""

    def load_vocabulary(self, content: Content, tokenizer: Path | None) -> Vocabulary:
        """The vocabulary of the dataset's tokens. Raises SpanloomError where `tokenizer` is another one."""

    def header_tokens(self, content: Content) -> tuple[int, int] | None:
        """The tokens that open and close the frame of a message, where the format has such."""

    def cut_messages(
        self, content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]
    ) -> Iterable[ShownMessage]:
        """A document cut into messages. `row`: its row of the row table."""

    def document_notes(self, row: Mapping[str, Any]) -> Iterable[str]:
        """What a row says of its document beside id and groups."""

    def describe(self, content: Content) -> Description:
        """What people see of the dataset."""

    def export_columns(self, content: Content) -> Sequence[ExportColumn]:
        """What an export takes from the rows."""
