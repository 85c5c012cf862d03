"""Documents of a dataset picked and made ready to look at.

In: a dataset root, which documents, the tokenizer asset. Out: `ShownDocument`s. Streams: what is held are the documents
that were picked, however long the files are.
"""

import codecs
import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spanloom.errors import ArtifactError, SpanloomError
from spanloom.harmony import tokenizer
from spanloom.megatron.reader import ShardReader, open_shard_reader
from spanloom.o200k.asset import ASSET_SHA256
from spanloom.o200k.vocabulary import Vocabulary
from spanloom.report.conversation import ShownDocument, ShownMessage, ShownToken
from spanloom.supervision import shift_to_tokens

Pick = Literal["first", "random", "longest", "shortest"]

SPECIAL_TEXT = re.compile(rb"<\|[a-z0-9_]+\|>")
"""What looks like a special token but is ordinary text: content that quotes the format, or tries to break out of it."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which documents: `addresses` (`train/00/17`) and `synth_ids`, else by `pick` up to `count` of those that pass."""

    addresses: tuple[str, ...] = ()
    synth_ids: tuple[str, ...] = ()
    pick: Pick = "first"
    count: int = 1
    seed: int = 0
    split: str | None = None
    shard: int | None = None
    language: str | None = None
    exercise: str | None = None
    without: str | None = None
    """Name of a trained span that the document must not have, such as `analysis`."""
    special_text: bool = False


@dataclass(frozen=True, order=True)
class _Place:
    """One document; ordered by how early it is picked."""

    rank: tuple[float, ...]
    split: str = field(compare=False)
    shard: int = field(compare=False)
    sequence: int = field(compare=False)
    row: dict[str, Any] = field(compare=False)


def pick_documents(
    root: Path, content: dict[str, Any], selection: Selection, vocabulary: Vocabulary
) -> list[ShownDocument]:
    """The documents that are selected, in the order in which they were asked for or rank.

    Raises SpanloomError when an address is none or an id is not there; an empty list when nothing passes the filters.
    """
    if content["tokenizer"]["sha256"] != ASSET_SHA256:
        raise SpanloomError(
            f"the dataset's tokens are of another tokenizer ({content['tokenizer']['name']})", where=str(root)
        )
    if selection.addresses or selection.synth_ids:
        places = [*_by_address(root, content, selection.addresses), *_by_id(root, content, selection.synth_ids)]
    else:
        places = _by_rank(root, content, selection, vocabulary)
    return [_document(root, content, place, vocabulary) for place in places]


def _by_address(root: Path, content: dict[str, Any], addresses: tuple[str, ...]) -> Iterator[_Place]:
    for address in addresses:
        found = re.fullmatch(r"([a-z]+)/(\d+)/(\d+)", address)
        if not found or found[1] not in content["totals"]["splits"]:
            splits = " or ".join(content["totals"]["splits"])
            raise SpanloomError(
                f"{address!r} is no document",
                remedy=f"give SPLIT/SHARD/SEQUENCE, such as train/0/17; SPLIT is {splits}",
            )
        split, shard, sequence = found[1], int(found[2]), int(found[3])
        counts = next((one["splits"][split] for one in content["shards"] if one["shard"] == shard), None)
        if counts is None or sequence >= counts["sequences"]:
            there = f"{counts['sequences']:,} documents" if counts else "no such shard"
            raise SpanloomError(f"there is no document {address}: {there}", where=str(root))
        for batch in _rows(root, split, shard):
            first = batch.column("sequence")[0].as_py()
            if first <= sequence < first + batch.num_rows:
                (row,) = batch.slice(sequence - first, 1).to_pylist()
                yield _Place((), split, shard, sequence, row)


def _by_id(root: Path, content: dict[str, Any], synth_ids: tuple[str, ...]) -> list[_Place]:
    if not synth_ids:
        return []
    found: dict[str, list[_Place]] = {synth_id: [] for synth_id in synth_ids}
    wanted = pa.array(synth_ids, pa.string())
    for split, shard in _shards(content, None, None):
        for batch in _rows(root, split, shard):
            for row in batch.filter(pc.is_in(batch.column("synth_id"), value_set=wanted)).to_pylist():
                found[row["synth_id"]].append(_Place((), split, shard, row["sequence"], row))
    for synth_id, places in found.items():
        if not places:
            raise SpanloomError(f"no document has the id {synth_id!r}", where=str(root))
    return [place for places in found.values() for place in places]


def _by_rank(root: Path, content: dict[str, Any], selection: Selection, vocabulary: Vocabulary) -> list[_Place]:
    if selection.without is not None and selection.without not in content["span_names"]:
        raise SpanloomError(f"there is no span {selection.without!r}", remedy=f"one of {content['span_names']}")
    if selection.split is not None and selection.split not in content["totals"]["splits"]:
        raise SpanloomError(
            f"there is no split {selection.split!r}", remedy=f"one of {', '.join(content['totals']['splits'])}"
        )
    places = _ranked(root, content, selection, vocabulary)
    if selection.pick == "first":  # the rank is the order in which they come: no need to read on
        return [place for place, _ in zip(places, range(selection.count), strict=False)]
    return heapq.nsmallest(selection.count, places)


