"""harmony_chat: an answer that a limit of tokens cut off is trained, the token that ends its message is not."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import RejectedRowError
from spanloom.families.harmony import chat_dataset
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.families.harmony.contract.history import CutRules
from support.chat_sources import write_manifest, write_source
from support.model_datasets import documents_on_disk, write_conversations
from support.nightly import nightly

END, RETURN, CALL, EOD = 200007, 200002, 200012, 199999
"""Of o200k_harmony: <|end|>, <|return|>, <|call|>, <|endoftext|>."""

ASK = {"role": "user", "content": "q"}
CUT = {"role": "assistant", "content": "a long ans", "reasoning": "hm"}
TOOLS = [{"name": "f", "description": "F.", "parameters": {"type": "object"}}]
CALLED = {"role": "assistant", "content": "wait", "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}]}
RESULT = {"role": "tool", "content": "4", "tool_call_id": "1"}


def row(name: str, messages: list[dict[str, Any]], tools: Any = TOOLS) -> dict[str, Any]:
    content = {"messages": messages, **({} if tools is None else {"tools": tools})}
    return {"id": name, "messages_json": json.dumps(content), "metadata_json": json.dumps({"id": name})}


def built(source: Path, out: Path, **more: Any) -> Any:
    result = build(BuildOptions(source=source, out=out, valid_fraction=0.0, allow_unknown_sha=True, **more))
    assert result is not None
    return result


def untrained_ends(tokens: list[int], mask: list[int]) -> list[int]:
    """The tokens that end a message whose text is trained, and are not trained themselves."""
    return [token for at, token in enumerate(tokens) if token in (END, RETURN, CALL) and not mask[at] and mask[at - 1]]


@pytest.mark.parametrize("renderer", ["fast", nightly("harmony")])
@pytest.mark.parametrize("history", ["serve", "keep"])
def test_the_end_of_a_truncated_message_is_context(renderer: Any, history: str, tmp_path: Path) -> None:
    conversations = {
        "last": [ASK, CUT],
        "first": [ASK, CUT, ASK, {**CUT, "truncated": False}],
        "call": [ASK, CALLED, RESULT, {**CUT, "truncated": False}],
        "untrained": [ASK, {**CUT, "trained": False}, ASK, {**CUT, "truncated": False}],
    }
    roots = {}
    for name, truncated in (("cut", True), ("whole", False)):
        rows = [
            row(key, [{"truncated": truncated, **each} if each["role"] == "assistant" else each for each in messages])
            for key, messages in conversations.items()
        ]
        source = write_conversations(tmp_path / name / "source", [rows])
        result = built(source, tmp_path / name / "root", renderer=renderer, rules=CutRules(history=history))
        assert result.report.clean, result.report.findings
        roots[name] = result.root, source, result.manifest.content.totals.cutting
    cut, whole = (documents_on_disk(root) for root, _, _ in roots.values())
    assert [each[1] for each in cut] == [each[1] for each in whole]
    ends: dict[str, list[int]] = {}
    for (about, tokens, mask, span), (_, _, full, spans) in zip(cut, whole, strict=True):
        assert span == [number if trained else 0 for number, trained in zip(spans, mask, strict=True)]
        at = [place for place, (one, two) in enumerate(zip(mask, full, strict=True)) if one != two]
        assert [tokens[place] for place in at] == untrained_ends(tokens, mask)
        ends[about["conversation"]] = ends.get(about["conversation"], []) + [tokens[place] for place in at]
    # In one document of a whole conversation the first answer ends in <|end|>; alone in its document, in <|return|>.
    first = END if history == "keep" else RETURN
    assert ends == {"last": [RETURN], "first": [first], "call": [CALL], "untrained": []}
    assert roots["cut"][2]["truncated_messages"] == 3
    assert "truncated_messages" not in roots["whole"][2]


def test_an_end_that_is_wrongly_trained_or_not_is_found(tmp_path: Path) -> None:
    rows = [row("cut", [ASK, {**CUT, "truncated": True}], None), row("whole", [ASK, CUT], None)]
    source = write_conversations(tmp_path / "source", [rows])
    root = built(source, tmp_path / "root").root
    (_, tokens, mask, _), _ = documents_on_disk(root)
    end = tokens.index(RETURN)
    assert tokens[end + 1] == EOD
    assert not mask[end]
    for number, value in ((0, 2), (1, 0)):
        damaged = shutil.copytree(root, tmp_path / f"damaged{number}")
        for name, written in (("span", value), ("lossmask", min(value, 1))):
            path = damaged / f"train/shard_00_{name}.bin"
            values = np.fromfile(path, np.uint8)
            values[number * len(tokens) + end - 1] = written
            values.tofile(path)
        report = validate_dataset(damaged, chat_dataset, source=source, deep=9)
        assert "rerender" in {finding.check for finding in report.findings}
        without = validate_dataset(damaged, chat_dataset)
        assert {"manifest", "rows"} <= {finding.check for finding in without.findings}


def test_harmony_messages_can_be_truncated_too(tmp_path: Path) -> None:
    text = [{"type": "text", "text": "a long ans"}]
    answer = {"role": "assistant", "channel": "final", "content": text, "truncated": True}
    question = {"role": "user", "content": text}
    folder = tmp_path / "source"
    write_source(folder, [[row("h", [question, answer], None)]])
    write_manifest(folder, 1, schema_version="harmony_conversations_v1")
    result = built(folder, tmp_path / "root")
    assert result.report.clean, result.report.findings
    ((_, tokens, mask, _),) = documents_on_disk(result.root)
    assert untrained_ends(tokens, mask) == [RETURN]
    write_source(tmp_path / "wrong", [[row("h", [{**question, "truncated": True}, answer], None)]])
    write_manifest(tmp_path / "wrong", 1, schema_version="harmony_conversations_v1")
    with pytest.raises(RejectedRowError, match=r"header_invalid: message 0 .user. has truncated True"):
        built(tmp_path / "wrong", tmp_path / "no")
