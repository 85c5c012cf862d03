"""AdamW in fp32 over the parameters of a model in fp32 or bf16.

In: the model. Out: an update from the gradients that `schedule.run_step` leaves. bf16 has 8 bits of precision, so
gradients are added over micro-batches in fp32 (`main_grad`, Megatron's name), and fp32 copies of the weights are kept.
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from spanloom.training.reference.schedule import gradient_of


class MasterAdamW:
    """Owns the fp32 weights and Adam's moments."""

    def __init__(self, model: Any, *, learning_rate: float, weight_decay: float) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._masters = [
            parameter if parameter.dtype == torch.float32 else torch.nn.Parameter(parameter.detach().float())
            for parameter in self._parameters
        ]
        for parameter in self._parameters:
            if parameter.dtype != torch.float32:
                parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
                parameter.register_post_accumulate_grad_hook(_add_to_main_grad)
        decayed = [master for master in self._masters if master.ndim > 1]
        plain = [master for master in self._masters if master.ndim <= 1]
        self._adam = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}],
            lr=learning_rate,
            betas=(0.9, 0.95),
        )

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
            if hasattr(parameter, "main_grad"):
                parameter.main_grad.zero_()

    def step(self, *, learning_rate: float, clip: float) -> float:
        """One update. Returns the norm of the gradient before it was clipped to `clip` (0: not clipped)."""
        norm = self._gradient_norm()
        scale = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            gradient = gradient_of(parameter)
            master.grad = None if gradient is None else gradient * scale
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                if parameter is not master:
                    parameter.copy_(master)
        return norm

    def state(self) -> dict[str, Any]:
        return {"adam": self._adam.state_dict(), "masters": [master.detach() for master in self._masters]}

    def load(self, state: dict[str, Any]) -> None:
        self._adam.load_state_dict(state["adam"])
        with torch.no_grad():
            for parameter, master, saved in zip(self._parameters, self._masters, state["masters"], strict=True):
                master.copy_(saved)
                parameter.copy_(saved)

    def _gradient_norm(self) -> float:
        """Norm over the whole model: counts sharded parameters on every tensor-parallel rank, others on the first."""
        first = parallel_state.get_tensor_model_parallel_rank() == 0
        squares = torch.zeros((), dtype=torch.float64, device=self._parameters[0].device)
        for parameter in self._parameters:
            gradient = gradient_of(parameter)
            if gradient is not None and (first or getattr(parameter, "tensor_model_parallel", False)):
                squares += gradient.double().pow(2).sum()
        dist.all_reduce(squares, group=parallel_state.get_tensor_model_parallel_group())
        return math.sqrt(float(squares))


def _add_to_main_grad(parameter: torch.nn.Parameter) -> None:
    parameter.main_grad += parameter.grad
    parameter.grad = None
