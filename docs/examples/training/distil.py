"""A small student learns a dataset from the signals of a teacher. PyTorch and transformers; a CPU will do.

python distil.py teach DATASET FOLDER            weights that learned DATASET, into a model's folder: a teacher
python distil.py learn DATASET SIGNALS [STEPS]   a student of two layers; prints its loss at each step
"""

import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import spanloom
from spanloom.training import DocumentDataset, SpanWeights, distillation_loss, span_normalized_loss
from spanloom.training.loss import SpanCounts
from spanloom.training.pytorch import collate, for_transformers

Batch = dict[str, torch.Tensor]
BATCH = 4


def small_model(dataset: Path, hidden: int, seed: int) -> Any:
    """A Llama of two layers with the vocabulary of the dataset."""
    vocabulary = spanloom.open_dataset(dataset).content.tokenizer.vocab_size
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=4_096,
        )
    )


def batches(data: DocumentDataset, seed: int) -> Iterator[Batch]:
    """Batches without end, each time in another order."""
    for epoch in count():
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed + epoch)).tolist()
        for first in range(0, len(order), BATCH):
            yield collate([data[at] for at in order[first : first + BATCH]])


def teach(dataset: Path, folder: Path, steps: int = 120) -> None:
    """Writes weights to a folder with a tokenizer: a model that learned all labels of the dataset."""
    model = small_model(dataset, 64, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _, batch in zip(range(steps), batches(DocumentDataset(dataset), 0), strict=False):
        optimizer.zero_grad()
        model(**for_transformers(batch)).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)


def loss_of(model: Any, batch: Batch, weights: SpanWeights, cross_entropy: float) -> torch.Tensor:
    """The loss per span, against the teacher; `cross_entropy`: the share of the labels themselves."""
    logits = model(input_ids=batch["tokens"], attention_mask=batch["attention_mask"]).logits
    losses = distillation_loss(
        logits,
        batch["teacher_ids"],
        batch["teacher_logprobs"],
        batch["teacher_rest"],
        labels=batch["labels"] if cross_entropy else None,
        cross_entropy=cross_entropy,
    )
    mask = batch["loss_mask"] * batch["teacher_mask"]
    counts = SpanCounts.of(mask, batch["span_id"], len(weights))
    return span_normalized_loss(losses, mask, batch["span_id"], counts, weights)


def student(
    dataset: Path, signals: Path, *, seed: int = 0, hidden: int = 32, cross_entropy: float = 0.0
) -> Iterator[tuple[Any, list[float]]]:
    """The student and its losses so far: as it begins, and after each step, without end. With `cross_entropy=1` it does
    not look at the teacher."""
    model = small_model(dataset, hidden, seed)
    data = DocumentDataset(dataset, teacher=signals, missing_teacher="zero")
    weights = SpanWeights(dict.fromkeys(spanloom.open_dataset(dataset).span_names[1:], 1.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    yield model, losses
    for batch in batches(data, seed):
        optimizer.zero_grad()
        loss = loss_of(model, batch, weights, cross_entropy)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        yield model, losses


def learn(dataset: Path, signals: Path, steps: int, **options: Any) -> tuple[Any, list[float]]:
    """The student after so many steps, and its loss at each. `options`: of `student`."""
    return next(islice(student(dataset, signals, **options), steps, None))


if __name__ == "__main__":
    torch.set_num_threads(1)  # the matrices are small
    verb, dataset, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if verb == "teach":
        teach(dataset, folder)
    else:
        for number, loss in enumerate(learn(dataset, folder, int([*sys.argv, "10"][4]))[1]):
            print(f"step {number}: loss {loss:.4f}")
