"""Honest datasets of traces have no findings: alone, with their export, with all lines encoded again."""

import json
import random
from pathlib import Path
from typing import Any, Literal

import pytest

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.encoding.tokens import TokenFormat
from spanloom.families.traces.export.lines import ExportOptions, export_lines
from spanloom.families.traces.recipe import TokenizeRules
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from support.drawn_chats import EDGES, WORDS
from support.forging import LEVELS, validated
from support.nightly import nightly
from support.traces import CASES, store_rows

TOKENIZERS = ("tokenizer_gemmalike.json", "tokenizer_bytelevel.json")
STRANGE = (
    *("<end_of_turn>", "<start_of_turn>model\n", "Answer: x", "\nAnswer: y"),
    *("Reasoning:\n1. y", "▁", "<eos>", "e\u0301"),
)
CONTROL_TOKENS: tuple[Literal["verbatim", "escape", "reject", "text"], ...] = ("verbatim", "escape", "reject", "text")
FORMS: tuple[TokenFormat, ...] = ("tunix_sft", "training_example")


def drawn_row(drawn: random.Random, number: int, control_tokens: str) -> dict[str, Any]:
    # Only as text may content hold the EOD.
    left_out = {"reject": "<", "text": "no such text"}.get(control_tokens, "<eos>")
    words = [*WORDS, *(word for word in STRANGE if left_out not in word)]

    def text() -> str:
        return drawn.choice(EDGES) + " ".join(drawn.choices(words, k=drawn.randint(1, 7))) + drawn.choice(EDGES)

    return {
        "id": f"00000000-0000-4000-8000-{number:012d}",
        "created_at": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}+00:00",
        "payload": {
            "trace_version": "1",
            "prompt": text(),
            "steps": [{"i": 9 - at, "type": "t", "content": text()} for at in range(drawn.randint(1, 4))],
            "final_answer": text(),
            "meta": drawn.choice([{"level": 1}, {"level": 2.5, "source": "s", "format": "mine", "meta": 4}]),
        },
    }


@pytest.mark.parametrize("seed", [0, 1, *map(nightly, range(2, 60))])
def test_honest_datasets_have_no_findings(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    form, control_tokens = FORMS[seed % 2], drawn.choice(CONTROL_TOKENS)
    tokenizer = CASES / "fixtures/masks" / drawn.choice(TOKENIZERS)
    export = ExportOptions(
        control_tokens=control_tokens,
        system=drawn.choice([None, None, "Be exact.", " é\n"]),
        sort_steps=drawn.random() < 0.5,
        protect_metadata=drawn.random() < 0.5,
    )
    rules = TokenizeRules(
        form=form,
        options=export,
        valid_fraction=drawn.choice([0.0, 0.3]),
        weight=drawn.choice([None, "level"]),
        eod=drawn.choice(["<eos>", "<pad>"]),
    )
    store = open_store(default_url(tmp_path), create=True)
    rows = [drawn_row(drawn, number, control_tokens) for number in range(40)]
    store_rows(store, rows)
    build_dataset(store, tmp_path, BuildRequest(dataset_name="d", dataset_version="1", limit=1000), reproducible=True)
    options = TokenBuildOptions(
        root=tmp_path,
        key="d-1",
        tokenizer=tokenizer,
        out=tmp_path / "root",
        rules=rules,
        shards=drawn.choice([1, 3]),
        reader="independent",
        allow_unknown_sha=True,
    )
    result = build_tokens(store, options)
    assert result.report.clean, result.report.findings[:3]
    source = tmp_path / f"d-1.{form}.jsonl"
    ids = json.loads((tmp_path / "datasets/d-1/manifest.json").read_bytes())["trace_ids"]
    with store.snapshot() as snapshot:
        source.write_bytes(b"".join(export_lines(snapshot, ids, form, export)))
    store.close()
    for level in LEVELS:
        report = validated(result.root, source, level)
        assert report.clean, (level, report.findings[:3])
