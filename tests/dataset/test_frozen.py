"""Datasets that an older commit built (tests/frozen) are read as they always were; what they say was printed by it."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.provenance import readable_json

FROZEN = Path(__file__).parents[1] / "frozen"
SOURCES = {
    "synth_kd": FROZEN / "synth_harmony",
    "packed_chat": FROZEN / "transcripts.jsonl",
    "harmony_chat": FROZEN / "harmony_conversations",
}
CHECKED = {
    "synth_kd": ("23 documents, 5,666 tokens", "23 rows rendered again"),
    "packed_chat": ("15 documents, 1,920 tokens", "15 blocks packed again"),
    "harmony_chat": ("88 documents, 17,261 tokens", "21 rows rendered again"),
}
REPEATED = {"synth_kd": "No", "packed_chat": "No", "harmony_chat": "9"}
"""Documents with the tokens of an earlier one."""


@pytest.fixture(params=SOURCES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_is_clean_against_its_source(name: str, cli: Cli) -> None:
    done = cli("validate", FROZEN / name, "--source", SOURCES[name], "--deep", 64, "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    for said in CHECKED[name]:
        assert said in done.stdout


@pytest.mark.parametrize("document", ["train/0/0", "train/1/1"])
def test_a_document_is_shown_as_it_was(name: str, document: str, cli: Cli) -> None:
    done = cli("inspect", FROZEN / name, document, "--labels", "--ids", "--max-tokens", 0)
    assert done.returncode == 0, done.stderr
    expected = FROZEN / "expected" / f"inspect_{name}_{document.replace('/', '_')}.txt"
    assert done.stdout == expected.read_text("utf-8")


def test_it_is_exported_as_it_was(name: str, tmp_path: Path, cli: Cli) -> None:
    done = cli("export", FROZEN / name, "--out", tmp_path / "out", "--json", "-q")
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout), json.loads((FROZEN / "expected" / f"export_{name}.json").read_bytes())
    if manifest.read(FROZEN / name).environment["libraries"]["pyarrow"] != pa.__version__:
        for file in (*found["files"], *expected["files"]):  # other versions may pack the same values otherwise
            del file["bytes"], file["sha256"]
    assert found == expected


def test_its_manifest_is_written_as_it_was_read(name: str) -> None:
    raw = (FROZEN / name / "manifest.json").read_bytes()
    assert readable_json(manifest.read(FROZEN / name).as_dict()) == raw


def test_the_card_follows_from_it_as_it_did(name: str, tmp_path: Path, cli: Cli) -> None:
    root = Path(shutil.copytree(FROZEN / name, tmp_path / name))
    (root / "README.md").unlink()
    (root / "manifest.json").rename(root / "manifest.pending.json")
    done = cli("step", "validate-alignment", "--root", root, "-q")
    assert done.returncode == 0, done.stderr
    card = (root / "README.md").read_text()
    # Cards have counted equal documents since: the rest is as it was.
    repeated = re.search(r"\n(No two|[\d,]+ of [\d,]+) documents ha(ve|s) the same tokens[^\n]*\n\n?", card)
    assert repeated is not None
    (root / "README.md").write_text(card.replace(repeated[0], "\n"))
    # So has the line by which `datasets` tells one content from another.
    (digest,) = re.findall(r"^  description: sha256 ([0-9a-f]{64})\n", card, re.MULTILINE)
    assert digest == manifest.read(root).content.sha256
    (root / "README.md").write_text((root / "README.md").read_text().replace(f"  description: sha256 {digest}\n", ""))
    assert _figures(root / "README.md") == _figures(FROZEN / name / "README.md")
    assert repeated[1].partition(" ")[0] == REPEATED[name]


def test_prepared_games_are_clean_against_their_source(cli: Cli) -> None:
    pytest.importorskip("chess")
    source = FROZEN / "chess_source"
    root = FROZEN / "prepared_games"
    of_source = ("--source", source / "games", "--thinking", source / "thinking", "--legal")
    done = cli("chess", "validate", root, *of_source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "125 plies" in done.stdout
    assert "5 source" in done.stdout


@pytest.mark.parametrize(("samples", "split"), [("games", "train"), ("games", "valid"), ("thinking", "train")])
def test_a_sample_of_prepared_games_is_what_it_was(samples: str, split: str, cli: Cli) -> None:
    options = ("--samples", samples, "--split", split, "--count", 1, "--max-seq-len", 256)
    done = cli("chess", "inspect", FROZEN / "prepared_games", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (FROZEN / "expected" / f"inspect_prepared_games_{split}_{samples}.txt").read_text("utf-8")


def test_the_manifest_of_prepared_games_is_shown(cli: Cli) -> None:
    done = cli("manifest", "show", FROZEN / "prepared_games")
    assert done.returncode == 0, done.stderr
    for said in ("spanloom_chess_v1", "2 in valid, 1 in train; of 3 files, 125 rows", "91cb5da1a4c05"):
        assert said in done.stdout


def _figures(card: Path) -> list[str]:
    """Every number, hash, name in backticks and line of the front matter of a card but its seal: words may change."""
    text = card.read_text().partition("<!-- spanloom card")[0]
    _, front_matter, body = text.split("---\n", 2)
    return [*front_matter.splitlines(), *re.findall(r"`[^`\n]+`|[0-9a-f]{16,}|\d[\d.,]*", body)]
