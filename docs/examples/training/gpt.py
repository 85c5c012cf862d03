"""A small GPT learns a dataset with spans: samples of Megatron's GPTDataset, the loss per span, plain PyTorch.

python docs/examples/training/gpt.py --root data/dataset --index-cache run/index --output run --steps 20
python -m torch.distributed.run --nproc-per-node 2 docs/examples/training/gpt.py --root …     two processes

After an interruption, run it again: it resumes from its last checkpoint with the batches and losses of an unbroken run.
"""

import sys
import time
import warnings
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from spanloom.dataset.blend import blend
from spanloom.dataset.manifest import Content
from spanloom.errors import DatasetError, extra_for
from spanloom.training.shard import read_content
from spanloom.workers import passing

with extra_for(__name__, "train"), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # megatron-core warns that Apex and TransformerEngine are missing
    import torch
    import torch.distributed as dist
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
    from torch import nn
    from torch.utils.data import DataLoader

    from spanloom.training import SpanGPTDataset
    from spanloom.training.loss import span_weights
    from spanloom.training.megatron_dataset import blended_index_named, dataset_tokenizer
    from spanloom.training.runs import checkpoint, script
    from spanloom.training.runs.groups import documents_by
    from spanloom.training.runs.learning_rate import learning_rate_at
    from spanloom.training.runs.step import figures_of, update
    from spanloom.training.runs.trainlog import TrainLog


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags, each with its help."""

    root: Annotated[Path, "root of the dataset, which may be mounted read-only"]
    index_cache: Annotated[Path, "folder for Megatron's sample indices, shared by all ranks"]
    output: Annotated[Path, "folder for log.jsonl, tensorboard/ and checkpoints/"]
    steps: Annotated[int, "length of the run", 1] = 200
    sequence_length: Annotated[int, "tokens in a sample", 1] = 512
    micro_batch_size: Annotated[int, "samples that a rank computes at once", 1] = 1
    global_batch_size: Annotated[int, "samples in a step, over all ranks", 1] = 8
    layers: Annotated[int, "layers of the model"] = 2
    hidden: Annotated[int, "its width"] = 64
    heads: Annotated[int, "its attention heads"] = 4
    learning_rate: Annotated[float, "peak; it rises over --warmup steps and falls along a cosine to a tenth"] = 1e-3
    warmup: Annotated[int, "steps in which the learning rate rises"] = 10
    clip: Annotated[float, "gradients are scaled down to this norm"] = 1.0
    span_weights: Annotated[str, "weights of the loss by span: analysis=1,final=0.5; 1 where none is given"] = ""
    seed: Annotated[int, "of the model and of the order of samples"] = 1234
    dtype: Annotated[Literal["fp32", "bf16"], "that the model computes in; weights are fp32"] = "fp32"
    workers: Annotated[int, "processes a rank that read samples; 0 reads in the rank itself"] = 0
    eval_interval: Annotated[int, "evaluate on valid after so many steps, and after the last", 1] = 50
    eval_samples: Annotated[int, "at most so many samples of valid"] = 64
    loss_by: Annotated[str, "columns of the row table, as language,exercise: the loss by their values on valid"] = ""
    save_interval: Annotated[int, "write a checkpoint after so many steps, and after the last", 1] = 50


class SmallGPT(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy here
    """A causal transformer with tied embeddings and learned positions, without dropout."""

    def __init__(self, vocabulary: int, options: Options) -> None:
        super().__init__()
        torch.manual_seed(options.seed)
        width, self.dtype = options.hidden, torch.bfloat16 if options.dtype == "bf16" else torch.float32
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(options.sequence_length, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        shape = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        layers = (nn.TransformerEncoderLayer(width, options.heads, 4 * width, **shape) for _ in range(options.layers))
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(width)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss of each label, float32 [B, S]."""
        device = self.tokens.weight.device
        seen = nn.Transformer.generate_square_subsequent_mask(batch["tokens"].shape[1], device=device)
        with torch.autocast(device.type, self.dtype, enabled=self.dtype != torch.float32):
            hidden = self.tokens(batch["tokens"]) + self.places.weight[: batch["tokens"].shape[1]]
            for layer in self.layers:
                hidden = layer(hidden, src_mask=seen, is_causal=True)
            logits = self.norm(hidden) @ self.tokens.weight.T
        return nn.functional.cross_entropy(logits.float().transpose(1, 2), batch["labels"], reduction="none")


