"""One rank of a step on packed samples: `python -m support.packed_gradients PLAN ROOT OUT`, in `support.ranks`.

Every rank works out the gradient of L over the step's documents and windows one by one, each alone, from the files and
docs/format.md; then the ranks compute it together from packed samples through Megatron's schedule. Rank 0 writes how
far they are apart, and how many micro-batches had no label of a span.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")

from megatron.core import parallel_state  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from torch.utils.data import default_collate  # noqa: E402

from spanloom.training.batch import ReadAhead  # noqa: E402
from spanloom.training.loss import SpanWeights  # noqa: E402
from spanloom.training.packed import block_diagonal  # noqa: E402
from spanloom.training.packed_megatron import packed_datasets  # noqa: E402
from support import plan_reference  # noqa: E402
from support.megatron_options import packing_config  # noqa: E402
from support.megatron_schedule import gpt, run_step  # noqa: E402
from support.tiny_gpt import TinyGPT, alone  # noqa: E402
from support.token_datasets import VOCAB_SIZE  # noqa: E402

BATCH, SEED = 2, 1
WEIGHTS = SpanWeights({"analysis": 0.7, "final": 1.3})


class Packed(torch.nn.Module):
    """The model as Megatron's schedule calls it. The mask comes with the batch, kept aside by `get_batch`."""

    def __init__(self, model: TinyGPT, config: Any) -> None:
        super().__init__()
        self.model, self.config, self.model_type = model, config, ModelType.encoder_or_decoder
        self.waiting: list[torch.Tensor] = []

    def set_input_tensor(self, _: Any) -> None:
        pass

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, _: Any, labels: torch.Tensor) -> torch.Tensor:
        logits = self.model(tokens, positions, self.waiting.pop(0))
        return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")


def one_full_step(model: TinyGPT, plan: Path, root: Path, wanted: set[int]) -> tuple[float, list[list[int]]]:
    """L and its gradient over these samples' documents, each alone, by the definition of L; and the labels of each span
    in each sample."""
    losses: dict[int, list[torch.Tensor]] = {1: [], 2: []}
    numbered = [(shard, group) for shard in plan_reference.read_split(plan, root, "train") for group in shard.groups]
    counts = []
    for number, (shard, group) in enumerate(numbered):
        counts.append([0, 0])
        for unit in group:
            document, positions = plan_reference.pieces(shard, unit)
            logits = alone(model, [int(document.tokens[position]) for position, _ in positions])
            for place, (position, trained) in enumerate(positions):
                span = int(document.span[position])
                if trained and document.lossmask[position] and position + 1 < document.tokens.size and span:
                    counts[number][span - 1] += 1
                    if number in wanted:
                        label = torch.tensor(int(document.tokens[position + 1]))
                        losses[span].append(torch.nn.functional.cross_entropy(logits[place], label))
    loss = sum(
        (weight * torch.stack(losses[span]).mean() for span, weight in ((1, 0.7), (2, 1.3)) if losses[span]),
        start=torch.zeros(()),
    )
    loss.backward()
    return float(loss), counts


def main() -> None:
    plan, root, out = (Path(argument) for argument in sys.argv[1:4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    parallel_state.initialize_model_parallel()
    length = json.loads((plan / "plan.json").read_text())["content"]["options"]["sequence_length"]
    dataset = packed_datasets(plan, packing_config(out.parent / "cache", length, random_seed=SEED), [None] * 3)[0]
    size = {"layers": 1, "hidden": 32, "heads": 4, "vocab_size": VOCAB_SIZE, "sequence_length": length}
    config = gpt(**size, seed=3).config
    results = []
    for micro_batches in (1, 2):
        torch.manual_seed(5)
        model = Packed(TinyGPT(vocabulary=VOCAB_SIZE, positions=length), config)
        rows = BATCH * world * micro_batches
        samples = [plan_reference.sample_at(number, len(dataset), SEED, 0) for number in range(rows)]
        loss, counts = one_full_step(model.model, plan, root, set(samples))
        expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        model.zero_grad()

        def get_batch(iterator: Any, model: Packed = model) -> dict[str, torch.Tensor]:
            batch = next(iterator)
            model.waiting.append(block_diagonal(batch["cu_seqlens"], length))
            return batch

        firsts = [(number * world + rank) * BATCH for number in range(micro_batches)]
        batches = (default_collate([dataset[first + row] for row in range(BATCH)]) for first in firsts)
        loss_of_step, trained = run_step(
            model,
            ReadAhead(get_batch, lambda: len(firsts), parallel_state.get_data_parallel_group, spans=2),  # noqa: B023
            batches,
            WEIGHTS,
            micro_batches=micro_batches,
            shape=(BATCH, length),
        )
        furthest = max(
            float((parameter.grad - expected[name]).norm()) / (float(expected[name].norm()) or 1.0)
            for name, parameter in model.named_parameters()
        )
        micro = [samples[first : first + BATCH] for first in range(0, rows, BATCH)]
        without = sum(not sum(counts[sample][0] for sample in part) for part in micro)
        results.append(
            {
                "gradient": furthest,
                "loss": [loss_of_step, loss],
                "counts": [list(trained), [sum(counts[sample][span] for sample in samples) for span in (0, 1)]],
                "without_analysis": without,
                "micro_batches": len(micro),
            }
        )
    if rank == 0:
        out.write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
