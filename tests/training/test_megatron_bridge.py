"""The lines for Megatron-Bridge in its page of docs/training, against stand-ins of its modules and Megatron's schedule.

Bridge itself does not run here (Python 3.12, packages for GPUs). The stand-ins have the names and signatures that its
sources of August 2026 have; what is held against each other is the gradient of a step and the figures of an evaluation.
"""

import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch.utils.data import default_collate

from spanloom.training.loss import SpanWeights
from spanloom.training.megatron_dataset import DatasetTokenizer
from support.megatron_lm import REPOSITORY
from support.megatron_options import TOKENIZER, config
from support.megatron_schedule import CpuForCuda, gpt
from support.one_process import one_process
from support.token_datasets import VOCAB_SIZE, random_shards, write_dataset

STEP = """
from functools import partial

def get_batch(data_iterator, cfg, use_mtp=False, *, pg_collection, vp_stage=None):
    batch = next(data_iterator)
    return batch["tokens"], batch["labels"], batch["loss_mask"], None, batch["position_ids"], None

def masked_next_token_loss(loss_mask, output_tensor, check_for_nan_in_loss=True, check_for_spiky_loss=False):
    loss = (output_tensor * loss_mask).sum()
    return loss, loss_mask.sum().int(), {}

def forward_step(state, data_iterator, model):
    tokens, labels, loss_mask, mask, positions, _ = get_batch(
        data_iterator, state, False, pg_collection=None, vp_stage=None
    )
    losses = model(tokens, positions, mask, labels=labels)
    return losses, partial(masked_next_token_loss, loss_mask, check_for_nan_in_loss=True, check_for_spiky_loss=False)
"""
LENGTH, MICRO = 16, 3


def evaluate(state: Any, forward_step: Any, data_iterator: Any, model: Any, config: Any) -> tuple[Any, None, bool]:
    """Two iterations of MICRO micro-batches."""
    totals: dict[str, torch.Tensor] = {}
    for _ in range(2):
        schedule = sys.modules["megatron.bridge.training.eval"].get_forward_backward_func()
        for report in run(schedule, forward_step, data_iterator, model, forward_only=True):
            for name, value in report.items():
                totals[name] = totals.get(name, 0) + value
    return {name: value[0] / value[1] for name, value in totals.items()}, None, False


def run(schedule: Any, forward_step: Any, data_iterator: Any, model: Any, **more: Any) -> Any:
    with CpuForCuda():
        return schedule(
            forward_step_func=forward_step,
            data_iterator=data_iterator,
            model=model,
            num_microbatches=MICRO,
            micro_batch_size=1,
            seq_length=LENGTH,
            **{"forward_only": False, **more},
        )


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    names = ("", ".data", ".data.utils", ".training", ".training.eval", ".training.gpt_step", ".training.train")
    modules = {name: ModuleType(f"megatron.bridge{name}") for name in names}
    for name, module in modules.items():
        module.__file__ = f"bridge{name}.py"
        monkeypatch.setitem(sys.modules, module.__name__, module)
        parent, _, own = name.rpartition(".")
        if own:
            setattr(modules[parent], own, module)
    modules[".data.utils"].GPTDataset = GPTDataset
    exec(STEP, vars(modules[".training.gpt_step"]))
    for name in (".training.train", ".training.eval"):
        modules[name].get_forward_backward_func = get_forward_backward_func
    modules[".training.eval"].evaluate = evaluate
    return modules


def test_the_lines_make_its_step_the_gradient_of_the_definition(bridge: dict[str, ModuleType], tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "root", {"train": random_shards(0, [[40] * 8])})
    text = (REPOSITORY / "docs/training/megatron-bridge.md").read_text()
    (block,) = re.findall(r"^## The loss per span\n.*?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {}
    exec(block.replace('"data/demo/synth_kd"', repr(str(root))), found)
    assert found["step"]._weights == SpanWeights({"analysis": 1.0, "final": 1.0})

    theirs = DatasetTokenizer(**{**TOKENIZER.unique_identifiers, "eod": 5})  # as the model's, with another eos
    options = config(tmp_path / "cache", LENGTH, tokenizer=theirs)
    options.blend_per_split = [([f"{root}/train/shard_00_tokens"], None), None, None]
    kind = bridge[".data.utils"].GPTDataset
    gpt_step, train, evaluation = (bridge[f".training.{name}"] for name in ("gpt_step", "train", "eval"))
    with one_process():
        dataset = BlendedMegatronDatasetBuilder(kind, [None, None, None], lambda: True, options).build()[0]
        samples = [default_collate([dataset[number]]) for number in range(3 * MICRO)]
        model = gpt(layers=1, hidden=16, heads=2, vocab_size=VOCAB_SIZE, sequence_length=LENGTH, seed=0)

        def definition(batches: list[dict[str, torch.Tensor]]) -> torch.Tensor:
            """L of the batches together; the mask of each carries the span."""
            losses = [model(each["tokens"], each["position_ids"], None, labels=each["labels"]) for each in batches]
            spans = torch.cat([each["loss_mask"] for each in batches])
            return sum(torch.cat(losses)[spans == span].mean() for span in (1, 2))

        expected = torch.autograd.grad(definition(samples[:MICRO]), list(model.parameters()))
        forward_step = partial(gpt_step.forward_step, None)
        run(train.get_forward_backward_func(), forward_step, iter(samples[:MICRO]), model)
        for parameter, right in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, right, rtol=1e-4, atol=1e-6)
        figures, _, _ = evaluation.evaluate(None, forward_step, iter(samples[MICRO:]), model, None)
        assert float(figures["weighted loss"]) == pytest.approx(float(definition(samples[MICRO:]).detach()), rel=1e-5)
