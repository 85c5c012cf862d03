"""Megatron's GPTDataset with supervision: the same samples as the stock class draws, with aligned loss mask and span.

In: a blend of token prefixes and a `GPTDatasetConfig`, through `BlendedMegatronDatasetBuilder`. Out: upstream's
dictionary, `loss_mask` from the disk, and `span_id` if the dataset has spans.

Upstream still samples, shuffles, blends, cuts and caches: it requests the parts of a sample from the low-level dataset
and receives tokens. That dataset records which positions it returned, and then returns the lossmask and span of exactly
these positions. Supervision on disk is label-aligned (position t describes token t + 1), so position t of a sample has
the supervision of its label.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.object_storage_utils import is_object_storage_path
from megatron.core.datasets.utils import Split

from spanloom.dataset.manifest import Content
from spanloom.errors import UNREADABLE_NPY, DatasetError, SpanloomError
from spanloom.findings import Report
from spanloom.megatron.check import open_parallel
from spanloom.training.samples.document_weights import document_weights
from spanloom.training.samples.teacher import Missing, TeacherOfDocuments
from spanloom.training.shard import ARRAYS, Shard, check_tokenizer, open_shard

_NO_PAD = -1
"""Upstream replaces pad ids by 0, which would delete EOD if a tokenizer pads with EOD. Documents here have no pads."""


@dataclass(frozen=True, kw_only=True)
class DatasetTokenizer:
    """The tokenizer attributes that Megatron's dataset needs, read from a manifest."""

    name: str
    sha256: str
    vocab_size: int
    eod: int
    pad: int = _NO_PAD

    @property
    def unique_identifiers(self) -> dict[str, Any]:
        return asdict(self)


def dataset_tokenizer(content: Content) -> DatasetTokenizer:
    """The tokenizer of a dataset, from its manifest's `content`."""
    made = content.tokenizer
    return DatasetTokenizer(name=made.name, sha256=made.sha256, vocab_size=made.vocab_size, eod=made.eod)


