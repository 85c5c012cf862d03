"""The documents of a finished dataset of any token family, read with numpy: `spanloom.open_dataset`.

In: the root of a dataset. Out: `Dataset`, read by index, by id or in order; each `Document` has its tokens, loss
mask, spans and text. Imports neither Megatron nor torch.
"""

import html
import importlib.util
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.dataset.export.form import export_form
from spanloom.dataset.export.parquet import document_batches, exported_batch
from spanloom.dataset.family import DatasetFamily, Vocabulary
from spanloom.dataset.inspect import Selection, pick_documents
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import hub_split, open_arrays, rows_file, tokenizer_at
from spanloom.dataset.rows.table import row_batches, rows_schema
from spanloom.errors import DatasetError, SpanloomError
from spanloom.families import data_folder, dataset_family
from spanloom.megatron.reader import ShardReader
from spanloom.options.keywords import check_given_places
from spanloom.report.pages.documents import documents_page
from spanloom.report.terminal import Shown
from spanloom.storage.hub import local_copy
from spanloom.storage.uri import is_hub, is_uri
from spanloom.supervision import IGNORED, Lengths, shift_to_tokens
from spanloom.teacher.looking.shown import with_scores
from spanloom.teacher.reader import open_teacher
from spanloom.teacher.signals import Signals
from spanloom.training.shard import read_content

Row = Mapping[str, Any]

_TOKENS_AT_ONCE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Span:
    """A run of tokens that is trained as one span: tokens `start` up to, not including, `stop`."""

    name: str
    start: int
    stop: int
    _document: "Document" = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """Its tokens as text, as `Document.decode` gives it."""
        return self._document.decode(self.start, self.stop)


