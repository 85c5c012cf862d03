"""The interface of a dataset family for the shared commands.

A family implements it in `families/NAME/dataset.py`, a module of plain functions with these names; mypy checks each
module against `DatasetFamily`. `spanloom.families.dataset_family` looks the module up once, at the start of a command
or a container, and the module is passed on as an argument. Shared modules never test which family they serve.
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
    """The meaning of each token: its bytes, or its name if it is special."""

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
    """The validation run that a check belongs to."""

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:
        """Runs `check` on the shards that are checked here; adds the reports, and returns the results, of all shards in
        order. None stands for a shard that is checked elsewhere."""

    def spread(self, work: Callable[[range], T], rows: int) -> list[T]:
        """Runs `work` on the rows of a shard's source from 0 on: on all of them, or on as many pieces as there are
        processes for. Returns the results in order. `work` is pickled; in a worker, a `WholeCheck` has no run."""

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        """Counts documents as checked, and adds a digest of each one's tokens. `tokens` int32 [T]; `lengths` int32 [N].

        Returns the digests, uint64 [N].
        """


@dataclass(frozen=True, kw_only=True)
class WholeCheck:
    """A dataset whose documents have each been checked individually.

    `readable`: (split, shard number) of the shards whose files could be read; the faults of the others are already
    reported. `open_with`: the reader of arrays.
    """

    root: Path
    content: Content
    readable: frozenset[tuple[str, int]]
    run: CheckRun
    open_with: OpenIndexed

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None}

    def readable_splits(self, shard: ShardEntry) -> list[str]:
        """The splits of a shard whose files could be read."""
        return [split for split in shard.splits if (split, shard.shard) in self.readable]

    def is_readable(self, shard: ShardEntry) -> bool:
        """Whether all splits of a shard that have documents could be read."""
        held = [split for split, counts in shard.splits.items() if counts.sequences]
        return self.readable_splits(shard) == held


@dataclass(frozen=True, kw_only=True)
class SourceCheck:
    """A dataset to be checked against its source. `deep`: how many rows, or blocks of each shard, are rebuilt.

    `at_hand`: numbers of the shards that are checked here; None: all. Of a source in shards, the others may be missing;
    if there are none, the source may be missing.
    """

    whole: WholeCheck
    source: Path
    deep: int
    tokenizer: Path | None
    at_hand: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the report page that only this family has: text before and after a table of amounts and shares.

    `lines`: label and number of tokens; `whole`: the tokens that correspond to a share of 100 %.
    """

    title: str
    before: str
    column: str
    lines: Sequence[tuple[str, int]]
    whole: int
    after: str


@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of a dataset for users: for the card, the summaries on the terminal, and the report.

    tags          tags of the card, in addition to those of every dataset
    introduction  the card's first paragraph
    files         the card's paragraph about the files of a shard
    making        lines of the card's list of how it was made, including the tokenizer
    summary       name → line: how the tokens were made, for `manifest show`
    result        name → line: printed at the end of a build, in addition to the counts
    facts         how the dataset was made, in `report.json`
    provenance    term → text, in the report page's last section
    sections      sections of the report page
    rows_in       the container of the source rows: "dataset", "stream"
    one_length    all documents have one length, so a table of lengths is omitted
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
    """The arrays and spans of a dataset. `arrays`: file name part → dtype; `span_names`: by span id, from 0 on."""

    arrays: Mapping[str, str]
    span_names: tuple[str, ...]


def one_layout(arrays: Mapping[str, str], span_names: tuple[str, ...]) -> Callable[[Content], Layout]:
    """The `layout` function of a family whose datasets all have the same layout."""
    same = Layout(arrays=arrays, span_names=span_names)
    return lambda content: same  # noqa: ARG005  # as all families


def one_row_schema(schema: pa.Schema) -> Callable[[Content], pa.Schema]:
    """The `row_schema` function of a family whose datasets all have the same columns."""
    return lambda content: schema  # noqa: ARG005  # as all families


def no_header_tokens(content: Content) -> tuple[int, int] | None:  # noqa: ARG001  # as all families
    """The `header_tokens` function of a family whose messages have no header between two tokens."""
    return None


@dataclass(frozen=True, kw_only=True)
class ExportColumn:
    """A column that the export copies from the row table: one value per document, of the Arrow type `kind`."""

    name: str
    meaning: str
    kind: pa.DataType = field(default_factory=pa.string)


class DatasetFamily(Protocol):
    """The functions and constants of `families/NAME/dataset.py`."""

    @property
    def ID_COLUMN(self) -> str | None:
        """The column of the row table that identifies a document; None if documents have no ids."""

    @property
    def GROUP_COLUMNS(self) -> tuple[str, ...]:
        """Columns of the row table by which documents can be counted and selected."""

    @property
    def SPLITS(self) -> tuple[str, ...]:
        """The splits of every shard."""

    @property
    def RATIO(self) -> tuple[str, str] | None:
        """Two spans whose token counts are compared, such as reasoning and answer; None for no comparison."""

    def layout(self, content: Content) -> Layout:
        """The arrays and spans that a dataset with this manifest must have."""

    def row_schema(self, content: Content) -> pa.Schema:
        """The family's own columns of the row table, in a dataset with this manifest."""

    def check_content(self, content: Content) -> Iterator[Finding]:
        """Checks options, tokenizer and input in the manifest, each alone and against the counts."""

    def check_sums(self, content: Content, shard: ShardEntry) -> Iterator[Finding]:
        """Checks the counts of one shard in the manifest against each other."""

    def check_shard(self, report: Report, opened: OpenedShard, run: CheckRun) -> Digests:
        """Checks every document of one split of one shard.

        Returns the digests of this split's ids, uint64 [N]; an empty array if documents have no ids.
        """

    def check_whole(self, report: Report, whole: WholeCheck, digests: DigestRuns) -> None:
        """Runs the checks that need all documents together. `digests`: of the ids of all documents.

        What is checked of a shard is checked within `CheckRun.each`, from that shard's files alone. Beyond that, only
        row tables and the files that belong to no shard are read.
        """

    def check_source(self, report: Report, check: SourceCheck) -> None:
        """Checks the dataset against the source that it was built from, through `check_against_source`."""

    def stage_source(self, scratch: Scratch, place: str, only: tuple[int, ...] | None = None) -> Path:
        """The local path of the dataset's source: a local place itself, a remote one downloaded.

        `only`: the shards of the dataset that are to be checked against it, None for all; of a source in shards, the
        others are not downloaded.
        """

    def stage_tokenizer(self, scratch: Scratch, place: str | None) -> Path | None:
        """The local path of the dataset's tokenizer; None means the usual places."""

    def load_vocabulary(self, content: Content, tokenizer: Path | None) -> Vocabulary:
        """The vocabulary of the dataset's tokens. Raises SpanloomError if `tokenizer` is not the dataset's."""

    def header_tokens(self, content: Content) -> tuple[int, int] | None:
        """The tokens that open and close a message's header, if the format has such tokens."""

    def cut_messages(
        self, content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]
    ) -> Iterable[ShownMessage]:
        """Cuts a document into messages. `row`: its row of the row table."""

    def document_notes(self, row: Mapping[str, Any]) -> Iterable[str]:
        """Notes about a document from its row, in addition to id and groups."""

    def describe(self, content: Content) -> Description:
        """The description of the dataset for users."""

    def export_columns(self, content: Content) -> Sequence[ExportColumn]:
        """The columns that an export copies from the rows."""
