"""The files of a build of conversations against the law, read by numpy alone: flags, weights and shared documents."""

import json
import os
import random
from pathlib import Path

import numpy as np
import openai_harmony
import pyarrow.parquet as pq
import pytest
from openai_harmony import Conversation, Message, RenderConversationConfig

from spanloom.dataset import manifest
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.families.harmony.contract.history import CutRules
from support import chat_sources as chat
from support.chat_checker import check_dataset
from support.chat_strategies import conversation, flagged
from support.nightly import drawn, nightly

START, ASSISTANT = 200006, 173781
LAW = int(os.environ.get("SPANLOOM_CHAT_LAW", drawn(80, 30)))
"""Conversations that are built; `make law` takes 10,000."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = []
    for number in range(LAW):
        lots = random.Random(f"files-{number}")
        messages = flagged(lots, conversation(lots))
        row = chat.row(f"c{number}", messages)
        if number % 3 == 0:
            row["messages_json"] = json.dumps({"messages": messages, "weight": weight_of(number)})
        rows.append(row)
    return chat.write_source(tmp_path_factory.mktemp("source"), [rows[::2], rows[1::2]])


def weight_of(number: int) -> float:
    return 1.0 if number % 3 else (number + 1) / 4


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(CutRules(), id="constrain"),
        pytest.param(CutRules(call_format="as-served", mask_generation_prompt=True), id="as-served"),
        pytest.param(CutRules(call_format="json"), id="json", marks=pytest.mark.nightly),
    ],
)
def test_each_token_that_is_trained_has_the_context_that_a_server_shows(
    rules: CutRules, source: Path, tmp_path: Path, asset: Path, encoding: openai_harmony.HarmonyEncoding
) -> None:
    root = tmp_path / "root"
    result = build(BuildOptions(source=source, out=root, tokenizer=asset, workers=1, valid_fraction=0.2, rules=rules))
    assert result.report.clean, result.report.findings
    checked = check_dataset(root, source, encoding, rules.call_format, prompts=not rules.mask_generation_prompt)
    totals = result.manifest.content.totals
    assert totals.cutting is not None
    assert checked.documents == totals.cutting["documents"] < checked.runs <= totals.cutting["runs"]
    assert totals.cutting["untrained_messages"] > LAW / 4
    spans = [counts.span_tokens for counts in totals.splits.values()]
    assert checked.trained == sum(count for each in spans for name, count in each.items() if name != "context")
    assert checked.weights == {name: {weight_of(int(name[1:]))} for name in checked.weights}


@pytest.mark.parametrize("history", ["serve", nightly("keep")])
def test_what_a_server_gives_to_the_model_can_be_left_out_of_the_loss(
    history: str, tmp_path: Path, asset: Path
) -> None:
    """The files differ in nothing but the labels of `<|start|>assistant` at the begin of each run."""
    rows = []
    for number in range(24):
        lots = random.Random(f"masked-{number}")
        rows.append(chat.row(f"c{number}", [chat.user("?"), *flagged(lots, conversation(lots))]))
    folder = chat.write_source(tmp_path / "source", [rows])
    spans, tokens, runs = [], [], 0
    for masked in (False, True):
        root = tmp_path / f"root_{masked}"
        rules = CutRules(history=history, mask_generation_prompt=masked)
        options = BuildOptions(source=folder, out=root, tokenizer=asset, workers=1, valid_fraction=0.0, rules=rules)
        result = build(options)
        assert result.report.clean, result.report.findings
        tokens.append(np.fromfile(root / "train/shard_00_tokens.bin", dtype=np.int32))
        spans.append(np.fromfile(root / "train/shard_00_span.bin", dtype=np.uint8))
        runs = sum(pq.read_table(root / "train/shard_00_rows.parquet").column("runs").to_pylist())
    assert np.array_equal(*tokens)
    different = np.flatnonzero(spans[0] != spans[1])
    assert not spans[1][different].any()
    labels = np.roll(tokens[0], -1)[different].tolist()
    assert set(labels) == {START, ASSISTANT}
    unlabelled_first = 2 * runs - different.size  # runs whose first message is not trained have no such label
    assert 0 <= unlabelled_first < runs
    assert labels.count(START) == labels.count(ASSISTANT)


@pytest.mark.parametrize("count", [25, nightly(100)])
def test_a_turn_with_many_calls_is_stored_once(
    count: int, tmp_path: Path, asset: Path, encoding: openai_harmony.HarmonyEncoding
) -> None:
    """Each of its runs is held against a conversation of its own: the time grows by the square of the calls."""
    calls = [
        message
        for number in range(count)
        for message in (
            chat.analysis(f"Step {number}: look at the file."),
            chat.call(json.dumps({"path": f"src/file_{number}.py"})),
            chat.result("x = 1\n" * 20),
        )
    ]
    messages = [chat.system(), chat.developer(tools=chat.TOOLS), chat.user("Fix it."), *calls, chat.final("Done.")]
    source = chat.write_source(tmp_path / "source", [[chat.row("a", messages)]])
    result = build(BuildOptions(source=source, out=tmp_path / "root", tokenizer=asset, workers=1, valid_fraction=0.0))
    assert result.report.clean, result.report.findings
    harmony = Conversation(messages=[Message.from_dict(message) for message in messages])
    rendered = encoding.render_conversation_for_training(harmony, RenderConversationConfig(auto_drop_analysis=False))
    checked = check_dataset(tmp_path / "root", source, encoding)
    assert (checked.documents, checked.runs) == (1, count + 1)
    assert checked.stored == len(rendered) + 1
    assert manifest.read(tmp_path / "root").content.totals.sequences == 1
