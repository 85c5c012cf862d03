"""The loss by a column of the row table: which tokens are whose, over several shards, and in the log of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist

from spanloom.dataset.blend import blend
from spanloom.errors import DatasetError
from spanloom.training.loss import SpanWeights
from spanloom.training.runs.groups import documents_by, values_of
from spanloom.training.runs.step import figures_of
from spanloom.training.runs.trainlog import read_log
from spanloom.training.shard import read_content
from support import examples
from support.token_datasets import Document, random_document, read_raw, write_dataset

LENGTH = 24
LANGUAGES = [["de", "en", "de", None, "fr", "en"], ["de", "pl", "en", "de"]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten documents of valid in two shards, some longer than a sample; the only Polish one has answers alone."""
    random = np.random.default_rng(5)
    valid = [
        [
            random_document(random, int(random.integers(8, 60)), (0, 2) if language == "pl" else (0, 1, 2))
            for language in shard
        ]
        for shard in LANGUAGES
    ]
    train = [[random_document(random, 40) for _ in range(8)]]
    root = write_dataset(tmp_path_factory.mktemp("groups") / "root", {"train": train, "valid": valid})
    for number, languages in enumerate(LANGUAGES):
        table = pa.table({"sequence": range(len(languages)), "language": pa.array(languages, pa.string())})
        pq.write_table(table, root / f"valid/shard_{number:02d}_rows.parquet")
    return root


class LabelAsLoss(torch.nn.Linear):
    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["labels"].float()


def by_hand(documents: list[tuple[str, Document]]) -> dict[str, tuple[list[float | None], list[int]]]:
    """The mean of the labels of each span, document by document, from the raw files."""
    found: dict[str, list[list[int]]] = {}
    for language, document in documents:
        spans = found.setdefault(language, [[], []])
        for position in range(min(LENGTH, document.tokens.size - 1)):
            if document.lossmask[position]:
                spans[document.span[position] - 1].append(int(document.tokens[position + 1]))
    return {
        language: ([float(np.mean(each)) if each else None for each in spans], [len(each) for each in spans])
        for language, spans in found.items()
    }


@pytest.mark.parametrize(("documents", "ranks"), [(10, 1), (10, 3), (7, 4), (100, 2)])
def test_each_documents_labels_count_for_its_own_value(
    root: Path, documents: int, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = read_content(root)
    raw = [document for prefix in blend(content, root, "valid").prefixes for document in read_raw(Path(prefix))]
    languages = [language or "(none)" for shard in LANGUAGES for language in shard][:documents]
    assert values_of(content, root, "language", documents=documents) == languages
    batches: dict[str, list[Any]] = {}
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: ranks)
    for rank in range(ranks):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        groups = documents_by(root, "language", documents=documents, length=LENGTH)
        assert [about["value"] for about, _ in groups] == sorted(set(languages))
        for about, own in groups:
            assert about["documents"] == languages.count(about["value"])
            batches.setdefault(about["value"], []).extend(own)
    monkeypatch.undo()
    for value, (means, tokens) in by_hand(list(zip(languages, raw, strict=False))).items():
        with torch.no_grad():
            figures = figures_of(LabelAsLoss(1, 1), batches[value], SpanWeights({"analysis": 1.0, "final": 1.0}))
        assert [figures["analysis_tokens"], figures["final_tokens"]] == tokens
        assert [figures["analysis_loss"], figures["final_loss"]] == pytest.approx(means)


def test_a_column_that_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(DatasetError, match=r"(?s)no column exercise.*shard_00_rows\.parquet"):
        values_of(read_content(root), root, "exercise", documents=4)


def test_a_run_logs_them_at_each_evaluation(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"steps": 2, "sequence-length": LENGTH, "global-batch-size": 2, "hidden": 16, "layers": 1}
    options |= {"root": root, "index-cache": tmp_path / "index", "output": tmp_path / "out", "loss-by": "language"}
    assert examples.main(examples.GPT, [f"--{name}={value}" for name, value in options.items()]) == 0
    records = [record for record in read_log(tmp_path / "out/log.jsonl") if "by" in record]
    assert [(record["step"], record["value"]) for record in records] == [
        (2, value) for value in ("(none)", "de", "en", "fr", "pl")
    ]
    polish = records[-1]
    assert (polish["kind"], polish["by"], polish["documents"]) == ("valid", "language", 1)
    assert (polish["analysis_loss"], polish["analysis_tokens"]) == (None, 0)
    assert polish["final_loss"] > 0
    assert "language pl (1 documents)" in capsys.readouterr().out
