"""The dataset card, read by Hugging Face's own parser, and kept when somebody has edited it."""

import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import DatasetCard

from spanloom.dataset import manifest
from spanloom.families.harmony import dataset as harmony
from spanloom.findings import Report
from spanloom.report.card import is_unchanged_card, size_category
from spanloom.report.views import remove_views, write_card
from support import warm


def parsed(root: Path) -> dict[str, Any]:
    return dict(DatasetCard.load(root / "README.md").data.to_dict())


def test_the_hubs_parser_reads_what_the_source_says(demo: Path) -> None:
    data = parsed(demo)
    assert data["license"] == "cc0-1.0"
    assert data["pretty_name"] == "demo/sample, tokenised with spans"
    assert data["language"] == ["ar", "de", "en", "es", "fr", "he", "hi", "it", "ja", "la", "nl", "pl", "ru", "zh"]
    assert data["size_categories"] == ["n<1K"]
    assert data["task_categories"] == ["text-generation"]


def test_norwegian_stays_a_language(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bare `no` is false in YAML."""
    counted = {("language",): {("no",): _Nothing, (None,): _Nothing}}
    monkeypatch.setattr("spanloom.report.views.collect", lambda *_, **__: counted)
    card = DatasetCard(card_of(demo, tmp_path))
    assert card.data.to_dict()["language"] == ["no"]


def card_of(demo: Path, tmp_path: Path) -> str:
    """The card that is written for a dataset now."""
    root = tmp_path / "card"
    shutil.copytree(demo, root)
    (root / "README.md").unlink(missing_ok=True)
    written = manifest.read(root)
    report = Report(reader=written.environment["reader"], duplicate_documents=0)
    assert write_card(root, written.content, harmony, report)
    return (root / "README.md").read_text("utf-8")


class _Nothing:
    sequences = tokens = 0


def test_what_the_source_calls_itself_adds_neither_keys_nor_markup(hostile: Path) -> None:
    data = parsed(hostile)
    assert data["license"] == "other"
    assert data["license_name"] == "No Such↵Licence: 1.0"
    assert "\n" not in data["pretty_name"]
    assert "language" not in data, "none of its languages is a code"
    body = (hostile / "README.md").read_text("utf-8").split("\n---\n", 1)[1]
    outside_code = "".join(body.replace("\\`", "").split("`")[::2])
    assert "<script" not in outside_code.replace("\\<script", "")
    assert "\x1b" not in body
    assert "\u202e" not in body


def test_datasets_finds_the_rows_of_each_split(demo: Path, tmp_path: Path) -> None:
    rows = datasets.load_dataset(str(demo), "rows", cache_dir=str(tmp_path))
    splits = manifest.read(demo).content.totals.splits
    assert rows["train"].num_rows == splits["train"].sequences
    assert rows["validation"].num_rows == splits["valid"].sequences
    assert sum(rows["train"]["tokens"]) == splits["train"].tokens


def test_its_python_runs(demo: Path) -> None:
    snippet = (demo / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0]
    snippet += (
        "\nassert document.dtype == 'int32' and len(document) == len(lossmask[0]) == len(span[0])\nprint(len(document))"
    )
    done = warm.run_code(snippet, cwd=demo)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.parametrize(
    ("documents", "said"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (79_600_000, "10M<n<100M"), (10**12, "n>1T")],
)
def test_size_categories(documents: int, said: str) -> None:
    assert size_category(documents) == said


def test_the_card_follows_from_the_content_and_the_reader_alone(demo: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(demo, tmp_path / "another name"))
    (root / "README.md").unlink()
    card = (demo / "README.md").read_text("utf-8")
    assert card_of(root, tmp_path) == card
    assert "- validated through Megatron Core's own reader\n" in card


def test_a_readme_of_somebody_else_is_neither_replaced_nor_removed(demo: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(demo, tmp_path / "root"))
    content = manifest.read(root).content
    card = root / "README.md"
    assert is_unchanged_card(card.read_bytes())
    assert write_card(root, content, harmony)
    for mine in (b"# mine\n", card.read_bytes().replace(b"What it holds", b"What I hold")):
        card.write_bytes(mine)
        assert not write_card(root, content, harmony)
        remove_views(root)
        assert card.read_bytes() == mine
    card.unlink()
    assert write_card(root, content, harmony)
    remove_views(root)
    assert sorted(path.name for path in root.iterdir()) == ["manifest.json", "train", "valid"]