class SupervisedShard:
    """The low-level dataset: tokens for upstream, and the supervision of the tokens that upstream read last.

    Positions come from the index of the tokens; the other arrays have the same lengths.
    """

    def __init__(
        self,
        shard: Shard,
        *,
        mmap: bool,
        weights: npt.NDArray[np.float64] | None = None,
        teacher: TeacherOfDocuments | None = None,
    ) -> None:
        """`weights`: one per document, float64 [documents]. `teacher`: the signals of the dataset."""
        self.shard, self._mmap, self._weights, self._teacher = shard, mmap, weights, teacher
        self.tokens = IndexedDataset(str(shard.prefixes["tokens"]), multimodal=False, mmap=mmap)
        self._arrays = {name: _reader(prefix, ARRAYS[name], mmap) for name, prefix in shard.prefixes.items()}
        self._pointers: npt.NDArray[np.int64] = self.tokens.index.sequence_pointers
        self._lengths = self.sequence_lengths
        self._taken = _Taken()

    def __reduce__(self) -> Any:
        return partial(SupervisedShard, mmap=self._mmap, weights=self._weights, teacher=self._teacher), (
            self.shard,
        )  # a worker process opens the files itself

    @property
    def path_prefix(self) -> str:
        return str(self.shard.prefixes["tokens"])

    @property
    def sequence_lengths(self) -> npt.NDArray[np.int32]:
        lengths: npt.NDArray[np.int32] = self.tokens.sequence_lengths
        return lengths

    @property
    def document_indices(self) -> npt.NDArray[np.int64]:
        documents: npt.NDArray[np.int64] = self.tokens.document_indices
        return documents

    def __len__(self) -> int:
        return len(self.tokens)

    def get(self, idx: int, offset: int = 0, length: int | None = None) -> npt.NDArray[np.int32]:
        """Tokens `offset` up to `offset + length`, or the end, of sequence `idx`; records the positions as taken."""
        begin = int(self._pointers[idx]) // ARRAYS["tokens"].itemsize + offset
        part = slice(begin, begin + (int(self._lengths[idx]) - offset if length is None else length))
        self._taken.parts.append(part)
        self._taken.documents.append(idx)
        return self._arrays["tokens"](part)

    def forget(self) -> None:
        """Forgets the positions taken so far; called at the start of a sample."""
        self._taken.parts.clear()
        self._taken.documents.clear()

    def wire(self, length: int) -> dict[str, npt.NDArray[np.float32]]:
        """`loss_mask` with the span of each trained label, float32, of the first `length` positions taken.

        A label is trained if and only if its span is not 0 (docs/format.md), so only the spans are read.
        """
        return {"loss_mask": self._read("span", np.float32, length)}

    def supervision(self, length: int) -> dict[str, npt.NDArray[Any]]:
        """`loss_mask` float32, and `span_id` int64 if there are spans, of the first `length` positions taken.

        If documents have weights, also `weight` float32: that of the position's document. The label is in the same
        document, except at the last position of a document, which is never trained.
        Positions count from the last `forget`; values beyond the last position are 0.
        """
        arrays = {"loss_mask": self._read("lossmask", np.float32, length)}
        if "span" in self._arrays:
            arrays["span_id"] = self._read("span", np.int64, length)
        if self._weights is not None:
            counts = [part.stop - part.start for part in self._taken.parts]
            weights = np.repeat(self._weights[self._taken.documents], counts).astype(np.float32)[:length]
            arrays["weight"] = np.pad(weights, (0, length - weights.size))
        return arrays

    def signals(self, length: int) -> dict[str, npt.NDArray[Any]]:
        """The teacher's, of the first `length` positions taken; see `spanloom.training.samples.teacher`. Empty without
        a teacher."""
        if self._teacher is None:
            return {}
        arrays, at = self._teacher.empty(length), 0
        for part, document in zip(self._taken.parts, self._taken.documents, strict=True):
            begin = int(self._pointers[document]) // ARRAYS["tokens"].itemsize
            whole = slice(begin, begin + int(self._lengths[document]))
            place = (self.shard.split, self.shard.number, document)
            spans = self._arrays["span"](whole) if "span" in self._arrays else None
            own = slice(part.start - begin, min(part.stop - begin, part.start - begin + length - at))
            self._teacher.put(arrays, at, place, self._arrays["lossmask"](whole), spans, own)
            at += part.stop - part.start
        return arrays

    def _read(self, name: str, dtype: npt.DTypeLike, length: int) -> npt.NDArray[Any]:
        values = np.concatenate([*map(self._arrays[name], self._taken.parts)], dtype=dtype)
        return values[:length] if values.size >= length else np.pad(values, (0, length - values.size))


class _Taken(threading.local):
    """Position ranges of the sample that a thread is reading, and the document of each range.

    Loaders may read in several threads.
    """

    def __init__(self) -> None:
        self.parts: list[slice] = []
        self.documents: list[int] = []


_Read = Callable[[slice], npt.NDArray[Any]]


def _reader(prefix: Path, dtype: np.dtype[Any], mmap: bool) -> _Read:
    """A function from a slice of positions to values; it uses Megatron's file reader if files are not mapped."""
    if mmap:
        # Megatron's mapped reader builds a new array at each call; a slice takes a quarter of the time.
        whole = np.asarray(np.memmap(prefix.with_name(prefix.name + ".bin"), dtype=dtype, mode="r"))
        return whole.__getitem__
    read = IndexedDataset(str(prefix), multimodal=False, mmap=False).bin_reader.read
    return lambda part: read(dtype.type, part.stop - part.start, part.start * dtype.itemsize)


