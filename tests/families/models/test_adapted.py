"""Conversations as templates can take them: what is written, and that the second reader makes the same of them.

In: drawn records; models that have no tools, drop a text beside calls, or take ids of calls of one form; records in
shapes that people reported.
"""

import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import spanloom
from conftest import Cli
from spanloom.errors import RejectedRowError
from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.form import AsGiven, Form, shaped
from spanloom.families.models.verify.adapted import as_proven
from spanloom.families.models.verify.messages import plain_conversation, template_message
from spanloom.families.models.workarounds.adapted import Adapting, adapted
from support.chat_models import CHATML, write_model
from support.model_datasets import documents_on_disk, record, stored, write_conversations
from support.nightly import nightly
from tokenizers import Tokenizer

_HEAD, _MESSAGES = CHATML.split("{% endif %}", 1)
_CALLS = _MESSAGES[_MESSAGES.index("{% for c in") : _MESSAGES.index("{% endfor %}") + len("{% endfor %}")]
NO_TOOLS = _MESSAGES.replace(_CALLS, "")
"""ChatML that writes neither tools nor calls."""
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + NO_TOOLS
DROPS_BESIDE = (
    _HEAD
    + "{% endif %}"
    + _MESSAGES.replace("{{ m.content or '' }}", "{% if not m.tool_calls %}{{ m.content or '' }}{% endif %}")
)
"""ChatML that writes the calls of a message, and not its text."""
NAMED_BY_ID = _HEAD + "{% endif %}" + _MESSAGES.replace("{{ c.function.name }}", "{{ c.id }}")
"""ChatML that writes the id of a call in place of its name, as Kimi K2 does."""
NINE_ALONE = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}{% endfor %}{% if m.role == 'tool' and "
    "m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}{% endfor %}" + CHATML
)


def with_odd_ids(seed: int) -> dict[str, Any]:
    """A drawn record whose ids of calls are missing, odd, repeated, or as templates want them."""
    draw, made = random.Random(seed), record(seed)
    last: str | None = None
    for message in made["messages"]:
        for call in message.get("tool_calls") or []:
            last = draw.choice([None, "toolu_01-x", "abcdefgh9", "functions.find_place:7", f"call_{seed}", ""])
            call["id"] = last
        if message["role"] == "tool":
            message["tool_call_id"] = draw.choice([last, None])
            if message["tool_call_id"] is None:
                del message["tool_call_id"]
    return made


@pytest.mark.parametrize("ids", ["given", "functions", "nine"])
@pytest.mark.parametrize("style", [None, "hermes", "json"])
@pytest.mark.parametrize("split", [False, True])
def test_the_second_reader_makes_the_same_of_drawn_records(ids: str, style: str | None, split: bool) -> None:
    form = Form(call_ids=ids)
    for seed in range(150):
        system = bool(seed % 2)
        given = with_odd_ids(seed)
        conversation, spoken = adapted(
            read_conversation(given, name="x"),
            frozenset(),
            Adapting(call_ids=ids, inline_calls=style, split=split, system=system),
        )
        config = {"form": form.as_dict(), "inline_calls": style, "text_beside_calls": "split" if split else "refuse"}
        plain = plain_conversation(stored(given)["messages_json"].encode(), "conversations_v1")
        again = as_proven(plain, config, system=system)
        whole = {"reasoning": "reasoning_content", "arguments": "object", "beside_calls": "empty", **form.as_dict()}
        theirs = [template_message(each, whole, developer=False) for each in again.messages]
        assert [shaped(each, form, AsGiven()) for each in conversation.messages] == theirs, seed
        assert conversation.runs() == again.runs()
        assert spoken == {at for at, each in enumerate(again.messages) if each.spoken}
        assert bool(conversation.tools) == bool(again.tools)


TALK = {
    "tools": [{"name": "tide", "parameters": {"type": "object"}}],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tides?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "a", "name": "tide", "arguments": {"at": "Brest"}},
                {"name": "tide", "arguments": "{}"},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "at 4"},
        {"role": "tool", "content": "at 5"},
        {"role": "assistant", "content": "At 4."},
    ],
}


def test_tools_calls_and_results_as_text() -> None:
    conversation, spoken = adapted(read_conversation(TALK, name="x"), frozenset(), Adapting(inline_calls="hermes"))
    system, user, calls, results, answer = (each["content"] for each in conversation.messages)
    definition = json.dumps({"type": "function", "function": TALK["tools"][0]})
    assert system.startswith("Be brief.\n\n")
    assert f"<tools>\n{definition}\n</tools>" in system
    assert user == "Tides?"
    assert calls == (
        'I look.\n<tool_call>\n{"name": "tide", "arguments": {"at": "Brest"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "tide", "arguments": {}}\n</tool_call>'
    )
    assert results == "<tool_response>\nat 4\n</tool_response>\n<tool_response>\nat 5\n</tool_response>"
    assert answer == "At 4."
    assert (spoken, conversation.tools) == ({2}, None)
    lines, _ = adapted(read_conversation(TALK, name="x"), frozenset(), Adapting(inline_calls="json"))
    assert [json.loads(line) for line in lines.messages[3]["content"].split("\n")] == [
        {"result": "at 4"},
        {"result": "at 5"},
    ]


