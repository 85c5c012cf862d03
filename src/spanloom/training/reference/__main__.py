"""A reference training run: `python -m torch.distributed.run … -m spanloom.training.reference --root ROOT …`.

In: a finished dataset (read only), flags. Out: under `--output` the log, TensorBoard events and checkpoints.

A GPT from megatron-core, Megatron's samples and schedule, the loss per span. It shows that a dataset trains and how the
parts fit together; it is not a base for your own trainer: with GPUs use your `pretrain_gpt.py`, see docs/training/.
After an interruption, run it again: it resumes from its last checkpoint with the batches and losses of an unbroken run.
"""

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from spanloom.dataset.blend import blend
from spanloom.dataset.manifest import Content
from spanloom.errors import DatasetError, SpanloomError, extra_for
from spanloom.split import VALID
from spanloom.text import visible
from spanloom.training.runs.learning_rate import learning_rate_at
from spanloom.training.shard import read_content

with extra_for(__name__, "train"), warnings.catch_warnings():
    # megatron-core warns on import that Apex and TransformerEngine are missing; neither is used here.
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig

    from spanloom.training.batch import Batch, ReadAhead, broadcast_batch
    from spanloom.training.loss import SpanWeights, span_weights
    from spanloom.training.megatron_dataset import SpanWireGPTDataset, blended_index_named, dataset_tokenizer
    from spanloom.training.reference.groups import losses_by, values_of
    from spanloom.training.reference.model import gpt
    from spanloom.training.reference.optimizer import MasterAdamW
    from spanloom.training.reference.schedule import StepResult, average_gradients, run_step
    from spanloom.training.reference.stream import Layout, train_batches, valid_batch, valid_batches
    from spanloom.training.runs import checkpoint
    from spanloom.training.runs.script import add_flags, flag_parser, process_group
    from spanloom.training.runs.trainlog import Record, TrainLog

TEACH = """
examples
  python -m spanloom.training.reference --root data/dataset --index-cache run/index --output run --steps 20
  python -m torch.distributed.run --nproc-per-node 2 -m spanloom.training.reference --root …  two processes

Run the same command again after an interruption and it resumes from its last checkpoint.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags of a run, each with its help."""

    root: Annotated[Path, "root of the dataset, which may be mounted read-only"]
    index_cache: Annotated[Path, "folder for Megatron's sample indices, shared by all ranks"]
    output: Annotated[Path, "folder for log.jsonl, tensorboard/ and checkpoints/"]
    steps: Annotated[int, "length of the run"] = 200
    sequence_length: Annotated[int, "tokens in a sample"] = 512
    micro_batch_size: Annotated[int, "samples that a rank computes at once"] = 1
    global_batch_size: Annotated[int, "samples in a step, over all ranks"] = 8
    layers: Annotated[int, "layers of the model"] = 2
    hidden: Annotated[int, "its width"] = 64
    heads: Annotated[int, "its attention heads"] = 4
    learning_rate: Annotated[float, "peak; it rises over --warmup steps and falls along a cosine to a tenth"] = 1e-3
    warmup: Annotated[int, "steps in which the learning rate rises"] = 10
    weight_decay: Annotated[float, "AdamW's, on matrices"] = 0.1
    clip: Annotated[float, "gradients are scaled down to this norm; 0 for not at all"] = 1.0
    span_weights: Annotated[str, "weights of the loss by span, such as analysis=1,final=0.5; 1 where none is given"] = (
        ""
    )
    seed: Annotated[int, "of the model and of the order of samples"] = 1234
    dtype: Annotated[Literal["fp32", "bf16"], "of the model; weights are updated in fp32 either way"] = "fp32"
    device: Annotated[Literal["auto", "cpu", "cuda"], "auto takes a GPU where there is one"] = "auto"
    tensor_parallel: Annotated[int, "ranks that share one copy of the model"] = 1
    workers: Annotated[int, "processes a rank that read samples; 0 reads in the rank itself"] = 0
    eval_interval: Annotated[int, "evaluate on valid after so many steps, and after the last"] = 50
    eval_samples: Annotated[int, "at most so many samples of valid"] = 64
    loss_by: Annotated[
        str, "columns of the row table, such as language,exercise: each evaluation logs each value's loss"
    ] = ""
    save_interval: Annotated[int, "write a checkpoint after so many steps, and after the last"] = 50
    keep: Annotated[int, "checkpoints that are kept"] = 2

    def identity(self, content: Content) -> dict[str, Any]:
        """The options and data that determine batches and losses. A run resumes only if they are unchanged."""
        free = {"root", "index_cache", "output", "micro_batch_size", "device", "workers", "keep"}
        free |= {"eval_interval", "eval_samples", "loss_by", "save_interval"}
        decides = {name: value for name, value in asdict(self).items() if name not in free}
        weights = span_weights(self.span_weights, content.span_names)
        return {**decides, "span_weights": dict(weights.by_name), "dataset": content.sha256}


