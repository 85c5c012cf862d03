"""The benchmark's corpus, every row through both renderers: conversations of text found on the machine.

SPANLOOM_CORPUS_ROWS is how many: 120, 1,000 nightly, and 20,000 in `make chaos`.
"""

import json
import os
from pathlib import Path

import pytest
from openai_harmony import HarmonyEncoding

from conftest import Cli
from support.nightly import drawn
from tools.bench.corpus import conversations_source

ROWS = int(os.environ.get("SPANLOOM_CORPUS_ROWS", drawn(1000, 120)))


@pytest.mark.slow
def test_every_row_of_the_corpus_is_what_openai_harmony_renders(
    tmp_path: Path, encoding: HarmonyEncoding, cli: Cli
) -> None:
    source, rows = conversations_source(tmp_path, ROWS, encoding)
    assert rows >= ROWS / 4, f"this machine has text for {rows} conversations only"
    # The audit compares tokens, span and mask of a row; with the fraction 1 it leaves out none.
    built = cli(
        *("build", "--source", source, "--out", tmp_path / "dataset", "--audit-fraction", "1"),
        *("--workers", "2", "--deep", "0", "--quiet", "--json"),
    )
    assert built.returncode == 0, built.stderr
    content = json.loads((tmp_path / "dataset" / "manifest.json").read_bytes())["content"]
    assert content["totals"]["rows_read"] == rows
    assert content["renderer"]["audited_rows"] == rows