class SpanGPTDataset(GPTDataset):  # type: ignore[misc]  # megatron-core has no types
    """`GPTDataset` whose samples carry supervision. `[S]` is the config's sequence_length.

        tokens     int64   [S]
        labels     int64   [S]  labels[t] = the token after tokens[t]
        loss_mask  float32 [S]  1 = the label is trained
        span_id    int64   [S]  of the label: 0 context, otherwise an index into `span_names`; only if there are spans
        weight     float32 [S]  of the label's document; only if `config.document_weights` is True
        teacher_…               only if `config.teacher` names a folder of signals: see `samples.teacher`
        …          upstream's other keys, as the config requests them

    A dataset of packed blocks is read block by block: `sequence_length` must be the block size and
    `add_extra_token_to_sequence` False. Otherwise samples would straddle blocks and begin in the middle of a block.
    Raises DatasetError or ManifestError, naming the file, before the first sample.
    """

    @staticmethod
    def build_low_level_dataset(dataset_path: str, config: GPTDatasetConfig) -> SupervisedShard:
        _check_config(dataset_path, config)
        # Not a field of upstream's config: users set `config.allow_harmful = True`.
        shard = open_shard(Path(dataset_path), allow_harmful=getattr(config, "allow_harmful", False))
        _check_blocks(dataset_path, config, shard.content.block_size)
        check_tokenizer(shard.content, config.tokenizer, Path(dataset_path))
        report = Report()
        open_parallel(
            report,
            {name: (prefix, ARRAYS[name]) for name, prefix in shard.prefixes.items()},
            split=shard.split,
            shard=shard.number,
        )
        if not report.clean:
            raise DatasetError(
                f"{', '.join(shard.prefixes)} are not parallel: {report.findings[0]}",
                where=dataset_path,
                remedy="build the dataset again; `spanloom validate ROOT` says all that is wrong",
            )
        # Another attribute of ours, for `spanloom.training.weights`: `config.document_weights = True`.
        weighted = getattr(config, "document_weights", False)
        weights = document_weights(Path(dataset_path).parent.parent, shard.split, shard.number) if weighted else None
        teacher = None
        if (folder := getattr(config, "teacher", None)) is not None:
            missing: Missing = getattr(config, "missing_teacher", None) or "error"
            teacher = TeacherOfDocuments(folder, Path(dataset_path).parent.parent, missing=missing)
        return SupervisedShard(shard, mmap=config.mmap_bin_files, weights=weights, teacher=teacher)

    @staticmethod
    def numel_low_level_dataset(low_level_dataset: SupervisedShard) -> int:
        return len(low_level_dataset)

    def __init__(
        self,
        indexed_dataset: SupervisedShard,
        dataset_path: str | None,
        indexed_indices: npt.NDArray[np.int32],
        num_samples: int | None,
        index_split: Split,
        config: GPTDatasetConfig,
    ) -> None:
        super().__init__(indexed_dataset, dataset_path, indexed_indices, num_samples, index_split, config)
        self._pad_token_id = _NO_PAD
        if len(self) < 1:
            raise DatasetError(
                f"the shard's {int(indexed_dataset.sequence_lengths.sum()):,} tokens give no sample of "
                f"{config.sequence_length:,} and one more, and Megatron refuses a blend with an empty part",
                where=str(dataset_path),
                remedy="take a shorter sequence, or leave the shard out: `spanloom blend ROOT --sequence-length …`",
            )

    def _build_document_sample_shuffle_indices(self) -> Any:
        # Upstream names a cached index by path and options. For a dataset rebuilt under the same path it would read the
        # old index, with outdated boundaries. So the name also has the hash of the lengths, and the two options that
        # change an index but are missing in upstream's name.
        self.unique_identifiers["index_sha256"] = self.dataset.shard.index_sha256
        for option in ("drop_last_partial_validation_sequence", "add_extra_token_to_sequence"):
            self.unique_identifiers[option] = getattr(self.config, option)
        self.unique_description = json.dumps(
            self.unique_identifiers, indent=4, default=lambda value: value.unique_identifiers
        )
        self.unique_description_hash = hashlib.md5(self.unique_description.encode(), usedforsecurity=False).hexdigest()
        try:
            return super()._build_document_sample_shuffle_indices()
        except FileNotFoundError as fault:  # rank 0 writes an index, the others only read it
            raise DatasetError(
                "the sample index that rank 0 made is not here",
                where=str(fault.filename),
                remedy="name an index cache that all ranks see, such as a shared volume",
            ) from fault
        except UNREADABLE_NPY as fault:
            raise unreadable_index(Path(self.config.path_to_cache), fault, self.unique_description_hash) from fault

    def __getitem__(self, idx: int | None) -> dict[str, torch.Tensor]:
        """Sample `idx`; None returns a sample without loss, as upstream does."""
        self.dataset.forget()
        item: dict[str, torch.Tensor] = super().__getitem__(idx)
        length = item["tokens"].numel()
        for key, values in (self._supervision(length) | self.dataset.signals(length)).items():
            if not self.config.add_extra_token_to_sequence:
                values[-1] = 0  # its label is in the next sample, and upstream puts a pad there
            if idx is None:
                values[:] = 0
            item[key] = torch.from_numpy(values)
        return item

    def _supervision(self, length: int) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = self.dataset.supervision(length)
        return arrays