def datasets(options: Options, content: Content) -> list[Any]:
    """The samples of all steps, and one epoch of valid, or None if it gives no sample."""
    length, size = options.sequence_length, options.steps * options.global_batch_size
    trained = blend(content, options.root, "train", sequence_length=length)
    parts: list[Any] = [(list(trained.prefixes), list(map(float, trained.tokens))), None, None]
    if any(shard.splits["valid"].tokens > length for shard in content.shards if "valid" in shard.splits):
        # Without a size Megatron accepts no weights: each shard is read once, in full.
        parts[1] = (list(blend(content, options.root, "valid", sequence_length=length).prefixes), None)
    config = GPTDatasetConfig(
        random_seed=options.seed,
        sequence_length=length,
        blend_per_split=parts,
        path_to_cache=str(options.index_cache),
        tokenizer=dataset_tokenizer(content),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    with blended_index_named(options.index_cache):
        built: list[Any] = BlendedMegatronDatasetBuilder(
            SpanGPTDataset, [size, None, None], lambda: True, config
        ).build()
    return built[:2]


def train(options: Options) -> None:
    """The run, on every rank of a process group."""
    content, rank, ranks = read_content(options.root), dist.get_rank(), dist.get_world_size()
    step_size, length = options.global_batch_size, options.sequence_length
    micro_batches, rest = divmod(step_size, ranks * options.micro_batch_size)
    if rest or not micro_batches:
        raise DatasetError(
            f"{step_size} samples cannot be cut into micro-batches of {options.micro_batch_size} for {ranks} ranks",
            remedy="give a --global-batch-size that is a multiple of their product",
        )
    weights = span_weights(options.span_weights, content.span_names)
    train_set, valid_set = datasets(options, content)
    model = SmallGPT(content.tokenizer.vocab_size, options).to(script.device())
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    # What decides batches and losses: a run resumes only if it is unchanged.
    free = {"root", "index_cache", "output", "micro_batch_size", "workers", "eval_interval", "eval_samples", "loss_by"}
    identity = {name: value for name, value in asdict(options).items() if name not in free | {"save_interval"}}
    identity |= {"span_weights": dict(weights.by_name), "dataset": content.sha256}
    first = 0
    if newest := checkpoint.latest(options.output, identity):
        first, state = newest[0], checkpoint.load(newest[1], rank=0)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    log = TrainLog(options.output, first_step=first) if rank == 0 else None
    samples = options.eval_samples
    evaluated: list[Any] = [({}, list(read(valid_set, options, 0, min(samples, len(valid_set)))))] if valid_set else []
    for column in filter(None, options.loss_by.split(",")):
        evaluated += documents_by(options.root, column, documents=samples, length=length)
    batches = read(train_set, options, first * step_size, options.steps * step_size)
    for step in range(first + 1, options.steps + 1):
        began = time.perf_counter()
        rate = learning_rate_at(step - 1, peak=options.learning_rate, warmup=options.warmup, steps=options.steps)
        optimizer.zero_grad()
        record = {"kind": "train", **figures_of(model, list(islice(batches, micro_batches)), weights)}
        record |= {"learning_rate": rate, "gradient_norm": update(model, optimizer, rate, options.clip)}
        records = [{**record, "seconds": time.perf_counter() - began}]
        if step == options.steps or step % options.eval_interval == 0:
            with torch.no_grad():
                records += [{"kind": "valid", **about, **figures_of(model, each, weights)} for about, each in evaluated]
        for record in records:
            if log:
                log.write({"step": step, **record})
        if step == options.steps or step % options.save_interval == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            checkpoint.save(options.output, step, state, identity, rank=0, writes=rank == 0, keep=2)
    if log:
        log.close()


def read(dataset: Any, options: Options, first: int, last: int) -> Any:
    """This rank's batches of the samples `first` up to `last`, in an order that leaves each step its samples."""
    size, rank, ranks = options.micro_batch_size, dist.get_rank(), dist.get_world_size()
    micro = [list(range(at, min(at + size, last))) for at in range(first + rank * size, last, ranks * size)]
    return passing(DataLoader(dataset, batch_sampler=micro, num_workers=options.workers))


if __name__ == "__main__":
    sys.exit(script.run(train, Options, __doc__))
