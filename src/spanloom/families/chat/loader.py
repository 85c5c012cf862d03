"""Blocks for torch, packed on the fly from transcripts.

In: transcripts (texts, or token lists that end in EOS), in the same order for each pass. Out: samples and batches, see
`samples`; `block_dataset` gives the same from a finished dataset.

Record i of the pass goes to shard i mod T, T = ranks · workers, and each shard packs its records alone. Records are
shuffled before they are distributed, so the order of a pass depends on seed and epoch, not on T. A pass is finite.

    records  0 1 2 3 4 5 6    T = 2    shard 0  0 2 4 6    shard 1  1 3 5

Shards, and so ranks, have unequal numbers of blocks: docs/families/chat.md explains how to handle this.
"""

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from spanloom.errors import ChatError, DatasetError
from spanloom.families.chat import defaults
from spanloom.families.chat.blocks.markers import Markers
from spanloom.families.chat.blocks.stream import as_stream
from spanloom.families.chat.packing import Blocks, Packer, PackingCounts
from spanloom.families.chat.samples import Sample, collate, fields
from spanloom.families.chat.tokenizer import ChatTokenizer
from spanloom.families.chat.transcripts.files import OnError, Records, read_records, transcript_files
from spanloom.text import is_utf8
from spanloom.training.runs.passes import Begin, PassLoader, Progress, ShardedDataset, ShardPlace

Record = str | Sequence[int] | npt.NDArray[Any]
_RECORDS = 256
"""Records in one call of the tokenizer."""

_FIX = 'fix it, or give on_error="skip" to leave such records out'
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class ShardCounts:
    """A pass over one shard: its `records`, how many of them were `left_out`, and the packing counts of the rest."""

    records: int
    left_out: int
    packing: PackingCounts


@dataclass(frozen=True, kw_only=True)
class _Packed:
    """The blocks that a batch of records completed and that are not yielded yet, the position before, the counts after.

    A position has, beside `shard`: `records` of the shard before the batch that completed the block, the `packer`'s
    state before it, and how many `blocks` of that batch were yielded.
    """

    blocks: Blocks
    place: ShardPlace
    counts: ShardCounts


@dataclass(frozen=True, kw_only=True)
class TranscriptFiles:
    """The transcripts of a file or folder, read again at each pass. With `on_error="skip"`, None for an unreadable one.

    `records` and `closed`: see `read_records`. Raises RecordError, naming file and line or row, unless it skips.
    """

    source: Path
    on_error: OnError = "raise"
    records: Records = defaults.RECORDS
    closed: bool = False

    def __iter__(self) -> Iterator[str | None]:
        number = 0
        for file in transcript_files(self.source):
            for text in read_records(
                file, on_error=self.on_error, first=number, records=self.records, closed=self.closed
            ):
                number += 1
                yield text


