"""Packed samples for Megatron: a dataset for its builder, samplers and blends, and the arguments of its attention.

In: a plan, Megatron's `GPTDatasetConfig`. Out: train, valid and test datasets (`packed_datasets`), whose samples have
the stock keys, plus one of these to keep documents apart:

    cu_seqlens      int32 [S + 1]   bounds of the documents, padded with S, and max_seqlen int32 []: for attention
                                    kernels of variable length (THD), `--dataloader-inter-document-masking` from
                                    megatron-core 0.19 on
    attention_mask  bool [1, S, S]  True where a position must not attend to another; if the config requests a mask

Position ids begin at 0 in each document.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
from megatron.core.datasets.megatron_dataset import MegatronDataset
from megatron.core.datasets.utils import Split
from megatron.core.packed_seq_params import PackedSeqParams

from spanloom.dataset.plan.format import open_plan, read_plan
from spanloom.errors import DatasetError
from spanloom.provenance import sha256_json
from spanloom.training.packed import block_diagonal, varlen
from spanloom.training.samples.epoch_order import EpochOrder
from spanloom.training.samples.packed import PackedSamples, open_samples
from spanloom.training.shard import check_tokenizer

_ROOT = "spanloom_dataset_root"
"""Attribute of the config: the dataset's folder; None: the one that the plan names."""

_OURS = ("allow_harmful", "teacher", "missing_teacher", "document_weights")
"""Attributes of the config that `SpanGPTDataset` reads too. The last is rejected here."""


