"""Builds by the paths of a template: the same bytes as by the full proof, checked during the build, and given up."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from spanloom.building.make import BuildResult
from spanloom.building.steps import StepTask
from spanloom.dataset import manifest
from spanloom.dataset.manifest import Content
from spanloom.families.models.build import BuildOptions, build
from spanloom.families.models.documents import prover, rows
from spanloom.families.models.documents.prover import PathsDifferError, as_line
from spanloom.families.models.documents.rules import ModelRules
from spanloom.families.models.paths import prover as paths
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.steps.tokenize_conversations import run as run_step
from spanloom.report.progress import Mode, Progress
from support.chat_models import CHATML, write_model
from support.model_datasets import record, stored, write_conversations
from support.nightly import nightly

RECORDS = [record(seed) for seed in range(200)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [stored(each) for each in RECORDS]
    return write_conversations(tmp_path_factory.mktemp("source"), [rows[:120], rows[120:]])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "small", CHATML)


class Said(Progress):
    """Keeps what a build says."""

    def __init__(self) -> None:
        super().__init__(mode=Mode.SILENT)
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def made(source: Path, model: Path, out: Path, proof: str = "paths", **more: Any) -> tuple[BuildResult, list[str]]:
    said = Said()
    rules = ModelRules(valid_fraction=0.3, proof=proof)
    options = BuildOptions(source=source, model=model, out=out, rules=rules, allow_unknown_sha=True, **more)
    return build(options, said), said.lines


def proofs(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("proof: ")]


@pytest.fixture(scope="module")
def by_full_proof(source: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Content:
    result, lines = made(source, model, tmp_path_factory.mktemp("full") / "root", proof="full")
    assert result.report.clean
    assert proofs(lines) == [
        "proof: 0 of 200 conversations by path, 200 by the full proof (200 paths are switched off)"
    ]
    return manifest.read(result.root).content


@pytest.mark.parametrize("workers", [1, 2])
def test_both_proofs_make_the_same_bytes(
    source: Path, model: Path, by_full_proof: Content, workers: int, tmp_path: Path
) -> None:
    result, lines = made(source, model, tmp_path / "root", workers=workers)
    assert result.report.clean
    assert manifest.read(result.root).content == by_full_proof  # it has the hash of each file
    (line,) = proofs(lines)
    by_path = int(line.split()[1])
    assert by_path > 150, line
    assert "none differs" in line


def test_pieces_of_a_batch_are_bounded_by_tokens(
    source: Path, model: Path, by_full_proof: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def noted(self: Any, *, whole: bool = True) -> Any:
        for piece in rows_made(self, whole=whole):
            given.append(piece.documents.tokens.size)
            yield piece

    rows_made = rows._Held.made
    monkeypatch.setattr(rows._Held, "made", noted)
    monkeypatch.setattr(rows, "MOST_TOKENS", 2_000)
    result, _ = made(source, model, tmp_path / "root", workers=1)
    assert len(given) > 10
    largest = max(split.tokens for split in by_full_proof.totals.splits.values()) / 20
    assert max(given) < max(2_500, largest)
    assert manifest.read(result.root).content == by_full_proof


def other_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in documents by path, in one of five conversations, which only the full proof sees."""
    whole = paths.document_of

    def wrong(chain: Any) -> Document:
        document = whole(chain)
        if len(document.text) % 5 == 0:
            document.mask[chain.runs[-1].first] = 0
        return document

    monkeypatch.setattr(paths, "document_of", wrong)


