"""One rank of `python -m spanloom.training.pretrain_gpt` on a CPU: `torchrun … pretrain_gpt_rank.py FLAGS`.

`cpu_shim` (see tests/training/test_pretrain_gpt.py) stands in for CUDA. With SPANLOOM_CHECK=FILE each step and each
evaluation is computed a second time, by plain torch from the definition of L, and rank 0 writes both to FILE.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import cpu_shim  # noqa: F401  before torch and megatron
import torch
import torch.distributed as dist

from spanloom.training import pretrain_gpt

WEIGHTS = {"analysis": 0.5, "final": 2.0}
"""Those of the flag `--span-weights` in the tests."""


CROSS_ENTROPY = 0.25
"""That of the flag `--teacher-cross-entropy` in the tests."""


def losses_against_a_teacher(model: Any, batch: dict[str, Any]) -> Any:
    """By the definition: the top k are classes, and all other tokens are one more."""
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region as gathered

    whole = gathered(model(batch["tokens"], batch["position_ids"], None)).double().log_softmax(-1)
    ids = batch["teacher_ids"]
    others = whole.scatter(2, ids, -torch.inf).logsumexp(2, keepdim=True)
    student = torch.cat([whole.gather(2, ids), others], 2)
    teacher = torch.cat([batch["teacher_logprobs"], batch["teacher_rest"][..., None]], 2).double()
    divergence = (teacher.exp() * (teacher - student)).sum(2)
    own = whole.gather(2, batch["labels"][..., None])[..., 0]
    return ((1 - CROSS_ENTROPY) * divergence - CROSS_ENTROPY * own).float()


def reference(model: Any, batches: list[dict[str, Any]]) -> tuple[Any, dict[str, float]]:
    """L over a whole step at once, and the figures of its spans. The mask of each batch carries the span."""
    spans = torch.cat([batch["loss_mask"] for batch in batches])
    losses = torch.cat(
        [
            losses_against_a_teacher(model, batch)
            if "teacher_ids" in batch
            else model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
            for batch in batches
        ]
    )
    total, figures = losses.sum() * 0.0, {}
    for number, (name, weight) in enumerate(WEIGHTS.items(), start=1):
        chosen = losses[spans == number]
        figures |= {f"{name} loss": float(chosen.double().mean()), f"{name} tokens": chosen.numel()}
        total = total + weight * chosen.mean()
    figures |= {"weighted loss": float(total), "lm loss": float(losses[spans > 0].double().mean())}
    return total, figures


def read_step(data_iterator: Any, micro_batches: int) -> tuple[Any, list[dict[str, Any]]]:
    """The iterator again, and the micro-batches of all data-parallel ranks. Of tensor-parallel ones the first reads."""
    from megatron.core import parallel_state
    from megatron.core.rerun_state_machine import RerunDataIterator

    read: Any = [None if data_iterator is None else [next(data_iterator) for _ in range(micro_batches)]]
    tensor_parallel = parallel_state.get_tensor_model_parallel_group()
    dist.broadcast_object_list(read, parallel_state.get_tensor_model_parallel_src_rank(), group=tensor_parallel)
    own = read[0]
    group = parallel_state.get_data_parallel_group()
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, own, group=group)
    again = None if data_iterator is None else RerunDataIterator(iter(own))
    return again, [batch for batches in gathered for batch in batches]


def check(out: Path) -> None:
    """Wraps Megatron's step and evaluation."""
    from megatron.core.num_microbatches_calculator import get_num_microbatches
    from megatron.training import get_args, training

    records: list[dict[str, Any]] = []
    stock_step, stock_evaluate = training.train_step, training.evaluate

    def write() -> None:
        if dist.get_rank() == 0:
            out.write_text(json.dumps(records))

    def train_step(forward_step: Any, data_iterator: Any, model: Any, *rest: Any, **more: Any) -> Any:
        data_iterator, batches = read_step(data_iterator, get_num_microbatches())
        loss, figures = reference(model[0].module, batches)
        parameters = dict(model[0].module.named_parameters())
        expected = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        result = stock_step(forward_step, data_iterator, model, *rest, **more)
        gradient, change = 0.0, 0.0
        for (name, parameter), right in zip(parameters.items(), expected, strict=True):
            right = torch.zeros_like(parameter) if right is None else right
            gradient = max(gradient, float((parameter.main_grad - right).norm() / right.norm().clamp(min=1e-12)))
            step = before[name] - parameter.detach() - get_args().lr * right
            change = max(change, float(step.abs().max()))
        logged = {name: float(value) for name, value in result[0].items()}
        records.append({"kind": "train", "gradient": gradient, "change": change, "logged": logged, "right": figures})
        write()
        return result

    def evaluate(forward_step: Any, data_iterator: Any, model: Any, *rest: Any, **more: Any) -> Any:
        args = get_args()
        micro_batches = args.global_batch_size // (args.micro_batch_size * args.data_parallel_size) * args.eval_iters
        data_iterator, batches = read_step(data_iterator, micro_batches)
        with torch.no_grad():
            _, figures = reference(model[0].module, batches)
        result = stock_evaluate(forward_step, data_iterator, model, *rest, **more)
        # A micro-batch without a span of its own is what a denominator of 1 would show in.
        lacking = sum(not bool((batch["loss_mask"] == span).any()) for batch in batches for span in (1, 2))
        logged = {name: float(value) for name, value in result[0].items()}
        records.append({"kind": "valid", "lacking": lacking, "logged": logged, "right": figures})
        write()
        return result

    training.train_step, training.evaluate = train_step, evaluate


def main() -> int:
    if "SPANLOOM_CHECK" in os.environ:
        prepare = pretrain_gpt.prepare

        def prepare_and_check(*args: Any) -> None:
            prepare(*args)
            check(Path(os.environ["SPANLOOM_CHECK"]))

        pretrain_gpt.prepare = prepare_and_check
    return pretrain_gpt.main()


if __name__ == "__main__":
    code = main()
    # All is written. Where Python ends itself, a thread of gloo may abort the process: "terminate called without an
    # active exception".
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
