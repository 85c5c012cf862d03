"""The example `distil.py`: a student learns from signals, and comes closer to its teacher than by labels alone."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from conftest import REPOSITORY, Cli
from spanloom.api.scoring import scored
from spanloom.report.progress import Progress
from spanloom.teacher.sources.options import ScoringOptions
from spanloom.training import DocumentDataset, SpanWeights
from spanloom.training.pytorch import collate
from support.teachers import write_scored_dataset

EXAMPLE = REPOSITORY / "docs/examples/training/distil.py"
STEPS, SEEDS = 100, 3


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("distil", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scored_dataset(folder: Path, conversations: int) -> tuple[Path, Path, Path]:
    """A dataset, signals of k = 8, the teacher."""
    root, model = write_scored_dataset(folder, conversations=conversations, valid_fraction=0.2)
    scored(str(root), str(folder / "signals"), ScoringOptions(model=model, top_k=8), Progress.given(False))
    return root, folder / "signals", model


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The matrices are small: threads that wait for each other take longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_loss_of_the_same_documents_falls(example: Any, tmp_path: Path) -> None:
    root, signals, _ = scored_dataset(tmp_path, 20)
    data = DocumentDataset(root, teacher=signals)
    batch = collate([data[at] for at in range(6)])
    weights = SpanWeights({"analysis": 1.0, "final": 1.0, "commentary": 1.0})
    before, after = (example.learn(root, signals, steps, seed=1)[0] for steps in (0, 12))
    with torch.no_grad():
        first, last = (example.loss_of(student, batch, weights, 0.0).item() for student in (before, after))
    assert last < 0.9 * first


def divergence(student: Any, teacher: Any, data: DocumentDataset) -> float:
    """Mean KL(teacher ‖ student) of all tokens at the trained labels, in float64, without the signals."""
    total, labels = 0.0, 0
    with torch.no_grad():
        for at in range(len(data)):
            batch = collate([data[at]])
            trained = batch["loss_mask"][0] > 0
            of_teacher, of_student = (
                model(input_ids=batch["tokens"]).logits[0][trained].double().log_softmax(-1)
                for model in (teacher, student)
            )
            total += float((of_teacher.exp() * (of_teacher - of_student)).sum())
            labels += int(trained.sum())
    return total / labels


@pytest.mark.nightly  # two minutes
def test_a_student_comes_closer_to_its_teacher_than_by_labels_alone(example: Any, tmp_path: Path) -> None:
    """On held-out documents, after the same steps from the same weights over the same batches."""
    root, signals, folder = scored_dataset(tmp_path, 120)
    teacher = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    held_out = DocumentDataset(root, "valid")
    for seed in range(SEEDS):
        distilled, plain = (
            divergence(example.learn(root, signals, STEPS, seed=seed, cross_entropy=share)[0].eval(), teacher, held_out)
            for share in (0.0, 1.0)
        )
        assert distilled < 0.8 * plain, (seed, distilled, plain)


@pytest.mark.nightly  # one to three minutes
def test_what_make_teacher_demo_runs_goes_through(cli: Cli, tmp_path: Path) -> None:
    recipe = (REPOSITORY / "Makefile").read_text().split("\nteacher-demo: ")[1].split("\n\n")[0]
    recipe = re.sub(r"\$\(if \$\(TEACHER\),,(.*)\)\n", r"\1\n", recipe)
    recipe = recipe.replace("$(teacher)", "$(DEMO)/teacher/sample/model").replace("$(DEMO)", "data/demo")
    lines = re.findall(r"^\t\$\(BIN\)/(spanloom|python) (.*)$", recipe, flags=re.MULTILINE)
    assert len(lines) == 9
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    for program, words in lines:
        given = shlex.split(words)
        if program == "spanloom":
            done: Any = cli(*given, cwd=tmp_path)
        else:
            done = subprocess.run([sys.executable, *given], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    assert done.stdout.count("loss") == 10
    assert 'id="expected"' in (tmp_path / "data/demo/teacher/page.html").read_text()