def other_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that writes another text than its paths say."""
    monkeypatch.setattr(paths.ByPath, "is_rendered", lambda *_: False)


@pytest.mark.parametrize("fault", [other_tokens, nightly(other_texts)])
def test_a_wrong_document_by_path_has_the_build_made_again_without_paths(
    source: Path,
    model: Path,
    by_full_proof: Content,
    fault: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    monkeypatch.setattr(prover, "PROVEN_EVERY", 4)
    result, lines = made(source, model, tmp_path / "root", workers=1)
    assert result.report.clean
    assert manifest.read(result.root).content == by_full_proof
    assert "warning: a document by the paths of the template is wrong" in " ".join(lines)
    assert "all conversations are proven again without paths; please report the template" in lines
    assert proofs(lines) == [
        "proof: 0 of 200 conversations by path, 200 by the full proof (200 paths are switched off)"
    ]


def test_the_full_proof_keeps_no_part_that_an_earlier_run_made_by_paths(
    source: Path, model: Path, by_full_proof: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run makes wrong parts, and is stopped before anything finds that."""
    with monkeypatch.context() as patch:
        other_tokens(patch)
        patch.setattr(prover, "PROVEN_EVERY", 1 << 40)
        patch.setattr(
            "spanloom.building.shards.files.count_ids", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            made(source, model, tmp_path / "root", workers=1)
    parts = list((tmp_path / "root" / ".work").glob("rendered_*/part_*.parquet"))
    assert parts
    result, _ = made(source, model, tmp_path / "root", workers=1, proof="full")
    assert manifest.read(result.root).content == by_full_proof


def test_the_task_of_one_shard_stops_and_says_what_to_do(
    source: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_texts(monkeypatch)
    hands_on = {"rendered": str(tmp_path / "rendered.json"), "inventory": str(tmp_path / "inventory.json")}
    with pytest.raises(PathsDifferError, match="--proof full"):
        run_step(
            source=str(source),
            model=str(model),
            root=str(tmp_path / "root"),
            rules=ModelRules(),
            task=StepTask(shard=0, workers=1, allow_unknown_sha=True, **hands_on),
            scratch=tmp_path / "scratch",
        )


def test_a_template_whose_paths_are_always_new_is_given_up(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text whose value decides is pinned: each conversation has a path of its own."""
    pins = CHATML.replace(
        "{% for m in messages %}", "{% for m in messages %}{% if m.content|wordcount == 7 %}{% endif %}", 1
    )
    assert pins != CHATML
    monkeypatch.setattr(prover, "MOST_LEARNED", 20)
    given = write_model(tmp_path / "model", pins)
    result, lines = made(source, given, tmp_path / "root", workers=1)
    assert result.report.clean
    (line,) = proofs(lines)
    assert "the template has too many paths" in line, line
    full, _ = made(source, given, tmp_path / "full", proof="full")
    assert manifest.read(result.root).content == manifest.read(full.root).content


def test_a_fault_in_the_engine_costs_time_and_no_conversation(
    source: Path, model: Path, by_full_proof: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(paths, "_walked_run", broken)
    result, lines = made(source, model, tmp_path / "root", workers=1)
    assert manifest.read(result.root).content == by_full_proof
    (line,) = proofs(lines)
    assert "unexpected: ZeroDivisionError: a fault" in line


def test_the_command_line_takes_the_proof(source: Path, model: Path, tmp_path: Path, cli: Cli) -> None:
    places = ("--source", source, "--model", model, "--out", tmp_path / "root")
    result = cli("build", *places, "--proof", "full", "--allow-unknown-sha")
    assert result.returncode == 0, result.stderr
    assert "200 by the full proof" in result.stdout + result.stderr


def test_the_line_names_the_most_frequent_reasons() -> None:
    reasons = {f"full: reason {number}": number for number in range(1, 9)}
    line = as_line(Counter({"by path": 1_000, "checked by a rendering": 62, "checked by the full proof": 8, **reasons}))
    assert line == (
        "proof: 1,000 of 1,036 conversations by path, 36 by the full proof (8 reason 8; 7 reason 7; 6 reason 6;"
        " 5 reason 5; 4 reason 4; 6 for other reasons); of those by path, 62 were also rendered and 8 also went"
        " through the full proof: none differs"
    )
