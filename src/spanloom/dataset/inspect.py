"""Selects documents of a dataset and prepares them for display.

In: a dataset root, a selection of documents, the tokenizer asset. Out: `ShownDocument`s. The row tables are streamed:
only selected documents are held in memory.
"""

import codecs
import heapq
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.document import ShownDocument, ShownToken
from spanloom.dataset.family import DatasetFamily, Vocabulary
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import open_arrays, rows_file
from spanloom.dataset.rows.table import row_batches, rows_schema
from spanloom.errors import SpanloomError
from spanloom.megatron.reader import ShardReader
from spanloom.supervision import shift_to_tokens

Pick = Literal["first", "random", "longest", "shortest"]

SPECIAL_TEXT = re.compile(rb"<\|[A-Za-z0-9_]+\|>")
"""Ordinary text that looks like a special token: content that quotes the format, or tries to inject tokens."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which documents: those with `addresses` (`train/00/17`) and `ids`; without both, up to `count` of those that pass
    the filters, chosen by `pick`.

    `groups`: column → required value, such as `{"language": "de"}`.
    """

    addresses: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    pick: Pick = "first"
    count: int = 1
    seed: int = 0
    split: str | None = None
    shard: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    without: str | None = None
    """Name of a trained span that the document must not have, such as `analysis` or `assistant`."""
    special_text: bool = False


@dataclass(frozen=True, order=True)
class _Place:
    """One document; a lower `rank` is picked earlier."""

    rank: tuple[float, ...]
    split: str = field(compare=False)
    shard: int = field(compare=False)
    sequence: int = field(compare=False)
    row: dict[str, Any] = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class _Dataset:
    """The inspected dataset."""

    root: Path
    content: Content
    family: DatasetFamily
    vocabulary: Vocabulary


def pick_documents(
    root: Path, content: Content, family: DatasetFamily, selection: Selection, vocabulary: Vocabulary
) -> list[ShownDocument]:
    """The selected documents, in the requested order or by rank; an empty list if none passes the filters.

    Raises SpanloomError for an invalid or missing address, a missing id, or an unknown split, span or column.
    """
    dataset = _Dataset(root=root, content=content, family=family, vocabulary=vocabulary)
    if selection.addresses or selection.ids:
        places = [*_by_address(dataset, selection.addresses), *_by_id(dataset, selection.ids)]
    else:
        places = _by_rank(dataset, selection)
    return [_document(dataset, place) for place in places]


def _rows(dataset: _Dataset, split: str, shard: int) -> Iterator[pa.RecordBatch]:
    """The whole row table of a split of one shard."""
    schema = rows_schema(dataset.family.row_schema(dataset.content), dataset.content.span_names)
    return row_batches(rows_file(dataset.root, split, shard), schema)


def _by_address(dataset: _Dataset, addresses: tuple[str, ...]) -> Iterator[_Place]:
    root, content = dataset.root, dataset.content
    for address in addresses:
        match = re.fullmatch(r"([a-z]+)/(\d+)/(\d+)", address)
        if not match or match[1] not in content.totals.splits:
            splits = " or ".join(content.totals.splits)
            raise SpanloomError(
                f"{address!r} is not the address of a document",
                remedy=f"give SPLIT/SHARD/SEQUENCE, such as train/0/17; SPLIT is {splits}",
            )
        split, shard, sequence = match[1], int(match[2]), int(match[3])
        counts = next((entry.splits[split] for entry in content.shards if entry.shard == shard), None)
        if counts is None or sequence >= counts.sequences:
            extent = f"{counts.sequences:,} documents" if counts else "no such shard"
            raise SpanloomError(f"there is no document {address}: {extent}", where=str(root))
        for batch in _rows(dataset, split, shard):
            first = batch.column("sequence")[0].as_py()
            if first <= sequence < first + batch.num_rows:
                (row,) = batch.slice(sequence - first, 1).to_pylist()
                yield _Place((), split, shard, sequence, row)


def _by_id(dataset: _Dataset, ids: tuple[str, ...]) -> list[_Place]:
    if not ids:
        return []
    import pyarrow.compute as pc  # here, since a preview of `convert` does without it

    root, column = dataset.root, dataset.family.ID_COLUMN
    if column is None:
        raise SpanloomError("the documents of this dataset have no id to choose by", where=str(root))
    first_cuts = {f"{name}#0": name for name in ids}  # ids of a conversation that was cut into several documents
    places: dict[str, list[_Place]] = {name: [] for name in (*first_cuts, *ids)}
    wanted = pa.array(places, pa.string())
    for split, shard in _shards(dataset.content, None, None):
        for batch in _rows(dataset, split, shard):
            _require_column(batch, column, root)
            for row in batch.filter(pc.is_in(batch.column(column), value_set=wanted)).to_pylist():
                places[row[column]].append(_Place((), split, shard, row["sequence"], row))
    for cut, name in first_cuts.items():
        if not places[name]:
            remedy = f"each run of a conversation is a document: {cut} is the first" if places[cut] else ""
            raise SpanloomError(f"no document has the id {name!r}", where=str(root), remedy=remedy)
    return [place for name in dict.fromkeys(ids) for place in places[name]]


def _by_rank(dataset: _Dataset, selection: Selection) -> list[_Place]:
    content = dataset.content
    if selection.without is not None and selection.without not in content.span_names:
        raise SpanloomError(f"there is no span {selection.without!r}", remedy=f"one of {list(content.span_names)}")
    if selection.split is not None and selection.split not in content.totals.splits:
        raise SpanloomError(
            f"there is no split {selection.split!r}", remedy=f"one of {', '.join(content.totals.splits)}"
        )
    places = _ranked(dataset, selection)
    if selection.pick == "first":  # documents arrive in rank order: stop reading after `count`
        return [place for place, _ in zip(places, range(selection.count), strict=False)]
    return heapq.nsmallest(selection.count, places)


