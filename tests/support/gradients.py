"""One rank of the gradient tests: `python -m support.gradients OUT`, under torchrun or `support.ranks`.

Every rank computes the full-batch gradient of L alone, by plain torch from the definition of L; then the ranks compute
it together through Megatron's schedule and in plain torch, and rank 0 writes how far they are apart, case by case.
"""

import itertools
import json
import sys
import warnings
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")

from megatron.core import parallel_state  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.utils import get_batch_on_this_cp_rank  # noqa: E402

from spanloom.training.batch import ReadAhead, broadcast_batch, split_wire  # noqa: E402
from spanloom.training.loss import SpanWeights  # noqa: E402
from spanloom.training.runs.step import figures_of  # noqa: E402
from support.megatron_schedule import gpt, run_step  # noqa: E402

VOCAB, BATCH, LENGTH, ROWS = 48, 2, 16, 24
WEIGHTS = SpanWeights({"analysis": 0.7, "final": 1.3})
SPANS = ("mixed", "no reasoning", "reasoning in one micro-batch", "nothing trained", "one token of each")


def step(kind: str) -> dict[str, torch.Tensor]:
    """A global step of ROWS samples."""
    random = torch.Generator().manual_seed(SPANS.index(kind))
    tokens = torch.randint(0, VOCAB, (ROWS, LENGTH), generator=random)
    labels = torch.randint(0, VOCAB, (ROWS, LENGTH), generator=random)
    span = torch.randint(0, 3, (ROWS, LENGTH), generator=random)
    mask = (span > 0) & (torch.rand(ROWS, LENGTH, generator=random) < 0.8)
    if kind == "no reasoning":
        mask &= span == 2
    elif kind == "reasoning in one micro-batch":
        mask[BATCH:] &= span[BATCH:] == 2
    elif kind == "nothing trained":
        mask[:] = False
    elif kind == "one token of each":
        mask[:] = False
        mask[0, 3], span[0, 3] = True, 1
        mask[-1, 5], span[-1, 5] = True, 2
    positions = torch.arange(LENGTH).expand(ROWS, -1)
    return {"tokens": tokens, "labels": labels, "position_ids": positions, "mask": mask, "span_id": span}


def full_batch_gradient(model: Any, batch: dict[str, torch.Tensor]) -> tuple[float, dict[str, torch.Tensor]]:
    """L and its gradient from the definition, over the whole step at once."""
    model.zero_grad()
    losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
    loss = losses.sum() * 0.0
    for span, weight in ((1, WEIGHTS.by_name["analysis"]), (2, WEIGHTS.by_name["final"])):
        chosen = losses[batch["mask"] & (batch["span_id"] == span)]
        if chosen.numel():
            loss = loss + weight * chosen.mean()
    loss.backward()
    return float(loss), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