def test_ids_are_of_the_form_and_results_follow_their_calls() -> None:
    whole = read_conversation(TALK, name="x")
    for ids, form in (("functions", r"functions\.tide:[01]"), ("nine", "[a-z0-9]{9}")):
        conversation, _ = adapted(whole, frozenset(), Adapting(call_ids=ids))
        named = [call["id"] for call in conversation.messages[2]["tool_calls"]]
        assert len(set(named)) == 2
        assert all(re.fullmatch(form, each) for each in named)
        assert [conversation.messages[at]["tool_call_id"] for at in (3, 4)] == named
        assert adapted(conversation, frozenset(), Adapting(call_ids=ids))[0] == conversation


@pytest.mark.parametrize(
    ("template", "option", "fault"),
    [
        (NO_TOOLS, {"inline_calls": "hermes"}, "--inline-calls hermes"),
        nightly(NO_SYSTEM, {"inline_calls": "json"}, "--inline-calls hermes"),
        (DROPS_BESIDE, {"text_beside_calls": "split"}, "--text-beside-calls split"),
        (NAMED_BY_ID, {"call_ids": "rewrite"}, None),
        nightly(NINE_ALONE, {"call_ids": "rewrite"}, None),
    ],
)
def test_a_build_is_validated_against_its_source_and_the_refusal_names_the_option(
    template: str, option: dict[str, Any], fault: str | None, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model", template)
    records = [with_odd_ids(seed) for seed in range(60)]
    if template == NO_SYSTEM:
        records = [each for each in records if each["messages"][0]["role"] != "system"]
    source = write_conversations(tmp_path / "source", [[stored(each) for each in records]])
    build = {"source": source, "model": model, "valid_fraction": 0, "shards": 1, "allow_unknown_sha": True}
    if fault is not None:
        with pytest.raises(RejectedRowError) as refused:
            spanloom.build(out=tmp_path / "no", **build)
        assert fault in str(refused.value.remedy)
    else:
        with pytest.raises(RejectedRowError):
            spanloom.build(out=tmp_path / "no", **build, call_ids="keep")
    result = spanloom.build(out=tmp_path / "root", **build, **option)
    assert result.report.checked["rows rendered again"] == len(records)
    assert result.report.clean
    assert spanloom.validate(result.root).clean


def trained(root: Path) -> str:
    tokenizer = Tokenizer.from_file(str(root / "model/tokenizer.json"))
    return "\n".join(
        tokenizer.decode([token for token, used in zip(tokens, mask, strict=True) if used], skip_special_tokens=False)
        for _, tokens, mask, _ in documents_on_disk(root)
    )


def test_calls_as_text_are_trained_as_commentary(tmp_path: Path) -> None:
    source = write_conversations(tmp_path / "source", [[stored({"id": "a", **json.loads(json.dumps(OPENAI))})]])
    model = write_model(tmp_path / "model", NO_TOOLS)
    result = spanloom.build(
        source=source, model=model, out=tmp_path / "root", shards=1, valid_fraction=0, inline_calls="hermes",
        allow_unknown_sha=True,
    )  # fmt: skip
    ((_, tokens, mask, spans),) = documents_on_disk(result.root)
    assert '{"name": "tide", "arguments": {"at": "Brest"}}' in trained(result.root)
    assert "at 4" not in trained(result.root)
    assert set(spans) == {0, 2, 3}
    assert len(tokens) == len(mask)


OPENAI = {
    "tools": [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "user", "content": "Tides?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "function": {"name": "tide", "arguments": {"at": "Brest"}}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "at 4"},
        {"role": "assistant", "content": "At 4."},
    ],
}

ALWAYS_THINKS = CHATML.replace(
    "{% if add_generation_prompt %}<|start|>assistant\n", "{% if add_generation_prompt %}<|start|>assistant\n<think>\n"
).replace("{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}", "")
"""ChatML whose prompt opens a thought, and which drops thoughts from the history, as DeepSeek-R1's does."""


def test_calls_of_a_declared_run_are_as_the_template_writes_them(tmp_path: Path) -> None:
    records = [with_odd_ids(seed) for seed in range(60)]
    source = write_conversations(tmp_path / "source", [[stored(each) for each in records]])
    build = {
        "source": source,
        "model": write_model(tmp_path / "model", ALWAYS_THINKS),
        "valid_fraction": 0,
        "shards": 1,
    }
    build |= {"allow_unknown_sha": True, "inline_think": True}
    with pytest.raises(RejectedRowError, match="prompt_not_prefix"):
        spanloom.build(out=tmp_path / "no", **build)
    result = spanloom.build(
        out=tmp_path / "root", emission="{reasoning}\\n</think>\\n\\n{content}{calls}{eos}", deep=60, **build
    )
    assert result.report.checked["rows rendered again"] == len(records)
    texts = trained(result.root)
    made = [message for each in records for message in each["messages"] if message["role"] == "assistant"]
    assert texts.count("<call>find_place") == sum("tool_calls" in message for message in made) > 10
    assert texts.count("</think>") == len(made)


def test_the_probe_prints_the_command_that_helps(tmp_path: Path, cli: Cli) -> None:
    model = write_model(tmp_path / "model", ALWAYS_THINKS)
    ended = cli("model", "probe", model)
    assert ended.returncode == 0
    (command,) = [line for line in ended.stdout.splitlines() if line.startswith("next: ")]
    words = shlex.split(command.removeprefix("next: spanloom ").replace("ROOT", str(tmp_path / "root")))
    source = write_conversations(tmp_path / "source", [[stored(record(seed)) for seed in range(20)]])
    words[words.index("SOURCE")] = str(source)
    built = cli(*words, "--shards", "1", "--allow-unknown-sha")
    assert built.returncode == 0, built.stderr