@dataclass(frozen=True, kw_only=True, eq=False)
class Document:
    """One document: a conversation, a part of one, a trace, a sample or a packed block, of T tokens.

    split       "train" or "valid"
    shard       number of the shard
    sequence    number of the document in its split of the shard
    tokens      int32 [T]
    loss_mask   bool [T]: whether the token is trained. Token-aligned: loss_mask[t] is about tokens[t]
    span_ids    uint8 [T]: index into `span_names` of the span that the token belongs to; 0 is context
    span_names  the name of each id
    """

    split: str
    shard: int
    sequence: int
    tokens: npt.NDArray[np.int32]
    loss_mask: npt.NDArray[np.bool_]
    span_ids: npt.NDArray[np.uint8]
    span_names: tuple[str, ...]
    _row: Callable[[], Row] = field(repr=False)
    _dataset: "Dataset" = field(repr=False)

    def __len__(self) -> int:
        return int(self.tokens.size)

    @property
    def id(self) -> str | None:
        """The document's id in the source; None in packed chat, whose blocks have no ids."""
        column = self._dataset.family.ID_COLUMN
        return None if column is None else self._row().get(column)

    @property
    def metadata(self) -> dict[str, Any]:
        """The document's row in the row table, such as `row` and `language`, without counts of tokens."""
        return {name: value for name, value in self._row().items() if name not in self._dataset.counts}

    @property
    def spans(self) -> list[Span]:
        """The runs of tokens of one trained span, in order, without context."""
        edges = np.flatnonzero(np.diff(self.span_ids, prepend=0, append=0)).tolist()
        ids = self.span_ids.tolist()
        return [
            Span(name=self.span_names[ids[start]], start=start, stop=stop, _document=self)
            for start, stop in pairwise(edges)
            if ids[start]
        ]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """int64 [T]: each trained token, otherwise -100. Not shifted, as `transformers` expects labels."""
        return np.where(self.loss_mask, self.tokens, IGNORED).astype(np.int64)

    @property
    def teacher_ids(self) -> npt.NDArray[np.int32]:
        """int32 [P, k]: the teacher's most probable tokens at each label, the first the most probable. P is the number
        of labels that were scored: all trained tokens, if no spans were chosen. Raises DatasetError if the dataset was
        opened without a teacher, or the teacher has no signals of this document.
        """
        return self._signals().ids

    @property
    def teacher_logprobs(self) -> npt.NDArray[np.float32]:
        """float32 [P, k]: the log-probabilities of `teacher_ids`."""
        return self._signals().logprobs

    @property
    def teacher_own(self) -> npt.NDArray[np.float32]:
        """float32 [P]: the log-probability of the label itself; NaN in imported signals, which have not all."""
        return self._signals().own

    @property
    def teacher_rest(self) -> npt.NDArray[np.float32]:
        """float32 [P]: log of the probability that tokens outside of `teacher_ids` have together."""
        return self._signals().rest

    def _signals(self) -> Signals:
        place = f"{self.split}/{self.shard}/{self.sequence}"
        teacher = self._dataset.teacher
        if teacher is None:
            raise DatasetError("there is no teacher", where=place, remedy="open_dataset(ROOT, teacher=SIGNALS)")
        found = teacher.document(self.split, self.shard, self.sequence)
        if found is None:
            raise DatasetError("the teacher has no signals of this document", where=place)
        return found

    @property
    def text(self) -> str:
        """The whole document as text, special tokens by their names."""
        return self.decode()

    def _repr_html_(self) -> str | None:
        """The coloured document, for notebooks; None if the tokenizer is not found."""
        place = f"{self.split}/{self.shard}/{self.sequence}"
        try:
            page = self._dataset.page_of(place)
        except SpanloomError:
            return None
        return f'<iframe srcdoc="{html.escape(page)}" width="100%" height="500" frameborder="0"></iframe>'

    def decode(self, start: int = 0, stop: int | None = None) -> str:
        """Tokens `start` up to, not including, `stop` as text. Bytes that are not UTF-8 become U+FFFD.

        Raises SpanloomError if the tokenizer of the dataset is not found.
        """
        vocabulary = self._dataset.vocabulary
        return b"".join(
            vocabulary.name(token).encode() if vocabulary.is_special(token) else vocabulary.piece(token)
            for token in self.tokens[start:stop].tolist()
        ).decode("utf-8", "replace")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A split of a shard: its documents are `first` … `first + arrays.sequences - 1` of the dataset."""

    split: str
    shard: int
    first: int
    arrays: ShardReader
    rows: Path


class Dataset:
    """A finished dataset: `len`, documents by index, `for document in dataset`, `id in dataset`, `by_id`.

    `root`: its folder; `content`: that of its manifest; `splits`: the opened splits. Memory does not grow with the
    dataset, except for 16 bytes per document after the first look for an id. It can be pickled, for workers of a
    DataLoader: a copy opens the same files again.
    """

    def __init__(
        self,
        root: Path,
        content: Content,
        family: DatasetFamily,
        splits: tuple[str, ...],
        tokenizer: Path | None,
        teacher: Path | None = None,
    ) -> None:
        """See `open_dataset`."""
        self.teacher = None if teacher is None else open_teacher(teacher, root, dataset=content)
        self.root, self.content, self.family, self.splits = root, content, family, splits
        self.span_names: tuple[str, ...] = content.span_names
        self._tokenizer = tokenizer
        self._parts: list[_Part] = []
        first = 0
        for split, shard in content.filled():
            if split in splits:
                arrays = open_arrays(root, split, shard, content.arrays)
                rows = rows_file(root, split, shard).absolute()  # a pickled document reads it elsewhere
                self._parts.append(_Part(split=split, shard=shard, first=first, arrays=arrays, rows=rows))
                first += arrays.sequences
        self._length = first
        self._group: tuple[Path, int, list[dict[str, Any]]] | None = None

    def __repr__(self) -> str:
        return f"<Dataset {self.content.family} at {self.root}: {len(self):,} documents of {', '.join(self.splits)}>"

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Document: ...

    @overload
    def __getitem__(self, index: "slice | Sequence[int] | npt.NDArray[Any]") -> list[Document]: ...

    def __getitem__(self, index: "int | slice | Sequence[int] | npt.NDArray[Any]") -> Document | list[Document]:
        """Document `index` of all opened splits, from 0; negative indices count from the end. A slice or several
        indices return a list.

        Raises IndexError if there is no such document.
        """
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        if isinstance(index, Sequence | np.ndarray):
            return [self[operator.index(at)] for at in index]
        index = operator.index(index)
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(f"document {index} of {self._length}")
        firsts = [part.first for part in self._parts]
        part = self._parts[int(np.searchsorted(firsts, at, side="right")) - 1]
        sequence = at - part.first
        lengths = part.arrays.lengths(sequence, 1)
        (document,) = self._documents(part, sequence, lengths, part.arrays.read(sequence, lengths), None)
        return document

    def __iter__(self) -> Iterator[Document]:
        for part in self._parts:
            batches = row_batches(part.rows, self._schema)
            rows: list[dict[str, Any]] = []
            for first, lengths, arrays in part.arrays.batches(_TOKENS_AT_ONCE):
                while len(rows) < lengths.size and (batch := next(batches, None)) is not None:
                    rows += batch.to_pylist()
                yield from self._documents(part, first, lengths, arrays, rows[: lengths.size])
                rows = rows[lengths.size :]

    def __contains__(self, id: object) -> bool:
        """Whether a document has this id. Reads no tokens; the first call reads the ids of all documents."""
        if not isinstance(id, str) or self.family.ID_COLUMN is None:
            return False
        try:
            self.by_id(id)
        except KeyError:
            return False
        return True

    def __reduce__(self) -> Any:
        place = Path(os.path.abspath(self.root))  # noqa: PTH100 - without a look at links
        tokenizer = None if self._tokenizer is None else self._tokenizer.absolute()
        teacher = None if self.teacher is None else self.teacher.folder.absolute()
        return _opened_again, (place, self.content, self.splits, tokenizer, teacher)

    def to_arrow(self) -> Any:
        """All opened splits as a `pyarrow.Table` in memory: the columns of `export --to parquet`, and `split`."""
        form = export_form("parquet", self.content, self.family.export_columns(self.content))
        batches = [
            exported_batch(form.schema, each.lengths, each.arrays, **each.said).append_column(
                "split", pa.array([part.split] * each.lengths.size, pa.string())
            )
            for part in self._parts
            for each in document_batches(self.root, self.content, form, part.split, part.shard, _TOKENS_AT_ONCE)
        ]
        return pa.Table.from_batches(batches, schema=form.schema.append(pa.field("split", pa.string())))

    def to_pandas(self) -> Any:
        """`to_arrow()` as a `pandas.DataFrame`. Raises DatasetError without pandas."""
        if importlib.util.find_spec("pandas") is None:
            raise DatasetError("to_pandas needs pandas", remedy="pip install pandas")
        return self.to_arrow().to_pandas()

    def page_of(self, place: str) -> str:
        """The page of `spanloom inspect --html` of one document, such as `train/0/17`."""
        shown = pick_documents(self.root, self.content, self.family, Selection(addresses=(place,)), self.vocabulary)
        if self.teacher is not None:
            shown = [with_scores(each, self.teacher, self.vocabulary) for each in shown]
        return documents_page(self.root.name, shown, sequences=len(self), shown=Shown())

    def by_id(self, id: str) -> Document:
        """The first document with this id. Raises KeyError if there is none, DatasetError if documents have no ids.

        The first call reads the ids of all documents.
        """
        column = self.family.ID_COLUMN
        if column is None:
            raise DatasetError("the documents of this dataset have no ids", where=str(self.root))
        hashes, order = self._ids
        wanted = hash(id)
        for at in range(int(np.searchsorted(hashes, wanted)), hashes.size):
            if hashes[at] != wanted:
                break
            if (document := self[int(order[at])]).id == id:
                return document
        raise KeyError(id)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Token → bytes, or the name of a special token. Raises SpanloomError if the tokenizer is not found."""
        return self.family.load_vocabulary(self.content, tokenizer_at(self.root, self._tokenizer))

    @cached_property
    def counts(self) -> frozenset[str]:
        """Columns of the row table that hold only counts."""
        return frozenset({"sequence", "tokens", *(f"{name}_tokens" for name in self.span_names)})

    @cached_property
    def _schema(self) -> Any:
        return rows_schema(self.family.row_schema(self.content), self.span_names)

    @cached_property
    def _ids(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sorted hashes of all ids, and the document of each; equal hashes are in the order of the documents."""
        column = self.family.ID_COLUMN
        wanted = self._schema.empty_table().select([column]).schema
        hashes = np.fromiter(
            (
                hash(name)
                for part in self._parts
                for batch in row_batches(part.rows, wanted)
                for name in batch.column(0).to_pylist()
            ),
            dtype=np.int64,
            count=self._length,
        )
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def _documents(
        self,
        part: _Part,
        first: int,
        lengths: Lengths,
        arrays: Mapping[str, npt.NDArray[Any]],
        rows: list[dict[str, Any]] | None,
    ) -> Iterator[Document]:
        mask = shift_to_tokens(arrays["lossmask"], lengths)
        spans = shift_to_tokens(arrays["span"], lengths) if "span" in arrays else mask
        ends = np.cumsum(lengths, dtype=np.int64).tolist()
        for at, (start, stop) in enumerate(pairwise([0, *ends])):
            yield Document(
                split=part.split,
                shard=part.shard,
                sequence=first + at,
                tokens=arrays["tokens"][start:stop],
                loss_mask=mask[start:stop].astype(np.bool_),
                span_ids=spans[start:stop],
                span_names=self.span_names,
                _row=partial(self._row, part, first + at) if rows is None else rows[at].copy,
                _dataset=self,
            )

    def _row(self, part: _Part, sequence: int) -> Row:
        """One row of the row table. Its row group is cached, since the next row is often in the same group."""
        with pq.ParquetFile(part.rows, pre_buffer=False) as file:
            first = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if sequence < first + count:
                    if self._group is None or self._group[:2] != (part.rows, group):
                        names = [name for name in self._schema.names if name in file.schema_arrow.names]
                        self._group = part.rows, group, file.read_row_group(group, columns=names).to_pylist()
                    return self._group[2][sequence - first]
                first += count
        raise DatasetError(f"rows.parquet ends before document {sequence}", where=str(part.rows))


def _opened_again(
    root: Path, content: Content, splits: tuple[str, ...], tokenizer: Path | None, teacher: Path | None
) -> Dataset:
    """What `pickle` calls."""
    return Dataset(root, content, dataset_family(content.family), splits, tokenizer, teacher)


def open_dataset(
    root: str | os.PathLike[str],
    split: str | None = None,
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    teacher: str | os.PathLike[str] | None = None,
    allow_harmful: bool = False,
) -> Dataset:
    """Opens the finished dataset at `root`, a folder or an `hf://` place, which is downloaded to the cache once.
    All families but chess, which has arrays and no documents.

    split          "train", or "valid", also called "validation"; None: all splits, one after the other
    tokenizer      for `text`, if the dataset does not contain its tokenizer: the asset of gpt-oss is searched in the
                   usual places, packed chat needs the file that it was packed with
    teacher        folder with the signals of a teacher: documents have `teacher_ids` and more
    allow_harmful  also opens a dataset whose documents a model must not learn

    Files are not checked here; use `spanloom.validate`. Raises DatasetError or ManifestError.
    """
    check_given_places({"root": root, "tokenizer": tokenizer})
    place = os.fspath(root)
    if is_hub(place):
        place = os.fspath(local_copy(place))
    elif is_uri(place):
        raise DatasetError(
            "this reads a folder on this machine", where=place, remedy=f"bring it first: spanloom fetch {place} DIR"
        )
    if kind := data_folder(place):
        raise DatasetError(kind.WHAT, where=place, remedy="spanloom.families.chess.loader reads games of chess")
    content = read_content(Path(place), allow_harmful=allow_harmful)
    splits = tuple(content.totals.splits)
    split = next((name for name in splits if hub_split(name) == split), split)
    if split is not None and split not in splits:
        raise DatasetError(f"there is no split {split!r}", where=place, remedy=f"one of {', '.join(splits)}")
    return Dataset(
        Path(place),
        content,
        dataset_family(content.family),
        splits if split is None else (split,),
        None if tokenizer is None else Path(tokenizer),
        None if teacher is None else Path(teacher),
    )