def main(arguments: list[str] | None = None) -> int:
    """Trains. Returns the exit code."""
    options = parse(arguments)
    try:
        with _process_group(options) as device:
            train(options, device)
    except SpanloomError as error:
        # Errors are not handled by the `spanloom` command: torchrun starts this module, and every rank exits by itself.
        print(visible(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    return 0


def train(options: Options, device: torch.device) -> None:
    """The run on every rank of a process group."""
    content = read_content(options.root)
    layout = _layout(options)
    tensor_rank = parallel_state.get_tensor_model_parallel_rank()
    train_set, valid_set = build_datasets(options, content, layout)
    model = gpt(
        layers=options.layers,
        hidden=options.hidden,
        heads=options.heads,
        vocab_size=content.tokenizer.vocab_size,
        sequence_length=options.sequence_length,
        dtype=torch.bfloat16 if options.dtype == "bf16" else torch.float32,
        tensor_parallel_size=options.tensor_parallel,
        seed=options.seed,
    ).to(device)
    model.config.finalize_model_grads_func = average_gradients
    optimizer = MasterAdamW(model, learning_rate=options.learning_rate, weight_decay=options.weight_decay)
    weights = span_weights(options.span_weights, content.span_names)
    identity = options.identity(content)

    first_step = 0
    if newest := checkpoint.latest(options.output, identity):
        first_step, folder = newest
        state = checkpoint.load(folder, rank=tensor_rank)
        model.load_state_dict(state["model"], strict=False)  # Megatron's extra states are not tensors; unused
        optimizer.load(state["optimizer"])

    log = TrainLog(options.output, first_step=first_step) if dist.get_rank() == 0 else None
    shape = (options.micro_batch_size, options.sequence_length)
    ahead = _read_ahead(shape, device, layout.micro_batches, len(weights))
    by = {
        column: values_of(content, options.root, column, documents=options.eval_samples)
        for column in filter(None, options.loss_by.split(","))
    }
    batches = (
        None
        if train_set is None
        else train_batches(train_set, layout, first_step=first_step, steps=options.steps, workers=options.workers)
    )
    for step in range(first_step, options.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        result = run_step(model, ahead, batches, weights, micro_batches=layout.micro_batches, shape=shape)
        learning_rate = learning_rate_at(step, peak=options.learning_rate, warmup=options.warmup, steps=options.steps)
        norm = optimizer.step(learning_rate=learning_rate, clip=options.clip)
        seconds = time.perf_counter() - began
        number = step + 1
        if log:
            speed = layout.global_batch * options.sequence_length / seconds
            figures = {"learning_rate": learning_rate, "gradient_norm": norm, "seconds": seconds}
            log.write({**_record("train", number, result, weights), **figures, "tokens_per_second": speed})
        last = number == options.steps
        if last or number % options.eval_interval == 0:
            evaluated = evaluate(options, model, valid_set, layout, weights, device)
            if log and evaluated:
                log.write(_record("valid", number, evaluated, weights))
            for record in evaluate_by(options, model, by, weights, device):
                if log:
                    log.write({"kind": "valid", "step": number, **record})
        if last or number % options.save_interval == 0:
            tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
            state = {"model": tensors, "optimizer": optimizer.state()}
            writes = parallel_state.get_data_parallel_rank() == 0
            checkpoint.save(options.output, number, state, identity, rank=tensor_rank, writes=writes, keep=options.keep)
    if log:
        log.close()


def build_datasets(options: Options, content: Content, layout: Layout) -> tuple[Any, Any]:
    """Train and valid on tensor-parallel rank 0, otherwise None. Valid is one epoch, or None if it gives no sample."""

    def build(split: str, size: int | None) -> Any:
        parts = blend(content, options.root, split, sequence_length=options.sequence_length)
        # Without a size Megatron accepts no weights: every shard is read once, in full.
        part = (list(parts.prefixes), None if size is None else [float(tokens) for tokens in parts.tokens])
        place = {"train": 0, "valid": 1}[split]
        config = GPTDatasetConfig(
            random_seed=options.seed,
            sequence_length=options.sequence_length,
            blend_per_split=[part if number == place else None for number in range(3)],
            path_to_cache=str(options.index_cache),
            tokenizer=dataset_tokenizer(content),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        sizes = [size if number == place else None for number in range(3)]
        on_this_rank = parallel_state.get_tensor_model_parallel_rank() == 0
        with blended_index_named(options.index_cache):
            return BlendedMegatronDatasetBuilder(SpanWireGPTDataset, sizes, lambda: on_this_rank, config).build()[place]

    train_set = build("train", options.steps * layout.global_batch)
    tokens = [shard.splits[VALID].tokens for shard in content.shards if VALID in shard.splits]
    longest = max(tokens, default=0)
    return train_set, build("valid", None) if longest > options.sequence_length else None


def evaluate(
    options: Options, model: Any, valid_set: Any, layout: Layout, weights: SpanWeights, device: torch.device
) -> StepResult | None:
    """The loss over the first `eval_samples` of valid: means over all their tokens, not means of batches."""
    # Ranks that do not read data (in tensor-parallel groups) need the number of micro-batches from those that do.
    mine = [] if valid_set is None else valid_batches(valid_set, layout, samples=options.eval_samples)
    count = torch.tensor(len(mine), device=device)
    dist.all_reduce(count, op=dist.ReduceOp.MAX)
    if not count:
        return None
    shape = (options.micro_batch_size, options.sequence_length)
    batches = None if valid_set is None else (valid_batch(valid_set, micro, shape[0]) for micro in mine)
    model.eval()
    with torch.no_grad():
        result = run_step(
            model,
            _read_ahead(shape, device, int(count), len(weights)),
            batches,
            weights,
            micro_batches=int(count),
            shape=shape,
            forward_only=True,
        )
    model.train()
    return result


def evaluate_by(
    options: Options, model: Any, by: dict[str, list[str]], weights: SpanWeights, device: torch.device
) -> Iterator[Record]:
    """Figures of each value of each column, over the first `eval_samples` documents of valid."""
    model.eval()
    for column, values in by.items():
        for group in losses_by(
            model,
            options.root,
            values,
            spans=len(weights),
            sequence_length=options.sequence_length,
            micro_batch=options.micro_batch_size,
            device=device,
        ):
            record: Record = {"by": column, "value": group.value, "documents": group.documents}
            for name, loss, tokens in zip(weights.names, group.losses, group.tokens, strict=True):
                record |= {f"{name}_loss": loss, f"{name}_tokens": tokens}
            yield record
    model.train()


def _read_ahead(shape: tuple[int, int], device: torch.device, micro_batches: int, spans: int) -> ReadAhead:
    def get_batch(batches: Iterator[Batch] | None) -> Batch:
        return broadcast_batch(
            None if batches is None else next(batches),
            shape=shape,
            source=parallel_state.get_tensor_model_parallel_src_rank(),
            group=parallel_state.get_tensor_model_parallel_group(),
            device=device,
        )

    return ReadAhead(get_batch, lambda: micro_batches, parallel_state.get_data_parallel_group, spans=spans)


def _record(kind: str, step: int, result: StepResult, weights: SpanWeights) -> Record:
    record: Record = {"kind": kind, "step": step, "loss": result.loss}
    for name, loss, count, weight in zip(
        weights.names, result.span_losses, result.counts, result.effective_weights, strict=True
    ):
        record |= {f"{name}_loss": loss if count else None, f"{name}_tokens": count, f"{name}_weight": weight}
    return record


def _layout(options: Options) -> Layout:
    replicas = parallel_state.get_data_parallel_world_size()
    micro_batches, rest = divmod(options.global_batch_size, replicas * options.micro_batch_size)
    if rest or not micro_batches:
        raise DatasetError(
            f"a global batch of {options.global_batch_size} cannot be cut into micro-batches of "
            f"{options.micro_batch_size} for {replicas} data-parallel ranks",
            remedy="give a --global-batch-size that is a multiple of their product",
        )
    return Layout(
        replica=parallel_state.get_data_parallel_rank(),
        replicas=replicas,
        micro_batch=options.micro_batch_size,
        micro_batches=micro_batches,
    )


@contextlib.contextmanager
def _process_group(options: Options) -> Iterator[torch.device]:
    """torchrun's process group, or a group of this process only; nccl on GPUs, otherwise gloo."""
    cuda = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    with process_group("nccl" if cuda else "gloo"):
        if dist.get_world_size() % options.tensor_parallel:
            raise DatasetError(
                f"{dist.get_world_size()} processes cannot be cut into groups of --tensor-parallel "
                f"{options.tensor_parallel}"
            )
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=options.tensor_parallel)
        try:
            yield device
        finally:
            parallel_state.destroy_model_parallel()


def parse(arguments: list[str] | None = None) -> Options:
    parser, flag = flag_parser(
        "python -m spanloom.training.reference",
        "Train a small GPT from megatron-core on a dataset with spans: the reference, and a proof that the dataset "
        "trains.",
        TEACH,
    )
    add_flags(flag, Options)
    options = Options(**vars(parser.parse_args(arguments)))
    for name in ("steps", "micro_batch_size", "eval_interval", "save_interval", "keep", "tensor_parallel"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}: give 1 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