class PackedChatDataset(ShardedDataset):
    """One pass over the blocks of this rank's shards.

    `records`     files of transcripts, or an iterable of texts that can be iterated again for each pass; token lists
                  if `markers` are given instead of a tokenizer
    `shuffle`     size of the shuffle buffer in records; 0 keeps their order
    `rank`, `world_size`   default: those of torch.distributed, so make the dataset after the process group
    `on_error`    "raise" refuses a record that is not text, with its number; "skip" leaves it out and counts it
    The other options are those of `Packer`, and the optional keys of a sample.

    `state_dict()` is the position after the last sample that this object yielded; after `load_state_dict()` the next
    pass resumes there. This is the protocol of torchdata's StatefulDataLoader, for each worker. With torch's own
    DataLoader use `PackedChatLoader`. To resume, the records before the position are read again, but not tokenised.
    """

    def __init__(
        self,
        records: Path | Iterable[Record | None],
        *,
        block_size: int,
        post_training: bool,
        tokenizer: ChatTokenizer | None = None,
        markers: Markers | None = None,
        strict_user: bool = True,
        pad_tail: int | None = None,
        keep_lossless: bool = True,
        shuffle: int = 0,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        position_ids: bool = False,
        cu_seqlens: bool = False,
        on_error: OnError = "raise",
    ) -> None:
        markers = markers if tokenizer is None else tokenizer.markers
        if markers is None:
            raise ChatError("neither a tokenizer nor markers were given")
        if isinstance(records, str | Iterator):
            raise ChatError(
                f"records are {type(records).__name__}",
                remedy="give a Path, or what can be iterated again for each pass and by each worker",
            )
        if on_error not in ("raise", "skip"):
            raise ChatError(f'on_error is {on_error!r}: say "raise" or "skip"')
        if isinstance(records, Path):
            records = TranscriptFiles(source=records, on_error=on_error, closed=post_training)
        self.records = records
        self.tokenizer, self.markers = tokenizer, markers
        self.shuffle, self.seed = shuffle, seed
        self.position_ids, self.cu_seqlens, self.on_error = position_ids, cu_seqlens, on_error
        self.packing: dict[str, Any] = {
            "block_size": block_size,
            "post_training": post_training,
            "strict_user": strict_user,
            "pad_tail": pad_tail,
            "keep_lossless": keep_lossless,
        }
        self._packer()  # refuses invalid options here, before a worker does
        self.rank, self.world_size = _ranks(rank, world_size)
        order = {"shuffle": shuffle, "seed": seed, "on_error": on_error}
        decides = {**self.packing, "markers": asdict(markers), **order}
        self.progress = Progress(decides, epoch=0, rank=self.rank, world_size=self.world_size)

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    def count(self, workers: int = 0) -> list[ShardCounts]:
        """Counts of a whole pass with this many workers, for each shard of this rank. Tokenises and packs all of it."""
        workers = max(1, workers)
        counts = []
        for shard in range(self.rank * workers, (self.rank + 1) * workers):
            for packed in self._packed(shard, self.world_size * workers, None):
                last = packed
            counts.append(last.counts)
        return counts

    def _packer(self) -> Packer:
        # Token lists may hold any int64; the ids of a tokenizer fit into int32.
        dtype = np.int64 if self.tokenizer is None else np.int32
        return Packer(markers=self.markers, dtype=dtype, **self.packing)

    def samples(self, begin: Begin) -> Iterator[Sample]:
        for packed in self._packed(begin.shard, begin.shards, begin.place):
            blocks, place = packed.blocks, packed.place
            made = fields(
                blocks.input_ids,
                blocks.loss_mask,
                eos=self.markers.eos,
                position_ids=self.position_ids,
                cu_seqlens=self.cu_seqlens,
            )
            for number in range(len(blocks)):
                self.progress.place = {**place, "blocks": place["blocks"] + number + 1}
                yield {name: torch.from_numpy(rows[number].copy()) for name, rows in made.items()}

    def _packed(self, shard: int, shards: int, begin: ShardPlace | None) -> Iterator[_Packed]:
        begin = {"records": 0, "packer": self._packer().state(), "blocks": 0, **(begin or {})}
        packer = Packer.from_state(begin["packer"])
        records, yielded, left_out = begin["records"], begin["blocks"], 0
        mine = islice(self._dealt(shard, shards), records, None)
        while True:
            batch = list(islice(mine, _RECORDS))
            place = {"shard": shard, "records": records, "packer": packer.state(), "blocks": yielded}
            if batch:
                good = [each for each in batch if self._is_record(*each)]
                blocks = packer.feed(self._tokens(good))
                records, left_out = records + len(batch), left_out + len(batch) - len(good)
            else:
                blocks = packer.finish()
            yield _Packed(
                blocks=blocks[yielded:],
                place=place,
                counts=ShardCounts(records=records, left_out=left_out, packing=packer.counts),
            )
            yielded = 0
            if not batch:
                return

    def _dealt(self, shard: int, shards: int) -> Iterator[tuple[int, Record | None]]:
        """The records of this shard in this pass, each with its number among all records."""
        numbered: Iterable[tuple[int, Record | None]] = enumerate(self.records)
        if self.shuffle:
            numbered = shuffled(numbered, held=self.shuffle, seed=self.seed, epoch=self.epoch)
        return islice(numbered, shard, None, shards)

    def _is_record(self, number: int, record: Any) -> bool:
        fault = _fault(record, is_text=self.tokenizer is not None)
        if fault and self.on_error == "raise":
            raise ChatError(f"the record {fault}", where=f"record {number}", remedy=_FIX)
        return not fault

    def _tokens(self, batch: list[tuple[int, Any]]) -> npt.NDArray[Any]:
        """The batch's tokens, concatenated."""
        if self.tokenizer is not None:
            tokens: npt.NDArray[Any] = self.tokenizer.encode([text for _, text in batch]).tokens
            return tokens
        return np.concatenate([np.empty(0, np.int64), *(_ids(number, record) for number, record in batch)])


class PackedChatLoader(PassLoader):
    """`PassLoader` over a `PackedChatDataset`; batches are `collate`'s."""

    def __init__(
        self, dataset: PackedChatDataset, *, batch_size: int, workers: int = 0, drop_last: bool = False, **options: Any
    ) -> None:
        if batch_size < 1:
            raise ChatError(f"batch_size is {batch_size}: give 1 or more")
        if options.get("persistent_workers"):
            raise ChatError("workers that outlive a pass would not learn where the next one begins")
        super().__init__(dataset, collate, batch_size=batch_size, workers=workers, drop_last=drop_last, **options)


def shuffled(values: Iterable[_T], *, held: int, seed: int, epoch: int) -> Iterator[_T]:
    """Each value once, drawn at random from a buffer of `held`; seed and epoch decide the order."""
    generator = random.Random(f"{seed} {epoch}")  # random() seeded with a string is the same in every version of Python
    waiting: list[_T] = []
    for value in values:
        if len(waiting) < held:
            waiting.append(value)
            continue
        drawn = int(generator.random() * held)
        yield waiting[drawn]
        waiting[drawn] = value
    while waiting:
        drawn = int(generator.random() * len(waiting))
        waiting[drawn], waiting[-1] = waiting[-1], waiting[drawn]
        yield waiting.pop()


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ChatError("rank and world_size go together: give both or neither")
    if rank is None or world_size is None:
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            # Each rank would train on all the data without any sign of it.
            raise DatasetError(
                f"this is one of {os.environ['WORLD_SIZE']} processes, and torch.distributed is not initialised yet",
                remedy="make the dataset after init_process_group, or give rank and world_size",
            )
        return 0, 1
    if not 0 <= rank < world_size:
        raise ChatError(f"there is no rank {rank} of {world_size}")
    return rank, world_size


def _fault(record: Any, *, is_text: bool) -> str:
    if is_text and isinstance(record, str):
        return "" if is_utf8(record) else "holds half a character (a lone surrogate)"
    if is_text or record is None or isinstance(record, str):
        return f"is {type(record).__name__}, not {'text' if is_text else 'a list of token ids'}"
    return ""


def _ids(number: int, record: Any) -> npt.NDArray[Any]:
    try:
        return as_stream(record, np.dtype(np.int64))
    except ChatError as fault:
        place = f"record {number}" + (f", {fault.where}" if fault.where else "")
        raise ChatError(fault.what, where=place, remedy=fault.remedy) from None
