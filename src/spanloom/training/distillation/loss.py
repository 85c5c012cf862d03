"""The loss against a teacher's most probable tokens, per label: any loss of `spanloom.training.loss` takes it.

In: logits of a student, the signals of a teacher at the same labels. Out: a divergence per label. The teacher's top k
are k classes, and all other tokens are one class more, so that no probability is lost: with k = the whole vocabulary
this is the divergence of the two distributions.

Beside the logits and their gradient, memory is k + 2 values a label. Logits may be split over the ranks of a group by
vocabulary, as Megatron's tensor parallelism splits them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist

from spanloom.errors import OptionError

Divergence = Literal["forward", "reverse", "jensen-shannon"]

ROWS = 1 << 24
"""Logits in float32 that are held at once, beside those that were given."""

NOTHING = -100.0
"""The lowest log-probability of the rest."""


def distillation_loss(
    logits: torch.Tensor,
    teacher_ids: torch.Tensor,
    teacher_logprobs: torch.Tensor,
    teacher_rest: torch.Tensor,
    *,
    divergence: Divergence = "forward",
    temperature: float = 1.0,
    labels: torch.Tensor | None = None,
    cross_entropy: float = 0.0,
    group: Any = None,
    first: int = 0,
) -> torch.Tensor:
    """Divergence of student and teacher at each label: float32 of the shape of `teacher_rest`, `[…]`.

    logits           [… , V], of the token that each position predicts; with `group`, this rank's part of V
    teacher_ids      int64 [… , k], distinct; `teacher_logprobs` float32 [… , k], `teacher_rest` float32 […]
    divergence       forward: KL(teacher ‖ student); reverse: KL(student ‖ teacher); jensen-shannon: of both
    temperature      of the k + 1 classes of both; the loss is multiplied by its square
    cross_entropy    the share of the cross entropy of `labels`, int64 […], in the loss: 0 to 1
    group, first     the ranks that share the vocabulary, and the first id of this one

    Positions without an entry give a value that means nothing: multiply by `teacher_mask`, or leave them out of the
    loss mask. Raises OptionError for a temperature or share out of range.
    """
    if temperature <= 0 or not 0 <= cross_entropy <= 1:
        raise OptionError(f"temperature is {temperature}, cross_entropy is {cross_entropy}: above 0, and from 0 to 1")
    if (labels is None) != (cross_entropy == 0):
        raise OptionError("labels and cross_entropy go together")
    k = teacher_ids.shape[-1]
    columns = teacher_ids if labels is None else torch.cat([teacher_ids, labels[..., None]], -1)
    found = _Classes.apply(
        logits.reshape(-1, logits.shape[-1]), columns.reshape(-1, columns.shape[-1]), k, group, first
    )
    student = torch.cat([found[:, :k], found[:, -1:]], -1)
    teacher = torch.cat([teacher_logprobs.reshape(-1, k), teacher_rest.reshape(-1, 1)], -1).float()
    if k == logits.shape[-1] * (1 if group is None else dist.get_world_size(group)):  # there is no rest
        student, teacher = student[:, :-1], teacher[:, :-1]
    if temperature != 1:
        student = (student / temperature).log_softmax(-1)
        teacher = (teacher / temperature).log_softmax(-1)
    loss = _divergence(teacher, student, divergence) * temperature**2
    if labels is not None:
        loss = (1 - cross_entropy) * loss - cross_entropy * found[:, k]
    return loss.view(teacher_rest.shape)


@dataclass(frozen=True, kw_only=True)
class TeacherLoss:
    """The options of `distillation_loss`, for trainers that call it with batches. `cross_entropy`: its share."""

    cross_entropy: float = 0.0
    divergence: Divergence = "forward"
    temperature: float = 1.0

    def of(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        *,
        group: Any = None,
        first: int = 0,
    ) -> torch.Tensor:
        """float32 [B, S]. logits [B, S, V], labels [B, S]: of the label that each position predicts; `batch`: with the
        `teacher_…` of these positions, as samples of `DocumentDataset` have them. `group`, `first`: as for
        `distillation_loss`."""
        return distillation_loss(
            logits,
            batch["teacher_ids"],
            batch["teacher_logprobs"],
            batch["teacher_rest"],
            divergence=self.divergence,
            temperature=self.temperature,
            labels=labels.clamp(min=0) if self.cross_entropy else None,
            cross_entropy=self.cross_entropy,
            group=group,
            first=first,
        )


def _divergence(teacher: torch.Tensor, student: torch.Tensor, kind: Divergence) -> torch.Tensor:
    """[N, C] log-probabilities each → [N]."""
    if kind == "forward":
        return (teacher.exp() * (teacher - student)).sum(-1)
    if kind == "reverse":
        return (student.exp() * (student - teacher)).sum(-1)
    middle = torch.logaddexp(teacher, student) - torch.log(torch.tensor(2.0))
    return 0.5 * ((teacher.exp() * (teacher - middle)) + (student.exp() * (student - middle))).sum(-1)


class _Classes(torch.autograd.Function):  # type: ignore[misc]  # torch is not followed by mypy here
    """Log-probabilities of some tokens and of all others together: [N, V], int64 [N, C] → float32 [N, C + 1].

    The first `k` of the C ids are those that "all others" leaves out. Its gradient is written down here: by automatic
    differentiation, log(1 − Σ p) of the few has no digits left where they have nearly all the probability.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, ids: torch.Tensor, k: int, group: Any, first: int) -> torch.Tensor:
        found = torch.empty((ids.shape[0], ids.shape[1] + 1), dtype=torch.float32, device=logits.device)
        whole, rest = (torch.empty(ids.shape[0], dtype=torch.float32, device=logits.device) for _ in range(2))
        for rows in _chunks(logits):
            part, own, inside = _part(logits, ids, rows, first)
            top = _reduced(part.max(-1).values, group, dist.ReduceOp.MAX)
            chosen = torch.where(inside, part.gather(1, own), 0.0)
            exponents = (part - top[:, None]).exp_()
            sums = torch.stack([exponents.sum(-1), _without(exponents, own[:, :k], inside[:, :k]).sum(-1)])
            sums = _reduced(sums, group, dist.ReduceOp.SUM)
            whole[rows], rest[rows] = sums.log() + top
            found[rows, :-1] = _reduced(chosen, group, dist.ReduceOp.SUM) - whole[rows, None]
            found[rows, -1] = (rest[rows] - whole[rows]).clamp(min=NOTHING)
        ctx.save_for_backward(logits, ids, whole, rest)
        ctx.k, ctx.first = k, first
        return found

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits, ids, whole, rest = ctx.saved_tensors
        result = torch.empty_like(logits)
        total = grad.sum(-1)
        for rows in _chunks(logits):
            part, own, inside = _part(logits, ids, rows, ctx.first)
            others = (part - rest[rows, None]).exp_().nan_to_num_(0.0, 0.0, 0.0) * grad[rows, -1:]
            gradient = _without(others, own[:, : ctx.k], inside[:, : ctx.k])
            gradient -= (part - whole[rows, None]).exp_() * total[rows, None]
            gradient.scatter_add_(1, own, torch.where(inside, grad[rows, :-1], 0.0))
            result[rows] = gradient.to(result.dtype)
        return result, None, None, None, None


def _chunks(logits: torch.Tensor) -> Iterator[slice]:
    step = max(1, ROWS // logits.shape[1])
    return (slice(begin, begin + step) for begin in range(0, logits.shape[0], step))


def _part(
    logits: torch.Tensor, ids: torch.Tensor, rows: slice, first: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits in float32, the columns of the ids in them, 0 where another rank has the id, and whether this one has."""
    own = ids[rows] - first
    inside = (own >= 0) & (own < logits.shape[1])
    return logits[rows].float(), torch.where(inside, own, 0), inside


def _without(values: torch.Tensor, columns: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """A copy with 0 in the columns of each row that are inside."""
    left = torch.ones_like(values, dtype=torch.bool)
    left.scatter_(1, columns, ~inside)
    # Columns of other ranks are 0 here: where column 0 is inside too, it is left out.
    zero = (columns == 0) & inside
    left[:, 0] = ~zero.any(-1)
    return torch.where(left, values, 0.0)


def _reduced(values: torch.Tensor, group: Any, operation: Any) -> torch.Tensor:
    if group is not None and dist.get_world_size(group) > 1:
        values = values.contiguous()
        dist.all_reduce(values, operation, group=group)
    return values
