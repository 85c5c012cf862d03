"""The loss per span in Hugging Face's `Trainer`, and in trainers built on it, such as TRL's `SFTTrainer`.

In: a trainer class; samples: rows of an export (`spanloom export`) or, except for `SFTTrainer`, documents of
`DocumentDataset`. Out: a subclass with the loss L, and a collate function. Batches have the keys and the alignment of
Hugging Face, plus `span_id`:

    span_trainer(SFTTrainer, SpanWeights.equal(content.span_names))(model, …, data_collator=collate)

The trainer gathers the micro-batches of a step before it runs them (`get_batch_samples`), so the counts of the whole
step, over gradient accumulation and ranks, are known before the first backward pass. Evaluation computes means over all
of its batches together, not a mean of batch means. This module does not import transformers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from spanloom.errors import DatasetError
from spanloom.supervision import IGNORED
from spanloom.training import pytorch
from spanloom.training.distillation.loss import TeacherLoss
from spanloom.training.loss import SpanCounts, SpanWeights, span_normalized_loss, span_sums, summed_over_ranks

TEACHER_KEYS = ("teacher_ids", "teacher_logprobs", "teacher_own", "teacher_rest", "teacher_mask")


def collate(samples: Sequence[Mapping[str, Any]], *, max_length: int | None = None) -> dict[str, torch.Tensor]:
    """Samples of any lengths → int64 `[B, longest]`, padded at the end: inputs of Hugging Face models, and `span_id`.

        input_ids, attention_mask   the model's; attention_mask is 0 on padding
        labels                      token t itself, −100 where it carries no loss: models shift labels themselves
        span_id                     of token t
        teacher_…                   of the label that position t predicts, if the documents have them

    `max_length` cuts longer documents at their end, as `truncation` does.
    """
    if "tokens" in samples[0]:
        batch = pytorch.collate([dict(sample) for sample in samples])
        columns = {**pytorch.for_transformers(batch), "span_id": torch.zeros_like(batch["span_id"])}
        columns["span_id"][:, 1:] = batch["span_id"][:, :-1]  # ours is of the label, token t + 1
        columns |= {key: value for key, value in batch.items() if key in TEACHER_KEYS}
    else:
        of_rows = {
            key: [torch.as_tensor(sample[key], dtype=torch.int64) for sample in samples]
            for key in ("input_ids", "labels", "span_id")
        }
        of_rows["attention_mask"] = [torch.ones_like(row) for row in of_rows["input_ids"]]
        columns = {
            key: torch.nn.utils.rnn.pad_sequence(
                rows, batch_first=True, padding_value=IGNORED if key == "labels" else 0
            )
            for key, rows in of_rows.items()
        }
    return {key: value[:, :max_length] for key, value in columns.items()}


def span_trainer(trainer: type[Any], weights: SpanWeights, *, teacher: TeacherLoss | None = None) -> type[Any]:
    """Returns a subclass of `trainer` that trains L and logs each span. `teacher`: L of the loss against a teacher,
    whose signals the documents have (`DocumentDataset(root, teacher=SIGNALS)`); labels without signals are left out.

    Logged beside `loss` (L, a mean over the steps since the last log): `NAME_loss` and `NAME_tokens` over those steps;
    in evaluation `eval_loss`, `eval_NAME_loss` and `eval_NAME_tokens` over all batches (with several ranks the trainer
    repeats samples if their number is not divisible). Give it `data_collator=collate`, `remove_unused_columns=False`
    and, with TRL, `dataset_kwargs={"skip_prepare_dataset": True}`. A trained token whose span has no weight raises
    DatasetError.
    """
    spans = len(weights)

    class SpanTrainer(trainer):  # type: ignore[misc]  # a class that is known when this runs
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # The loss is normalized over the whole step, see `get_batch_samples`: the trainer must not divide it again.
            self.model_accepts_loss_kwargs = True
            self._step_counts: SpanCounts | None = None
            self._seen = {True: _Seen(spans), False: _Seen(spans)}  # in training, in evaluation

        def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[Any, Any]:
            samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
            counts = SpanCounts(tokens=torch.zeros(spans, dtype=torch.int64, device=device))
            for batch in samples:
                mask, span = _supervision(batch)
                _check_spans(mask, span, weights)
                own = SpanCounts.of(mask, span, spans)
                counts += SpanCounts(tokens=own.tokens.to(device))
            self._step_counts = counts.all_reduced()
            return samples, self._step_counts.tokens.sum()

        def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
            mask, span = _supervision(inputs)
            outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
            logits, labels = outputs.logits[:, :-1], inputs["labels"][:, 1:]
            if teacher is None:
                losses = torch.nn.functional.cross_entropy(logits.float().transpose(1, 2), labels, reduction="none")
            else:
                said = {key: inputs[key][:, :-1] for key in TEACHER_KEYS}
                losses = teacher.of(logits, labels, said)
            own = SpanCounts.of(mask, span, spans)
            self._seen[model.training].add(span_sums(losses.detach(), mask, span, spans), own)
            counts = self._step_counts if model.training and self._step_counts is not None else own
            loss = span_normalized_loss(losses, mask, span, counts, weights)
            if model.training:
                loss = loss * self.accelerator.num_processes  # gradients are averaged over ranks; shares of L add up
            return (loss, outputs) if return_outputs else loss

        def prediction_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> tuple[Any, None, None]:
            with torch.no_grad():
                return self.compute_loss(model, self._prepare_inputs(inputs)).detach(), None, None

        def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
            evaluation = "eval_loss" in logs
            if evaluation or "loss" in logs:
                means, tokens = self._seen[not evaluation].taken()
                prefix = "eval_" if evaluation else ""
                for name, mean, count in zip(weights.names, means, tokens, strict=True):
                    logs |= {f"{prefix}{name}_loss": mean, f"{prefix}{name}_tokens": count}
                if evaluation:
                    logs["eval_loss"] = sum(
                        weight * mean for weight, mean in zip(weights.by_name.values(), means, strict=True)
                    )
            super().log(logs, *args, **kwargs)

    SpanTrainer.__name__ = SpanTrainer.__qualname__ = f"Span{trainer.__name__}"
    return SpanTrainer


def _supervision(batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss mask and span of the label that each position predicts, without the last position: `[B, S − 1]`."""
    mask = (batch["labels"][:, 1:] != IGNORED).to(torch.float32)
    if "teacher_mask" in batch:
        mask = mask * batch["teacher_mask"][:, :-1]
    return mask, batch["span_id"][:, 1:]


