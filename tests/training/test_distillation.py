"""The loss against a teacher equals that of whole distributions in float64; samples carry signals at their labels."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import spanloom
from spanloom.dataset.root.opened import content_at
from spanloom.errors import DatasetError, OptionError
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.sources.hugging import HuggingFaceTeacher
from spanloom.training import DocumentDataset, SpanWeights, distillation_loss, hugging_face, span_normalized_loss
from spanloom.training.distillation import loss as module
from spanloom.training.distillation.loss import TeacherLoss
from spanloom.training.hugging_face import span_trainer
from spanloom.training.loss import SpanCounts
from spanloom.training.pytorch import collate
from support.nightly import nightly
from support.ranks import run_ranks
from support.teachers import documents, expected, write_scored_dataset, write_teacher

V = 50


def drawn(k: int, *, sharp: float = 1.0, rows: int = 40) -> tuple[torch.Tensor, ...]:
    """Logits of a student; the top k of a teacher: ids, log-probabilities, rest; and its log-probabilities, float64."""
    generator = torch.Generator().manual_seed(k)
    logits = torch.randn((rows, V), generator=generator, dtype=torch.float64) * sharp
    teacher = (torch.randn((rows, V), generator=generator, dtype=torch.float64) * sharp).log_softmax(-1)
    top = teacher.topk(k)
    rest = teacher.scatter(1, top.indices, -torch.inf).logsumexp(-1)
    return logits, top.indices, top.values, rest, teacher


def reference(
    kind: str, logits: torch.Tensor, ids: torch.Tensor, teacher: torch.Tensor, rest: torch.Tensor, temperature: float
) -> torch.Tensor:
    """float64, by the definitions, with the rest as one class where there is one."""
    whole = logits.log_softmax(-1)
    student = whole.gather(1, ids)
    if ids.shape[1] < logits.shape[1]:
        student = torch.cat([student, whole.scatter(1, ids, -torch.inf).logsumexp(-1, keepdim=True)], -1)
        teacher = torch.cat([teacher, rest[:, None]], -1)
    p, q = (teacher / temperature).softmax(-1), (student / temperature).softmax(-1)
    middle = (p + q) / 2
    values = {
        "forward": (p * (p / q).log()).sum(-1),
        "reverse": (q * (q / p).log()).sum(-1),
        "jensen-shannon": (p * (p / middle).log()).sum(-1) / 2 + (q * (q / middle).log()).sum(-1) / 2,
    }
    return values[kind] * temperature**2


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("sharp", [1.0, 8.0])
@pytest.mark.parametrize("k", [1, 6, V])
@pytest.mark.parametrize("kind", ["forward", "reverse", "jensen-shannon"])
def test_value_and_gradient_are_those_of_float64(
    kind: str, k: int, sharp: float, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks of three rows."""
    monkeypatch.setattr(module, "ROWS", 3 * V)
    logits, ids, top, rest, _ = drawn(k, sharp=sharp)
    exact = logits.clone().requires_grad_()
    wanted = reference(kind, exact, ids, top, rest, temperature)
    wanted.sum().backward()
    single = logits.float().requires_grad_()
    found = distillation_loss(
        single,
        ids,
        top.float(),
        rest.float().clamp(min=-32),
        divergence=kind,
        temperature=temperature,  # type: ignore[arg-type]
    )
    found.sum().backward()
    assert exact.grad is not None
    assert single.grad is not None
    assert torch.allclose(found.double(), wanted, atol=2e-5 * sharp, rtol=2e-5)
    assert (single.grad.double() - exact.grad).abs().max() < 1e-5 * sharp * temperature


def test_the_rest_keeps_its_digits_where_little_is_left() -> None:
    """Where the top k have nearly all of both: the gradient of the rest, by subtraction, would be noise."""
    logits = torch.zeros((1, V), dtype=torch.float64)
    logits[0, 0] = 30.0
    teacher = torch.full((1, V), -20.0, dtype=torch.float64)
    teacher[0, 0] = 0
    teacher = teacher.log_softmax(-1)
    top = teacher.topk(1)
    rest = teacher.scatter(1, top.indices, -torch.inf).logsumexp(-1)
    exact = logits.clone().requires_grad_()
    reference("forward", exact, top.indices, top.values, rest, 1.0).backward()
    single = logits.float().requires_grad_()
    distillation_loss(single, top.indices, top.values.float(), rest.float()).backward()
    assert single.grad is not None
    assert exact.grad is not None
    assert torch.allclose(single.grad[0, 1:].double(), exact.grad[0, 1:], rtol=1e-4, atol=0)
    assert abs(single.grad[0, 0] - exact.grad[0, 0]) < torch.finfo(torch.float32).eps


