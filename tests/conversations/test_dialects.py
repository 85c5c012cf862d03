"""A conversation in the dialects of trainers: exact records, what is refused, and `convert` reads each one back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Cli
from spanloom.conversations.conversation import Conversation, Settings, parse_conversation
from spanloom.conversations.dialects import UnsayableError, as_record
from spanloom.conversations.turns import Call, Message
from spanloom.dataset.defaults import Trainer
from spanloom.records.parquet import open_parquet

ASK = Message(role="user", texts=("2 + 2?",))
ANSWER = Message(role="assistant", texts=("4",), reasoning=("Add.",))
UNTRAINED = Message(role="assistant", texts=("5",), trained=False)
CALL = Message(role="assistant", calls=(Call(id="c1", name="add", arguments='{"a":2}'),))
RESULT = Message(role="tool", texts=("4",), call_id="c1")
BESIDE = replace(CALL, texts=("Wait.",))
SYSTEM = Message(role="system", texts=("x",))
TOOLS = ({"name": "add", "parameters": {"type": "object"}},)
FUNCTION = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}

PLAIN = Conversation(messages=(ASK, ANSWER))
FLAGGED = Conversation(messages=(ASK, UNTRAINED, ASK, ANSWER))
CALLED = Conversation(messages=(ASK, CALL, RESULT, ANSWER), tools=TOOLS)


def test_trl() -> None:
    record, left_out = as_record(replace(PLAIN, weight=2.0, chat_template_kwargs={"x": 1}), "trl")
    assert record == {
        "messages": [
            {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "content": "4", "reasoning_content": "Add."},
        ],
        "chat_template_kwargs": {"x": 1},
    }
    assert left_out == ["weight"]


def test_axolotl() -> None:
    record, _ = as_record(FLAGGED, "axolotl")
    assert [(each["role"], each.get("train")) for each in json.loads(record["messages"])] == [
        ("user", None), ("assistant", False), ("user", None), ("assistant", True),
    ]  # fmt: skip
    record, _ = as_record(CALLED, "axolotl")
    assert json.loads(record["tools"]) == [FUNCTION]
    assert json.loads(record["messages"])[1] == {
        "role": "assistant",
        "content": "",
        "train": True,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":2}'}}],
    }


def test_ms_swift() -> None:
    record, _ = as_record(replace(CALLED, messages=(*CALLED.messages[:3], UNTRAINED, ASK, ANSWER)), "ms-swift")
    assert record == {
        "messages": [
            {"role": "user", "content": "2 + 2?"},
            {"role": "tool_call", "content": '{"name": "add", "arguments": {"a":2}}', "loss": True},
            {"role": "tool", "content": "4"},
            {"role": "assistant", "content": "5", "loss": False},
            {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "content": "<think>\nAdd.\n</think>\n\n4", "loss": True},
        ],
        "tools": json.dumps([FUNCTION]),
    }


def test_automodel() -> None:
    record, _ = as_record(CALLED, "automodel")
    assert record["tools"] == [FUNCTION]
    assert record["messages"][1:3] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":2}'}}],
        },
        {"role": "tool", "content": "4", "tool_call_id": "c1"},
    ]


def test_llama_factory() -> None:
    record, _ = as_record(CALLED, "llama-factory")
    assert record == {
        "conversations": [
            {"from": "human", "value": "2 + 2?"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a":2}}'},
            {"from": "observation", "value": "4"},
            {"from": "gpt", "value": "<think>\nAdd.\n</think>\n\n4"},
        ],
        "tools": json.dumps(list(TOOLS)),
    }


@pytest.mark.parametrize(("conversation", "trainers", "reason"), [
    (FLAGGED, ("trl", "llama-factory", "automodel"), "untrained_answer"),
    (CALLED, ("trl",), "tools"),
    (replace(PLAIN, settings=Settings(reasoning_effort="low")), ("trl", "axolotl", "ms-swift"), "settings"),
    (
        replace(PLAIN, chat_template_kwargs={"x": 1}),
        ("axolotl", "ms-swift", "llama-factory", "automodel"),
        "chat_template_kwargs",
    ),
    (replace(PLAIN, messages=(ASK, replace(ANSWER, truncated=True))), ("axolotl", "trl"), "truncated_answer"),
    (replace(PLAIN, messages=(ASK, replace(ANSWER, texts=("a", "b")))), ("axolotl", "trl"), "several_parts"),
    (replace(PLAIN, messages=(replace(ASK, name="Ada"), ANSWER)), ("axolotl", "ms-swift"), "name_of_user"),
    (replace(PLAIN, messages=(Message(role="developer", texts=("x",)), ASK, ANSWER)), ("axolotl",), "developer"),
    (replace(PLAIN, messages=(ASK, SYSTEM, ANSWER)), ("trl", "axolotl"), "system_not_first"),
    (replace(PLAIN, messages=(ASK, ASK, ANSWER)), ("llama-factory",), "not_in_turn"),
    (replace(CALLED, messages=(ASK, BESIDE, RESULT, ANSWER)), ("llama-factory",), "text_beside_calls"),
])  # fmt: skip
def test_what_a_trainer_would_show_or_train_otherwise_is_refused(
    conversation: Conversation, trainers: tuple[Trainer, ...], reason: str
) -> None:
    for trainer in trainers:
        with pytest.raises(UnsayableError) as refused:
            as_record(conversation, trainer)
        assert refused.value.reason == reason


def conversations(source: Path) -> list[Conversation]:
    rows: list[Any] = []
    for path in sorted(source.glob("*.parquet")):
        with open_parquet(path) as file:
            rows += file.read(["messages_json"]).column(0).to_pylist()
    return [parse_conversation(row) for row in rows]


@pytest.mark.parametrize("trainer", ["trl", "axolotl", "ms-swift", "llama-factory", "automodel"])
def test_an_export_read_back_by_convert_is_the_same_conversations(cli: Cli, tmp_path: Path, trainer: Trainer) -> None:
    """In the order of the source, without those that are refused: as many as the counts say."""
    source = tmp_path / "source"
    assert cli("convert", REPOSITORY / "docs/examples/chat.jsonl", "--out", source, "-q").returncode == 0
    command = ("export", source, "--to", "messages", "--for", trainer, "--out", tmp_path / "out", "--json")
    done = cli(*command)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert cli(*command).stdout == done.stdout
    whole = conversations(source)
    assert made["conversations"] + sum(made["refused"].values()) == len(whole) == 10
    options = ("--think-tags",) if trainer in ("ms-swift", "llama-factory") else ()
    if trainer == "ms-swift":  # a call beside a text is a message of its own
        options = (*options, "--join-consecutive")
    back = cli("convert", tmp_path / "out/conversations.jsonl", "--out", tmp_path / "back", "-q", *options)
    assert back.returncode == 0, back.stderr
    kept = []
    for conversation in whole:
        try:
            as_record(conversation, trainer)
        except UnsayableError:
            continue
        kept.append(conversation)
    assert [texts_of(each) for each in conversations(tmp_path / "back")] == [texts_of(each) for each in kept]


def texts_of(conversation: Conversation) -> list[Any]:
    """What every dialect can say of messages, without ids of calls and split messages."""
    found: list[Any] = []
    for message in conversation.messages:
        calls = [(call.name, json.loads(call.arguments)) for call in message.calls]
        found.append((message.role, message.texts, message.reasoning, calls, message.trained))
    return found


def test_a_source_and_a_trainer_are_needed(cli: Cli, tmp_path: Path) -> None:
    source, chat = tmp_path / "source", REPOSITORY / "docs/examples/chat.jsonl"
    assert cli("convert", chat, "--out", source, "-q", "--format", "harmony").returncode == 0
    for arguments, message in (
        (("--to", "messages"), "go together"),
        (("--for", "trl"), "go together"),
        (("--to", "messages", "--for", "trl"), "conversations_v1"),
    ):
        done = cli("export", source, *arguments, "--out", tmp_path / "out")
        assert done.returncode in (1, 2), done.stdout
        assert message in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
