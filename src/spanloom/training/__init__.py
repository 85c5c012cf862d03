"""The modules that trainers import. Most import torch at their top.

    from spanloom.training import DocumentDataset    # imports torch; `import spanloom.training` alone does not

shard             a shard as a trainer names it, checked against the manifest (no torch)
samples/          weights of documents, samples of a plan, their order in an epoch (no torch)
megatron_dataset  Megatron's GPTDataset with the loss mask and, if the dataset has spans, the span
batch             the span on every rank, reading a step ahead
loss              the loss per span, with the counts of the whole step
megatron_lm       Megatron-LM's own script with some of its functions replaced
megatron_step     our batch and loss in the training step of Megatron-LM
pretrain_gpt      the entry: that script with our dataset, batch and loss
distillation/     a teacher's signals in samples, and the loss against them
pytorch           the dataset for other trainers, without Megatron
hugging_face      the loss per span in Hugging Face's trainers
weights           the loss with document weights, for any trainer
packed            packed samples for PyTorch: dataset, sampler, attention within documents
packed_megatron   the same for Megatron
runs/             what the trainers in docs/examples/training share
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanloom.training.distillation.loss import distillation_loss as distillation_loss
    from spanloom.training.hugging_face import span_trainer as span_trainer
    from spanloom.training.loss import SpanWeights as SpanWeights
    from spanloom.training.loss import span_normalized_loss as span_normalized_loss
    from spanloom.training.megatron_dataset import SpanGPTDataset as SpanGPTDataset
    from spanloom.training.packed import PackedDataset as PackedDataset
    from spanloom.training.pytorch import DocumentDataset as DocumentDataset
    from spanloom.training.pytorch import StreamDataset as StreamDataset

_FROM = {
    "DocumentDataset": ("pytorch", "torch"),
    "PackedDataset": ("packed", "torch"),
    "SpanGPTDataset": ("megatron_dataset", "spanloom[megatron]"),
    "SpanWeights": ("loss", "torch"),
    "StreamDataset": ("pytorch", "torch"),
    "distillation_loss": ("distillation.loss", "torch"),
    "span_normalized_loss": ("loss", "torch"),
    "span_trainer": ("hugging_face", "torch transformers"),
}
"""Public name → its module, imported on first use, and the pip packages that the module needs."""

__all__ = [
    "DocumentDataset",
    "PackedDataset",
    "SpanGPTDataset",
    "SpanWeights",
    "StreamDataset",
    "distillation_loss",
    "span_normalized_loss",
    "span_trainer",
]

if not TYPE_CHECKING:  # otherwise every misspelt name would type-check

    def __getattr__(name: str) -> Any:
        if name not in _FROM:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, needs = _FROM[name]
        try:
            return getattr(import_module(f"spanloom.training.{module}"), name)
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] == "spanloom":
                raise
            message = f"spanloom.training.{name} needs {missing.name}: pip install '{needs}'"
            raise ModuleNotFoundError(message, name=missing.name) from None


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
