"""Honest datasets of drawn conversations and options have no findings: alone, with the source, all rendered again."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import spanloom
from spanloom.families.harmony.build import build
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.harmony.options import BuildOptions
from support.chat_sources import write_manifest, write_source
from support.drawn_chats import drawn_record
from support.model_datasets import record, stored, write_conversations
from support.nightly import drawn

ROWS = 12


def marked(row: dict[str, str], draw: random.Random) -> dict[str, str]:
    """A row of `conversations_v1` in which some answers are truncated or not trained, with a weight."""
    whole = json.loads(row["messages_json"])
    for message in whole["messages"]:
        if message["role"] == "assistant":
            message |= {name: name == "truncated" for name in ("trained", "truncated") if draw.random() < 0.2}
    if draw.random() < 0.3:
        whole["weight"] = draw.choice([0.5, 2, 1e-3])
    return {**row, "messages_json": json.dumps(whole, ensure_ascii=False)}


def in_harmony(number: int, draw: random.Random) -> dict[str, str]:
    """A row of `harmony_conversations_v1` with messages in any order that the format allows."""

    def text() -> str:
        return draw.choice(["a b", "", "é\n", "<|end|>", " x", "{}"])

    messages: list[dict[str, Any]] = []
    for _ in range(draw.randint(1, 9)):
        kind = draw.choice("UUAAFFPCTDSB")
        channel = {"A": "analysis", "F": "final", "P": "commentary", "C": "commentary", "B": "analysis"}.get(kind)
        message: dict[str, Any] = {"role": "assistant", "channel": channel, "content": text()}
        if kind in "CB":
            message |= {"recipient": "functions.f" if kind == "C" else "python"}
            message |= {"content_type": "<|constrain|>json"} if draw.random() < 0.5 else {}
        if kind in "USD":
            message = {"role": {"U": "user", "S": "system", "D": "developer"}[kind], "content": text()}
        if kind == "T":
            name, of_tool = draw.choice([("functions.f", "commentary"), ("python", "analysis")])
            message = {"role": "tool", "name": name, "channel": of_tool, "content": text()}
        if kind == "D" and draw.random() < 0.5:
            tools = {"functions": {"name": "functions", "tools": [{"name": "f", "description": "F."}]}}
            message["content"] = [{"type": "developer_content", "instructions": text(), "tools": tools}]
        if message["role"] == "assistant":
            message |= {"trained": False} if draw.random() < 0.1 else {}
            message |= {"truncated": True} if draw.random() < 0.1 else {}
        messages.append(message)
    name = f"h-{number}"
    whole = {"messages": messages, **({"weight": 2} if draw.random() < 0.2 else {})}
    return {"id": name, "messages_json": json.dumps(whole), "metadata_json": json.dumps({"id": name})}


def drawn_rules(draw: random.Random) -> CutRules:
    history = draw.choice(["serve", "serve", "openai-harmony", "keep"])
    formats = ["constrain", "constrain", "json", *([] if history == "keep" else ["as-served"])]
    spans = [span for span in ("analysis", "final", "commentary") if draw.random() < 0.8] or ["final"]
    return CutRules(
        history=history,
        turns=draw.choice(["all", "all", "last"]),
        train=tuple(spans),
        mask_generation_prompt=draw.random() < 0.3,
        call_format=draw.choice(formats),
    )


def drawn_source(seed: int, draw: random.Random, folder: Path) -> Path:
    first = seed * ROWS
    if seed % 2:
        rows = [in_harmony(number, draw) for number in range(first, first + 3 * ROWS)]
        write_source(folder, [rows], row_group_size=16)
        write_manifest(folder, 1)
        return folder
    rows = [stored(drawn_record(number)) for number in range(first, first + ROWS)]
    rows += [stored(record(number)) for number in range(first, first + ROWS)]
    flags = draw.random() < 0.5
    return write_conversations(folder, [[marked(row, draw) if flags else row for row in rows]])


@pytest.mark.parametrize("seed", range(drawn(nightly=120, otherwise=3)))
def test_honest_datasets_have_no_findings(seed: int, asset: Path, tmp_path: Path) -> None:
    draw = random.Random(seed)
    rules = drawn_rules(draw)
    source = drawn_source(seed, draw, tmp_path / "source")
    options = BuildOptions(
        source=source,
        out=tmp_path / "root",
        rules=rules,
        valid_fraction=draw.choice([0.0, 0.3]),
        workers=1,
        tokenizer=asset,
        max_rejects="100%",
        on_duplicate="keep",
        allow_unknown_sha=True,
        reader="independent",
    )
    built = build(options)
    assert not built.report.findings, (rules, built.report.findings[:3])
    assert built.manifest.content.totals.sequences > ROWS / 4
    levels: list[dict[str, Any]] = [{}, {"source": source, "deep": 0}, {"source": source, "deep": 10**6}]
    for given in levels:
        report = spanloom.validate(tmp_path / "root", reader="independent", **given)
        assert not report.findings, (rules, report.findings[:3])