def test_cross_entropy_has_its_share() -> None:
    logits, ids, top, rest, _ = drawn(4)
    labels = torch.arange(40) % V
    single = logits.float()
    plain = distillation_loss(single, ids, top.float(), rest.float())
    mixed = distillation_loss(single, ids, top.float(), rest.float(), labels=labels, cross_entropy=0.25)
    entropy = torch.nn.functional.cross_entropy(single, labels, reduction="none")
    assert torch.allclose(mixed, 0.75 * plain + 0.25 * entropy, atol=1e-5)
    with pytest.raises(OptionError):
        distillation_loss(single, ids, top.float(), rest.float(), labels=labels)
    with pytest.raises(OptionError):
        distillation_loss(single, ids, top.float(), rest.float(), temperature=0)


def split_over_ranks() -> None:
    """Run by each rank: its part of the vocabulary gives the loss of the whole, and its part of the gradient."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    logits, ids, top, rest, _ = drawn(6, sharp=3.0)
    labels = torch.arange(40) % V
    whole = logits.float().requires_grad_()
    wanted = distillation_loss(whole, ids, top.float(), rest.float(), labels=labels, cross_entropy=0.5)
    wanted.sum().backward()
    first, last = rank * V // size, (rank + 1) * V // size
    part = logits.float()[:, first:last].clone().requires_grad_()
    found = distillation_loss(
        part,
        ids,
        top.float(),
        rest.float(),
        labels=labels,
        cross_entropy=0.5,
        group=dist.group.WORLD,
        first=first,
    )
    found.sum().backward()
    assert torch.allclose(found, wanted, atol=1e-5)
    assert whole.grad is not None
    assert part.grad is not None
    assert torch.allclose(part.grad, whole.grad[:, first:last], atol=1e-6)
    print("equal")


@pytest.mark.parametrize("ranks", [nightly(2), 4])
def test_a_vocabulary_split_over_ranks_gives_the_same(ranks: int) -> None:
    for done in run_ranks("training.test_distillation", ranks=ranks):
        assert done.returncode == 0, done.stderr
        assert "equal" in done.stdout


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("scored")
    root, model = write_scored_dataset(folder)
    teacher = HuggingFaceTeacher(model, vocabulary=content_at(root).tokenizer.vocab_size)
    score(root, folder / "signals", teacher, Scoring(k=5))
    return root, model, folder / "signals"


def test_samples_have_the_signals_of_their_labels(scored: tuple[Path, Path, Path]) -> None:
    root, model, folder = scored
    data = DocumentDataset(root, teacher=folder)
    batch = collate([data[0], data[3]])
    for row, number in enumerate((0, 3)):
        tokens, lossmask = documents(root)[number]
        logprobs, labels = expected(model, tokens, lossmask)
        places = torch.from_numpy(np.flatnonzero(lossmask))
        assert batch["teacher_mask"][row].nonzero()[:, 0].tolist() == places.tolist()
        assert batch["loss_mask"][row].tolist() == batch["teacher_mask"][row].tolist()
        own = logprobs[np.arange(labels.size), batch["labels"][row][places].numpy()]
        assert np.abs(batch["teacher_own"][row][places].numpy() - own.clip(-32)).max() < 6e-4
        ids = batch["teacher_ids"][row][places].numpy()
        ranked = np.take_along_axis(logprobs, ids, 1).clip(-32)
        assert np.abs(batch["teacher_logprobs"][row][places].numpy() - ranked).max() < 6e-4
    cut = DocumentDataset(root, teacher=folder, max_length=20)[0]
    assert torch.equal(cut["teacher_ids"], data[0]["teacher_ids"][:20])


def test_documents_of_an_api_have_the_same(scored: tuple[Path, Path, Path]) -> None:
    root, _, folder = scored
    sample = DocumentDataset(root, teacher=folder)[2]
    document = spanloom.open_dataset(root, teacher=folder)[2]
    places = sample["teacher_mask"].nonzero()[:, 0]
    assert np.array_equal(document.teacher_ids, sample["teacher_ids"][places].numpy())
    assert np.array_equal(document.teacher_own, sample["teacher_own"][places].numpy())
    assert np.array_equal(document.teacher_logprobs, sample["teacher_logprobs"][places].numpy())
    assert np.array_equal(document.teacher_rest, sample["teacher_rest"][places].numpy())


def test_documents_without_signals_are_an_error_or_masked(scored: tuple[Path, Path, Path], tmp_path: Path) -> None:
    root, model, _ = scored
    short = tmp_path / "short"
    short.mkdir()
    (short / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    lengths = [np.flatnonzero(mask)[-1] + 1 for _, mask in documents(root)]
    write_teacher(short, context=int(max(lengths)) - 1)
    teacher = HuggingFaceTeacher(short, vocabulary=content_at(root).tokenizer.vocab_size)
    score(root, tmp_path / "signals", teacher, Scoring(k=2))
    longest = int(np.argmax(lengths))
    with pytest.raises(DatasetError, match=f"no signals of document train/0/{longest}"):
        DocumentDataset(root, teacher=tmp_path / "signals")[longest]
    sample = DocumentDataset(root, teacher=tmp_path / "signals", missing_teacher="zero")[longest]
    assert sample["teacher_mask"].sum() == 0
    assert sample["loss_mask"].sum() > 0


def test_a_student_comes_nearer_to_its_teacher(scored: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Some steps with the loss of the contract; the divergence from the teacher falls."""
    from transformers import AutoModelForCausalLM

    root, model, folder = scored
    student_folder = tmp_path / "student"
    student_folder.mkdir()
    (student_folder / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    student = AutoModelForCausalLM.from_pretrained(write_teacher(student_folder, seed=5))
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    weights = SpanWeights.equal(content_at(root).span_names)
    data = DocumentDataset(root, teacher=folder)
    values = []
    for step in range(24):
        batch = collate([data[index] for index in range(4 * (step % 4), 4 * (step % 4) + 4)])
        logits = student(input_ids=batch["tokens"], attention_mask=batch["attention_mask"]).logits
        losses = distillation_loss(logits, batch["teacher_ids"], batch["teacher_logprobs"], batch["teacher_rest"])
        mask = batch["loss_mask"] * batch["teacher_mask"]
        counts = SpanCounts.of(mask, batch["span_id"], len(weights))
        loss = span_normalized_loss(losses, mask, batch["span_id"], counts, weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert sum(values[-4:]) < 0.7 * sum(values[:4])


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_trainer_of_hugging_face_trains_against_a_teacher(
    scored: tuple[Path, Path, Path], tmp_path: Path, share: float
) -> None:
    """The first loss that is logged is that of the definition, over both micro-batches of the step."""
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    root, _, folder = scored
    student_folder = tmp_path / "student"
    student_folder.mkdir()
    tokenizer = (scored[1] / "tokenizer.json").read_bytes()
    (student_folder / "tokenizer.json").write_bytes(tokenizer)
    student = AutoModelForCausalLM.from_pretrained(write_teacher(student_folder, seed=5)).eval()
    weights = SpanWeights.equal(content_at(root).span_names)
    data = DocumentDataset(root, teacher=folder)
    batch = collate([data[0], data[1], data[2], data[3]])
    with torch.no_grad():
        logits = student(input_ids=batch["tokens"], attention_mask=batch["attention_mask"]).logits.double()
    whole = logits.log_softmax(-1)
    ids, rest = batch["teacher_ids"], batch["teacher_rest"].double()
    top = batch["teacher_logprobs"].double()
    own = torch.cat([whole.gather(2, ids), whole.scatter(2, ids, -torch.inf).logsumexp(2, keepdim=True)], 2)
    theirs = torch.cat([top, rest[..., None]], 2)
    losses = (1 - share) * (theirs.exp() * (theirs - own)).sum(2)
    losses = losses - share * whole.gather(2, batch["labels"][..., None])[..., 0]
    wanted = 0.0
    for span in range(1, len(weights) + 1):
        chosen = (batch["loss_mask"] > 0) & (batch["span_id"] == span)
        wanted += float(losses[chosen].mean()) if chosen.any() else 0.0
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=1,
        logging_steps=1,
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        data_seed=0,
    )
    trainer = span_trainer(Trainer, weights, teacher=TeacherLoss(cross_entropy=share))(
        model=student,
        args=arguments,
        train_dataset=torch.utils.data.Subset(data, [0, 1, 2, 3]),
        data_collator=hugging_face.collate,
    )
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(wanted, rel=1e-3)


if __name__ == "__main__":
    split_over_ranks()
    sys.exit(0)