class SpanWireGPTDataset(SpanGPTDataset):
    """`SpanGPTDataset` for trainers that hand only the stock keys from rank to rank, such as `pretrain_gpt.py`.

    `loss_mask` holds the span of each trained label, otherwise 0. There is no `span_id`. Split it again before the loss
    (`spanloom.training.batch`): a stock loss would read a 2 as a weight and count that span's tokens twice.
    """

    @staticmethod
    def build_low_level_dataset(dataset_path: str, config: GPTDatasetConfig) -> SupervisedShard:
        shard = SpanGPTDataset.build_low_level_dataset(dataset_path, config)
        if "span" not in shard.shard.prefixes:
            raise DatasetError(
                "this dataset has no spans, so that there is nothing for its loss mask to carry",
                where=dataset_path,
                remedy="take SpanGPTDataset, whose loss_mask is a plain 0/1 mask, and the stock loss",
            )
        return shard

    def _supervision(self, length: int) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = self.dataset.wire(length)
        return arrays


@contextmanager
def blended_index_named(cache: Path) -> Iterator[None]:
    """Reports the file names if Megatron's blend index, which holds the dataset of each sample, is torn."""
    try:
        yield
    except UNREADABLE_NPY as fault:
        if isinstance(fault, SpanloomError):
            raise
        raise unreadable_index(cache, fault) from fault


def unreadable_index(cache: Path, fault: Exception, name: str = "") -> DatasetError:
    """The error for an unreadable index. It names the torn files among those that begin with `name`."""
    torn = [path for path in sorted(cache.glob(f"{name}*.npy")) if _is_torn(path)]
    return DatasetError(
        f"a cached sample index cannot be read, as when its writer was killed: {fault}",
        where=", ".join(map(str, torn)) or f"{cache}/{name}*",
        remedy="remove these files, or the whole index cache; it is made again",
    )


def _is_torn(path: Path) -> bool:
    try:
        np.load(path, mmap_mode="r")
    except UNREADABLE_NPY:
        return True
    return False


def _check_blocks(dataset_path: str, config: GPTDatasetConfig, block: int | None) -> None:
    if block is None or (config.sequence_length == block and not config.add_extra_token_to_sequence):
        return
    extra = "with" if config.add_extra_token_to_sequence else "without"
    raise DatasetError(
        f"the dataset is packed in blocks of {block:,} tokens, and samples of {config.sequence_length:,} {extra} an "
        "extra token would straddle them",
        where=dataset_path,
        remedy=f"set sequence_length={block} and add_extra_token_to_sequence=False in the GPTDatasetConfig",
    )


def _check_config(dataset_path: str | None, config: GPTDatasetConfig) -> None:
    if dataset_path is None:
        raise DatasetError("no blend was given", remedy="`spanloom blend ROOT` prints one")
    if is_object_storage_path(dataset_path):
        raise DatasetError(
            "training reads files", where=dataset_path, remedy="mount the bucket, or `spanloom fetch URI DIR`"
        )
    if config.sequence_length < 2:
        raise DatasetError(
            f"sequence_length is {config.sequence_length}: a sample needs 2 tokens to predict one from another",
            where=dataset_path,
        )
    if config.path_to_cache is None:
        raise DatasetError(
            "no index cache was named; Megatron would write it beside the data, which is read-only for training",
            where=dataset_path,
            remedy="set path_to_cache (pretrain_gpt.py: --data-cache-path)",
        )