def _check_spans(loss_mask: torch.Tensor, span_id: torch.Tensor, weights: SpanWeights) -> None:
    """Raises DatasetError if the span of a trained label has no weight: it would silently stay untrained."""
    span = int((span_id * (loss_mask > 0)).max()) if span_id.numel() else 0
    if span > len(weights):
        raise DatasetError(
            f"a trained token is of span {span}, and weights are given for {len(weights)}: {', '.join(weights.names)}",
            remedy="give a weight to each trained span, in the order of the manifest's span_names; 0 for none",
        )


class _Seen:
    """Loss sums and token counts of each span on this rank since the last call of `taken`."""

    def __init__(self, spans: int) -> None:
        self._sums, self._counts = torch.zeros(spans, dtype=torch.float64), torch.zeros(spans, dtype=torch.int64)

    def add(self, sums: torch.Tensor, counts: SpanCounts) -> None:
        self._sums, self._counts = self._sums.to(sums.device), self._counts.to(sums.device)
        self._sums += sums
        self._counts += counts.tokens

    def taken(self) -> tuple[list[float], list[int]]:
        """Returns mean loss (0 without tokens) and token count of each span over all ranks, and resets both."""
        sums, counts = summed_over_ranks(self._sums), summed_over_ranks(self._counts)
        self._sums, self._counts = torch.zeros_like(sums), torch.zeros_like(counts)
        return (sums / counts.clamp(min=1)).tolist(), counts.tolist()
