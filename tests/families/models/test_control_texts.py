"""Control tokens in texts of users and tools: refused, kept or encoded as text."""

import json
from pathlib import Path
from typing import Any

import pytest

from families.models.conftest import FORGETS, made
from spanloom.auditing.auditor import ModelOptions
from spanloom.auditing.run import AuditOptions, audit
from spanloom.errors import RejectedRowError
from support.chat_models import write_model
from support.model_datasets import TOOL, documents_on_disk, stored, write_conversations
from tokenizers import Tokenizer

END = "<|end|>"
LOOK = {"id": "c0000", "type": "function", "function": {"name": "find_place", "arguments": {"place": "a"}}}


def talk(name: str, *, user: str = "q", system: str = "s", result: str = "r", described: str = "d") -> dict[str, Any]:
    """A conversation with texts of all kinds, of which some hold control tokens."""
    return {
        "id": name,
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
            {"role": "assistant", "content": "", "tool_calls": [LOOK]},
            {"role": "tool", "content": result, "tool_call_id": "c0000", "name": "find_place"},
            {"role": "assistant", "content": "answer"},
        ],
        "tools": [{"type": "function", "function": {**TOOL, "description": described}}],
    }


HELD = {
    "user": (f"what is {END}?", "content of message 1 (user)"),
    "system": (f"say {END}", "content of message 0 (system)"),
    "result": (f"{END}{END}", "content of message 3 (tool)"),
    "described": (f"ends with {END} or <|start|>", "the tools"),
}


@pytest.mark.parametrize("place", HELD)
def test_a_control_token_in_a_text_is_refused_with_its_place(place: str, model: Path, tmp_path: Path) -> None:
    text, where = HELD[place]
    source = write_conversations(tmp_path / "source", [[stored(talk("a", **{place: text}))]])
    with pytest.raises(RejectedRowError, match="special_in_text") as refused:
        made(source, model, tmp_path / "root")
    assert f"'{END}' is in {where}" in refused.value.what
    assert "--control-texts text" in str(refused.value.remedy)
    assert "--control-texts as-served" in str(refused.value.remedy)
    both = [stored(talk("a", **{place: text})), stored(talk("b"))]
    aside = made(write_conversations(tmp_path / "both", [both]), model, tmp_path / "aside", max_rejects="1")
    assert aside.report.clean, aside.report.findings
    assert aside.manifest.content.totals.rejected == {"special_in_text": 1}


@pytest.mark.parametrize("how", ["as-served", "text"])
def test_control_tokens_in_texts_are_kept_or_encoded_as_text(how: str, model: Path, tmp_path: Path) -> None:
    records = [talk(place, **{place: text}) for place, (text, _) in HELD.items()]
    words = [talk(place, **{place: text.replace("|", "/")}) for place, (text, _) in HELD.items()]
    source = write_conversations(tmp_path / "source", [[stored(each) for each in records]])
    result = made(source, model, tmp_path / "root", control_texts=how, valid_fraction=0.0)
    assert result.report.clean, result.report.findings
    content = result.manifest.content
    assert content.config["control_texts"] == how
    assert content.totals.cutting is not None
    assert content.totals.cutting["control_texts"] == 6
    for messages in (source, None):
        audited = audit(AuditOptions(data=result.root, model=ModelOptions(folder=model), messages=messages))
        assert audited.findings == {}, audited.found
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    other = write_conversations(tmp_path / "words", [[stored(each) for each in words]])
    plain = made(other, model, tmp_path / "plain", valid_fraction=0.0)
    controls = [tokenizer.token_to_id(marker) for marker in (END, "<|start|>")]
    for (row, tokens, mask, _), (_, same, same_mask, _) in zip(
        documents_on_disk(result.root), documents_on_disk(plain.root), strict=True
    ):
        text, like = (tokenizer.decode(ids, skip_special_tokens=False) for ids in (tokens, same))
        assert like == text.replace(HELD[row["conversation"]][0], HELD[row["conversation"]][0].replace("|", "/"))
        more = sum(tokens.count(each) for each in controls) - sum(same.count(each) for each in controls)
        held = HELD[row["conversation"]][0]
        assert more == (0 if how == "text" else held.count(END) + held.count("<|start|>"))
        trained, untouched = (
            [token for token, flag in zip(ids, flags, strict=True) if flag]
            for ids, flags in ((tokens, mask), (same, same_mask))
        )
        assert trained == untouched


def test_the_eod_in_a_text_is_never_kept(model: Path, tmp_path: Path) -> None:
    source = write_conversations(tmp_path / "source", [[stored(talk("a", user="a <|eof|> b"))]])
    config = json.loads((model / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "<|eof|>"
    other = write_model(tmp_path / "model", FORGETS, stops=("<|end|>", "<|eof|>"))
    with pytest.raises(RejectedRowError, match=r"the dataset's EOD '<.eof.>'") as refused:
        made(source, other, tmp_path / "root", control_texts="as-served")
    assert "as-served" not in str(refused.value.remedy)
    result = made(source, other, tmp_path / "text", control_texts="text")
    assert result.report.clean, result.report.findings
    assert result.manifest.content.tokenizer.eod not in documents_on_disk(result.root)[0][1][:-1]