def _ranked(root: Path, content: dict[str, Any], selection: Selection, vocabulary: Vocabulary) -> Iterator[_Place]:
    """Every document that passes the filters, with its rank; ties go to the one that stands first."""
    for order, (split, shard) in enumerate(_shards(content, selection.split, selection.shard)):
        random = np.random.default_rng([selection.seed, order])
        reader = open_shard_reader(root, split, shard, content["arrays"]) if selection.special_text else None
        for batch in _rows(root, split, shard):
            draws = random.random(batch.num_rows)  # drawn before the filters: a filter does not change the lots
            tokens = batch.column("tokens").to_numpy()
            ranks = {"first": np.zeros(batch.num_rows), "random": draws, "longest": -tokens, "shortest": tokens}
            rank = ranks[selection.pick].astype(np.float64)
            kept = np.flatnonzero(_filter(batch, selection))
            if reader is None:  # no more of a batch than are wanted in all: the rest cannot be among the first
                kept = kept[np.argsort(rank[kept], kind="stable")[: selection.count]]
            for at in kept.tolist():
                (row,) = batch.slice(at, 1).to_pylist()
                if reader is None or _has_special_text(reader, row["sequence"], vocabulary):
                    yield _Place((float(rank[at]), order, row["sequence"]), split, shard, row["sequence"], row)


def _filter(batch: pa.RecordBatch, selection: Selection) -> npt.NDArray[np.bool_]:
    keep = np.ones(batch.num_rows, dtype=np.bool_)
    for name in ("language", "exercise"):
        if (wanted := getattr(selection, name)) is not None:
            keep &= np.array(pc.fill_null(pc.equal(batch.column(name), wanted), False))
    if selection.without is not None:
        keep &= batch.column(f"{selection.without}_tokens").to_numpy() == 0
    return keep


def _has_special_text(reader: ShardReader, sequence: int, vocabulary: Vocabulary) -> bool:
    tokens = reader.read(sequence, reader.lengths(sequence, 1))["tokens"].tolist()
    return SPECIAL_TEXT.search(b"".join(vocabulary.piece(token) or b"\0" for token in tokens)) is not None


def _shards(content: dict[str, Any], split: str | None, shard: int | None) -> Iterator[tuple[str, int]]:
    for name in content["totals"]["splits"]:
        for one in content["shards"]:
            if (
                split in (None, name)
                and shard in (None, one["shard"])
                and name in one["splits"]
                and one["splits"][name]["sequences"]
            ):
                yield name, one["shard"]


def _rows(root: Path, split: str, shard: int) -> Iterator[pa.RecordBatch]:
    path = root / split / f"shard_{shard:02d}_rows.parquet"
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=8192, use_threads=False)
    except (OSError, pa.ArrowException) as fault:
        raise ArtifactError(f"the rows of this shard cannot be read: {fault}", where=str(path)) from None


def _document(root: Path, content: dict[str, Any], place: _Place, vocabulary: Vocabulary) -> ShownDocument:
    reader = open_shard_reader(root, place.split, place.shard, content["arrays"])
    lengths = reader.lengths(place.sequence, 1)
    arrays = reader.read(place.sequence, lengths)
    tokens = shown_tokens(
        arrays["tokens"].tolist(),
        shift_to_tokens(arrays["span"], lengths).tolist(),
        shift_to_tokens(arrays["lossmask"], lengths).tolist(),
        list(zip(arrays["lossmask"].tolist(), arrays["span"].tolist(), strict=True)),
        vocabulary,
    )
    row = place.row
    return ShownDocument(
        split=place.split,
        shard=place.shard,
        sequence=place.sequence,
        row=row["row"],
        synth_id=row["synth_id"],
        language=row.get("language"),
        exercise=row.get("exercise"),
        span_names=tuple(content["span_names"]),
        tokens=tuple(tokens),
        messages=tuple(messages_of(tokens)),
    )


def shown_tokens(
    ids: list[int], spans: list[int], trained: list[int], disk: list[tuple[int, int]], vocabulary: Vocabulary
) -> list[ShownToken]:
    """Text for each token, byte by byte: a character that several tokens make up stands at the one that completes it.

    `☃` is e2 98 83: tokens [e2 98] [83]  →  texts "" and "☃", both partial. Bytes that never become a character are
    kept as Python's surrogateescape has them, for `report.text.visible` to show.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    shown: list[ShownToken] = []
    header = False
    for at, token in enumerate(ids):
        special = vocabulary.is_special(token)
        piece = vocabulary.piece(token)
        before = decoder.getstate()[0]
        breaks = special or at + 1 == len(ids) or vocabulary.is_special(ids[at + 1])
        text = vocabulary.name(token) if special else decoder.decode(piece, final=breaks)
        after = decoder.getstate()[0]
        stray = any("\udc80" <= character <= "\udcff" for character in text)
        header = header or token == tokenizer.START
        shown.append(
            ShownToken(
                id=token,
                text=text,
                piece=piece,
                special=special,
                header=header,
                partial=bool(before or after or stray),
                span=spans[at],
                trained=bool(trained[at]),
                disk=disk[at],
            )
        )
        header = header and token != tokenizer.MESSAGE
    return shown


def messages_of(tokens: list[ShownToken]) -> Iterator[ShownMessage]:
    """Cuts a document at every `<|start|>`, and before its closing EOD."""
    cuts = [at for at, token in enumerate(tokens) if token.id == tokenizer.START]
    closing = [len(tokens) - 1] if tokens and tokens[-1].id == tokenizer.EOD else []
    edges = sorted({0, *cuts, *closing, len(tokens)})
    for first, last in pairwise(edges):
        role, _, channel = "".join(
            "\0" if token.id == tokenizer.CHANNEL else "" if token.special else token.text
            for token in tokens[first:last]
            if token.header
        ).partition("\0")
        # The last token stands for its message: only a document's very first token can differ from the rest of its own.
        yield ShownMessage(
            first=first,
            last=last,
            role=role.strip(),
            channel=channel.strip(),
            span=tokens[last - 1].span,
            trained=tokens[last - 1].trained,
        )