class PackedGPTDataset(MegatronDataset):  # type: ignore[misc]  # megatron-core has no types
    """The samples of one split of a plan (`PLAN/SPLIT` in Megatron's blends), for as many epochs as are requested.

    Keys: tokens, labels, loss_mask, position_ids, span_id if the dataset has spans, teacher_… if the config names a
    `teacher`, as for `SpanGPTDataset`, and cu_seqlens with max_seqlen or attention_mask. Each epoch has its own order,
    derived from the config's random_seed.
    """

    wire = False

    @staticmethod
    def build_low_level_dataset(dataset_path: str, config: GPTDatasetConfig) -> PackedSamples:
        folder, split = Path(dataset_path).parent, Path(dataset_path).name
        samples = open_samples(
            folder,
            split,
            getattr(config, _ROOT, None),
            teacher=getattr(config, "teacher", None),  # not fields of upstream's, as in SpanGPTDataset
            missing_teacher=getattr(config, "missing_teacher", None) or "error",
            allow_harmful=bool(getattr(config, "allow_harmful", False)),
        )
        _check_config(samples, config)
        return samples

    @staticmethod
    def numel_low_level_dataset(low_level_dataset: PackedSamples) -> int:
        return len(low_level_dataset)

    def __init__(
        self,
        dataset: PackedSamples,
        dataset_path: str | None,
        indices: npt.NDArray[np.int32],
        num_samples: int | None,
        index_split: Split,
        config: GPTDatasetConfig,
    ) -> None:
        super().__init__(dataset, dataset_path, indices, num_samples, index_split, config)
        if len(indices) != len(dataset):
            raise DatasetError(
                "a plan's splits are those of its dataset, and cannot be split again",
                where=str(dataset_path),
                remedy="give a plan to each split: packed_datasets does",
            )
        # Megatron names its cache files of blends by this.
        self.unique_identifiers["plan_sha256"] = sha256_json(dataset.plan.content.model_dump(mode="json"))
        self._order = EpochOrder(len(dataset), seed=config.random_seed)
        self._packs = not config.create_attention_mask or getattr(config, "inter_document_masking", False)

    def __len__(self) -> int:
        """Samples of whole epochs: one epoch, or as many as `num_samples` needs."""
        epochs = 1 if self.num_samples is None else max(1, -(-self.num_samples // len(self.dataset)))
        return epochs * len(self.dataset)

    def __getitem__(self, idx: int | None) -> dict[str, torch.Tensor]:
        """Sample number `idx` of the run; None returns a sample without loss."""
        arrays = self.dataset.sample(self._order[idx or 0], wire=self.wire)
        length = self.dataset.sequence_length
        bounds = arrays.pop("cu_seqlens")
        item = {name: torch.from_numpy(values) for name, values in arrays.items()}
        if self._packs:
            item["cu_seqlens"] = torch.full((length + 1,), length, dtype=torch.int32)
            item["cu_seqlens"][: bounds.size] = torch.from_numpy(bounds)
            item["max_seqlen"] = torch.tensor(int(np.diff(bounds).max()), dtype=torch.int32)
        else:
            item["attention_mask"] = ~block_diagonal(torch.from_numpy(bounds)[None], length)[0]
        if idx is None:
            item["loss_mask"].zero_()
            if "span_id" in item:
                item["span_id"].zero_()
            if "teacher_mask" in item:
                item["teacher_mask"].zero_()
        return item


class PackedWireGPTDataset(PackedGPTDataset):
    """`PackedGPTDataset` whose `loss_mask` carries the span, as in `SpanWireGPTDataset`; there is no `span_id`."""

    wire = True

    @staticmethod
    def build_low_level_dataset(dataset_path: str, config: GPTDatasetConfig) -> PackedSamples:
        samples = PackedGPTDataset.build_low_level_dataset(dataset_path, config)
        if not samples.spans:
            raise DatasetError(
                "this dataset has no spans, so that there is nothing for its loss mask to carry",
                where=dataset_path,
                remedy="take PackedGPTDataset, whose loss_mask is a plain 0/1 mask, and the stock loss",
            )
        return samples


def packed_datasets(
    plan: Path | str,
    config: GPTDatasetConfig,
    sizes: Sequence[int | None],
    is_built_on_rank: Callable[[], bool] = lambda: True,
    *,
    root: Path | str | None = None,
    kind: type[PackedGPTDataset] = PackedWireGPTDataset,
    verify: bool = False,
) -> list[Any]:
    """Megatron's train, valid and test datasets of a plan: what `train_valid_test_datasets_provider` returns.

    Args: config, the script's `GPTDatasetConfig`, whose blends are ignored; sizes, samples of each split, None for
    one epoch; is_built_on_rank as for `BlendedMegatronDatasetBuilder`; root, the dataset's folder, if it has moved
    since the plan was made; verify, whether all files except the `.bin` are hashed now. A split without samples is
    None.
    Raises ArtifactError or DatasetError, naming the file, before the first sample.
    """
    folder = Path(plan)
    content = open_plan(folder, root, verify=True).content if verify else read_plan(folder)[0]
    splits = [split if (counts := content.splits.get(split)) and counts.samples else None for split in _SPLITS]
    blends = [None if split is None else ([str(folder / split)], None) for split in splits]
    packed = dataclasses.replace(config, blend=None, blend_per_split=blends, split=None)
    for name in _OURS:  # `replace` copies only fields
        setattr(packed, name, getattr(config, name, None))
    setattr(packed, _ROOT, None if root is None else str(root))
    return list(BlendedMegatronDatasetBuilder(kind, list(sizes), is_built_on_rank, packed).build())


_SPLITS = ("train", "valid", "test")


def packed_seq_params(cu_seqlens: torch.Tensor, length: int) -> PackedSeqParams:
    """Arguments of Megatron's layers for THD attention over B · S positions: `cu_seqlens` int32 [B, n], as collated.

    Pass tokens, labels and position ids to the model as [1, B · S].
    """
    bounds, longest = varlen(cu_seqlens, length)
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )


def _check_config(samples: PackedSamples, config: GPTDatasetConfig) -> None:
    options, folder = samples.plan.options, samples.plan.folder

    def refuse(why: str, remedy: str) -> DatasetError:
        return DatasetError(why, where=str(folder), remedy=remedy)

    if getattr(config, "document_weights", False):
        raise refuse(
            "samples of a plan carry no weights of documents",
            "train on the dataset itself (SpanGPTDataset), or leave config.document_weights out",
        )
    if config.sequence_length != options.sequence_length:
        raise refuse(
            f"the plan has samples of {options.sequence_length:,} tokens, the config's sequence_length is "
            f"{config.sequence_length:,}",
            "make a plan of that length, or set --seq-length to the plan's",
        )
    check_tokenizer(samples.plan.dataset, config.tokenizer, folder)
    masking = getattr(config, "inter_document_masking", None)
    if masking is False and not config.create_attention_mask:
        raise refuse(
            "nothing would keep the documents of a sample apart",
            "set --dataloader-inter-document-masking, or create_attention_mask for layers that take a mask",
        )
    ranks = config.context_parallel_size or 1
    if ranks > 1 and not masking and options.multiple_of % (2 * ranks):
        raise refuse(
            f"context parallelism over {ranks} ranks cuts each document into {2 * ranks} parts, and the plan pads them "
            f"to multiples of {options.multiple_of}",
            f"make a plan with --multiple-of {2 * ranks}",
        )