class PerToken(torch.nn.Module):
    """A model whose positions do not see each other, so that a sequence may be cut for context parallelism."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.config, self.model_type = config, ModelType.encoder_or_decoder
        self.embedding, self.positions = torch.nn.Embedding(VOCAB, 16), torch.nn.Embedding(LENGTH, 16)
        self.output = torch.nn.Linear(16, VOCAB)

    def set_input_tensor(self, _: Any) -> None:
        pass

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, _: Any, labels: torch.Tensor) -> torch.Tensor:
        logits = self.output(torch.tanh(self.embedding(tokens) + self.positions(positions)))
        return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")


class Losses:
    """The model as a step in plain torch calls it."""

    def __init__(self, model: Any) -> None:
        self.model, self.parameters = model, model.parameters

    def __call__(self, batch: dict[str, torch.Tensor]) -> Any:
        return self.model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])


def compare(tensor: int, context: int, micro_batches: int, kind: str) -> Iterator[dict[str, Any]]:
    """A step through Megatron's schedule; and one in plain torch, which is data parallel alone."""
    replicas, replica = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    size = {"layers": 2, "hidden": 32, "heads": 4, "vocab_size": VOCAB, "sequence_length": LENGTH}
    model = gpt(**size, ranks=tensor, seed=3)
    if context > 1:
        model = PerToken(model.config)
    rows = BATCH * replicas * micro_batches
    batch = {key: value[:rows] for key, value in step(kind).items()}
    if kind == "one token of each":
        batch = {key: torch.cat([value[: rows - 1], value[-1:]]) for key, value in step(kind).items()}
    loss, expected = full_batch_gradient(model, batch)

    def microbatches() -> Any:
        for number in range(micro_batches):
            first = (number * replicas + replica) * BATCH
            cut = {key: batch[key][first : first + BATCH] for key in ("tokens", "labels", "position_ids")}
            rows = slice(first, first + BATCH)
            yield {**cut, "loss_mask": (batch["mask"][rows] * batch["span_id"][rows]).float()}

    def get_batch(iterator: Any) -> dict[str, Any]:
        whole = broadcast_batch(
            None if iterator is None else next(iterator),
            shape=(BATCH, LENGTH),
            source=parallel_state.get_tensor_model_parallel_src_rank(),
            group=parallel_state.get_tensor_model_parallel_group(),
            device=torch.device("cpu"),
        )
        if "is_hybrid_cp" not in signature(get_batch_on_this_cp_rank).parameters:
            return dict(get_batch_on_this_cp_rank(whole))
        # megatron-core 0.18 and later, where a group that is not named means all ranks
        cut = get_batch_on_this_cp_rank(
            {**whole, "cu_seqlens": None}, is_hybrid_cp=False, cp_group=parallel_state.get_context_parallel_group()
        )
        return dict(cut)

    def group() -> Any:
        return parallel_state.get_data_parallel_group(with_context_parallel=True)

    model.zero_grad()
    # Only tensor-parallel rank 0 reads, as in Megatron.
    iterator = microbatches() if parallel_state.get_tensor_model_parallel_rank() == 0 else None
    loss_of_step, trained = run_step(
        model,
        ReadAhead(get_batch, lambda: micro_batches, group, spans=len(WEIGHTS)),
        iterator,
        WEIGHTS,
        micro_batches=micro_batches,
        shape=(BATCH, LENGTH),
    )

    def furthest() -> float:
        apart = ((parameter.grad - expected[name], expected[name]) for name, parameter in model.named_parameters())
        return max(float(difference.norm()) / (float(right.norm()) or 1.0) for difference, right in apart)

    counts = {
        name: int((batch["mask"] & (batch["span_id"] == span)).sum()) for name, span in (("analysis", 1), ("final", 2))
    }
    case = {
        "case": f"tp {tensor} cp {context} dp {replicas} micro-batches {micro_batches}, {kind}",
        "largest": max(float(value.norm()) for value in expected.values()),
    }
    schedule = {"loss": [loss_of_step, loss], "counts": [dict(zip(counts, trained, strict=True)), counts]}
    yield {**case, "gradient": furthest(), **schedule}
    if tensor == context == 1:
        model.zero_grad()
        batches = []
        for micro in microbatches():
            loss_mask, span_id = split_wire(micro["loss_mask"])
            batches.append({**micro, "loss_mask": loss_mask, "span_id": span_id})
        figures = figures_of(Losses(model), batches, WEIGHTS)
        found = {
            "loss": [figures["loss"], loss],
            "counts": [{name: figures[f"{name}_tokens"] for name in counts}, counts],
        }
        yield {**case, "gradient": furthest(), **found}


def main() -> None:
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    layouts = {1: [(1, 1)], 2: [(1, 1), (2, 1), (1, 2)], 4: [(1, 1), (2, 2)]}[world]
    results = []
    for tensor, context in layouts:
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor, context_parallel_size=context)
        results += [each for case in itertools.product((1, 3), SPANS) for each in compare(tensor, context, *case)]
        parallel_state.destroy_model_parallel()
    # Every rank compared its own gradients; the furthest of them counts.
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, results)
    if rank == 0:
        for number, result in enumerate(results):
            result["gradient"] = max(each[number]["gradient"] for each in gathered)
        out.write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
