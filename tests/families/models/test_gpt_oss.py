"""gpt-oss by its published chat template beside gpt-oss by openai-harmony: what is trained, and where they differ."""

import json
from pathlib import Path
from typing import Any

import pytest

import spanloom
from support.model_datasets import documents_on_disk, record, stored, write_conversations
from support.model_material import Pair, write_pair

RECORDS = 80


def trained(root: Path) -> dict[str, list[list[int]]]:
    """Conversation → the trained ids of each of its documents."""
    made: dict[str, list[list[int]]] = {}
    for about, tokens, mask, _ in documents_on_disk(root):
        ids = [token for token, used in zip(tokens, mask, strict=True) if used]
        made.setdefault(about["conversation"], []).append(ids)
    return made


def calls(each: dict[str, Any]) -> bool:
    return any(message.get("tool_calls") for message in each["messages"])


@pytest.mark.slow
def test_the_template_trains_what_harmony_does(model_material: list[Pair], tmp_path: Path) -> None:
    (pair,) = [each for each in model_material if each.template == "lcpp_openai-gpt-oss-120b"]
    records = [record(seed) for seed in range(RECORDS)]
    for each in records:
        for message in each["messages"]:
            if message.get("tool_calls"):  # the template writes reasoning beside calls, and no text with it
                message["content"] = ""
    source = write_conversations(tmp_path / "source", [[stored(each) for each in records]])
    common: dict[str, Any] = {"shards": 1, "valid_fraction": 0, "allow_unknown_sha": True, "workers": 1}
    by_harmony = spanloom.build(
        source=source, out=tmp_path / "harmony", mask_generation_prompt=True, call_format="json", **common
    )
    by_template = spanloom.build(
        source=source,
        out=tmp_path / "template",
        model=write_pair(pair, tmp_path / "model"),
        stop=pair.stops,
        date="2025-01-01",
        max_rejects="100%",
        **common,
    )
    harmony, template = trained(by_harmony.root), trained(by_template.root)
    plain = [each["id"] for each in records if not calls(each) and each["id"] in template]
    assert len(plain) > RECORDS // 3
    assert [template[name] for name in plain] == [harmony[name] for name in plain]
    # Arguments are written anew, so that letters which JSON may escape are not.
    called = [each for each in records if calls(each) and each["id"] in template]
    assert called
    for each in called:
        written = json.dumps(each["messages"], ensure_ascii=True) == json.dumps(each["messages"], ensure_ascii=False)
        if written:
            assert template[each["id"]] == harmony[each["id"]]