def _ranked(dataset: _Dataset, selection: Selection) -> Iterator[_Place]:
    """Every document that passes the filters, with its rank; of equal ranks, the first in the dataset wins."""
    root, content = dataset.root, dataset.content
    for order, (split, shard) in enumerate(_shards(content, selection.split, selection.shard)):
        random = np.random.default_rng([selection.seed, order])
        reader = open_arrays(root, split, shard, content.arrays) if selection.special_text else None
        for batch in _rows(dataset, split, shard):
            draws = random.random(batch.num_rows)  # before the filters, so that a filter does not change the draws
            tokens = batch.column("tokens").to_numpy()
            ranks = {"first": np.zeros(batch.num_rows), "random": draws, "longest": -tokens, "shortest": tokens}
            rank = ranks[selection.pick].astype(np.float64)
            kept = np.flatnonzero(_filter(batch, selection, root))
            if reader is None:  # at most `count` of a batch can be among the first `count` of all
                kept = kept[np.argsort(rank[kept], kind="stable")[: selection.count]]
            for at in kept.tolist():
                (row,) = batch.slice(at, 1).to_pylist()
                if reader is None or _has_special_text(reader, row["sequence"], dataset.vocabulary):
                    yield _Place((float(rank[at]), order, row["sequence"]), split, shard, row["sequence"], row)


def _filter(batch: pa.RecordBatch, selection: Selection, root: Path) -> npt.NDArray[np.bool_]:
    import pyarrow.compute as pc

    keep = np.ones(batch.num_rows, dtype=np.bool_)
    for name, wanted in selection.groups.items():
        _require_column(batch, name, root)
        keep &= np.array(pc.fill_null(pc.equal(batch.column(name), wanted), False))
    if selection.without is not None:
        keep &= batch.column(f"{selection.without}_tokens").to_numpy() == 0
    return keep


def _require_column(batch: pa.RecordBatch, name: str, root: Path) -> None:
    if name not in batch.schema.names:
        raise SpanloomError(f"the documents of this dataset have no {name} to choose by", where=str(root))


def _has_special_text(reader: ShardReader, sequence: int, vocabulary: Vocabulary) -> bool:
    tokens = reader.read(sequence, reader.lengths(sequence, 1))["tokens"].tolist()
    return SPECIAL_TEXT.search(b"".join(vocabulary.piece(token) or b"\0" for token in tokens)) is not None


def _shards(content: Content, split: str | None, shard: int | None) -> Iterator[tuple[str, int]]:
    for name in content.totals.splits:
        for entry in content.shards:
            if (
                split in (None, name)
                and shard in (None, entry.shard)
                and name in entry.splits
                and entry.splits[name].sequences
            ):
                yield name, entry.shard


def _document(dataset: _Dataset, place: _Place) -> ShownDocument:
    content, family, row = dataset.content, dataset.family, place.row
    reader = open_arrays(dataset.root, place.split, place.shard, content.arrays)
    lengths = reader.lengths(place.sequence, 1)
    arrays = reader.read(place.sequence, lengths)
    spans = arrays.get("span", arrays["lossmask"])  # with only one trained span, the loss mask is its span id
    tokens = shown_tokens(
        arrays["tokens"].tolist(),
        shift_to_tokens(spans, lengths).tolist(),
        shift_to_tokens(arrays["lossmask"], lengths).tolist(),
        list(zip(arrays["lossmask"].tolist(), spans.tolist(), strict=True)),
        dataset.vocabulary,
        header=family.header_tokens(content),
    )
    return ShownDocument(
        split=place.split,
        shard=place.shard,
        sequence=place.sequence,
        row=row.get("row"),
        id=None if family.ID_COLUMN is None else row.get(family.ID_COLUMN),
        groups={column: row.get(column) for column in family.GROUP_COLUMNS},
        span_names=content.span_names,
        notes=tuple(family.document_notes(row)),
        tokens=tuple(tokens),
        messages=tuple(family.cut_messages(content, tokens, row)),
    )


def shown_tokens(
    ids: list[int],
    spans: list[int],
    trained: list[int],
    disk: list[tuple[int, int]],
    vocabulary: Vocabulary,
    *,
    header: tuple[int, int] | None = None,
) -> list[ShownToken]:
    """The text of each token, decoded byte by byte: a character made of several tokens is at the token that completes
    it. `header`: the tokens that open and close a message's header, if the format has such tokens.

    `☃` is e2 98 83: tokens [e2 98] [83]  →  texts "" and "☃", both partial. Bytes that never become a character are
    kept by Python's surrogateescape, for display by `spanloom.text.visible`.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    opens, closes = header or (None, None)
    shown: list[ShownToken] = []
    inside = False
    for at, token in enumerate(ids):
        special = vocabulary.is_special(token)
        piece = vocabulary.piece(token)
        before = decoder.getstate()[0]
        breaks = special or at + 1 == len(ids) or vocabulary.is_special(ids[at + 1])
        text = vocabulary.name(token) if special else decoder.decode(piece, final=breaks)
        after = decoder.getstate()[0]
        stray = any("\udc80" <= character <= "\udcff" for character in text)
        inside = inside or token == opens
        shown.append(
            ShownToken(
                id=token,
                text=text,
                piece=piece,
                special=special,
                header=inside,
                partial=bool(before or after or stray),
                span=spans[at],
                trained=bool(trained[at]),
                disk=disk[at],
            )
        )
        inside = inside and token != closes
    return shown
