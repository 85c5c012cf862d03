"""Laws of the generator: what fits is written as it stands, what does not is counted, and nothing forges a span."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.conversations.reading.messages import ROLES as KNOWN_ROLES
from spanloom.errors import ChatError
from spanloom.families.chat.blocks.markers import CONTROL_STRINGS
from spanloom.families.chat.transcripts.convert import clean, generate
from spanloom.families.chat.transcripts.left_out import NO_ROLE, GeneratorCounts, GeneratorRules
from spanloom.families.chat.transcripts.source import (
    Conversation,
    Message,
    conversation_of,
    read_conversations,
)
from support.nightly import drawn

CONTROL = re.compile("|".join(map(re.escape, CONTROL_STRINGS)))
ORIGINAL: Any = {"drop": frozenset({"tool", NO_ROLE}), "empty_answers": True}
"""What the program does from which the given cases come: it passes unknown roles over, and writes empty answers."""


def characters(texts: Sequence[str]) -> list[int]:
    """A tokenizer that anyone can follow: each control string one token, each other character one."""
    return [len(CONTROL.sub("#", text)) for text in texts]


def conversation(*messages: tuple[str | None, str | None]) -> Conversation:
    return Conversation(
        messages=tuple(Message(role=KNOWN_ROLES.get(role or "", role), text=text) for role, text in messages)
    )


def written(
    *conversations: Conversation, context_len: int = 40, line_based: bool = True, **options: Any
) -> tuple[list[str], GeneratorCounts]:
    counts = GeneratorCounts()
    rules = GeneratorRules(context_len=context_len, **options)
    lines = generate(conversations, rules, count_tokens=characters, line_based=line_based, counts=counts)
    return list(lines), counts


def test_every_case_gives_the_transcript_worked_out_for_it(generator_cases: list[dict[str, Any]]) -> None:
    seen = 0
    for case in generator_cases:
        if "conversation" not in case:
            continue
        given = conversation(*((message.get("role"), message.get("text")) for message in case["conversation"]))
        lines, _ = written(given, context_len=case["context_len"], **ORIGINAL)
        assert lines == ([] if case["intended"] is None else [case["intended"]]), case["case"]
        # By way of JSON, where text may be `text` and roles have their aliases, nothing changes.
        read, _ = written(
            conversation_of({"conversation": case["conversation"]}), context_len=case["context_len"], **ORIGINAL
        )
        assert read == lines, case["case"]
        if not any(role == "assistant" and not text for role, text in [(m.role, m.text) for m in given.messages]):
            plain, _ = written(given, context_len=case["context_len"], drop=ORIGINAL["drop"])
            assert plain == lines, case["case"]
        seen += 1
    assert seen >= 19


def test_text_is_cleaned_as_worked_out(generator_cases: list[dict[str, Any]]) -> None:
    cases = [case for case in generator_cases if "upstream_normalized" in case]
    for case in cases:
        assert clean(case["input"], line_based=True) == case["upstream_normalized"], case["case"]
    assert len(cases) >= 3


@pytest.mark.parametrize(
    ("text", "line_based", "expected"),
    [
        ("a\r\nb\rc\nd", True, r"a\nb\nc\nd"),
        ("a\r\nb\rc\nd", False, "a\nb\nc\nd"),
        ("x \n", True, r"x \n"),
        ("x \n", False, "x"),
        ("\xa0x\xa0", True, " x"),
        (" \t x \t ", False, " \t x"),
        (None, True, ""),
        ("", False, ""),
    ],
)
def test_new_lines_are_two_characters_in_lines_and_themselves_elsewhere(
    text: str | None, line_based: bool, expected: str
) -> None:
    assert clean(text, line_based=line_based) == expected


def test_the_counters_say_what_became_of_every_conversation() -> None:
    lines, counts = written(
        conversation(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")),
        conversation(("user", "x" * 40), ("assistant", "y")),
        conversation(("user", "a"), ("user", "b")),
        conversation(("user", "<|PAD|>"), ("assistant", "y")),
        conversation(
            ("user", "a"), ("assistant", "b"), ("user", "c" * 40), ("assistant", "d"), ("user", "e"), ("assistant", "f")
        ),
        conversation(),
    )
    assert len(lines) == 2
    found = counts.as_dict()
    assert {name: found[name] for name in found if name != "examples"} == {
        "conversations_read": 6,
        "conversations_written": 2,
        "conversations_skipped": {"control_string": 1, "no_pair": 2, "first_pair_too_long": 1},
        "conversations_shortened": 1,
        "conversations_ended_early": 0,
        "pairs_written": 3,
        "pairs_dropped": 2,
        "messages_read": 16,
        "messages_written": 6,
        "messages_left_out": {"conversation_skipped": 6, "later_pair_too_long": 4},
        "keys_dropped": {},
        "roles_dropped": {},
        "think_blocks_kept": 0,
        "think_blocks_dropped": 0,
    }
    assert found["examples"]["first_pair_too_long"] == [{"tokens": 45}]
    assert found["examples"]["later_pair_too_long"] == [{"pair": 1, "tokens": 45}]
    assert found["examples"]["control_string"] == [{"message": 0, "found": "<|PAD|>"}]


@pytest.mark.parametrize("control", CONTROL_STRINGS)
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool", None])
def test_a_control_string_in_any_text_keeps_the_conversation_out(control: str, role: str | None) -> None:
    forged = conversation(("user", "a"), ("assistant", "b"), (role, f"late {control} text"))
    lines, counts = written(forged)
    assert lines == []
    assert counts.as_dict()["conversations_skipped"] == {"control_string": 1}
    with pytest.raises(ValueError, match=re.escape(f"control string {control}") + "(?s:.*)conversation 0, message 2"):
        written(forged, on_error="raise")


@pytest.mark.parametrize("control", CONTROL_STRINGS)
def test_a_control_string_that_dropping_a_think_block_makes_is_one(control: str) -> None:
    forged = conversation(("user", "a"), ("assistant", f"b{control[:1]}<think>c</think>{control[1:]}d"))
    lines, counts = written(forged, think="drop", context_len=99)
    assert lines == []
    assert counts.as_dict()["conversations_skipped"] == {"control_string": 1}
    lines, _ = written(forged, think="keep", context_len=99)
    assert len(lines) == 1


def test_what_only_looks_like_a_control_string_is_text() -> None:
    lines, _ = written(conversation(("user", "<|end|> <|EN"), ("assistant", "D|> <|USER |>")), context_len=99)
    assert lines == ["<|USER|><|end|> <|EN<|END|><|ASSISTANT|>D|> <|USER |><|END|>"]


def test_an_empty_system_text_gives_no_system_span() -> None:
    pair = (("user", "a"), ("assistant", "b"))
    for text in ("", None):
        lines, _ = written(conversation(("system", "first"), ("system", text), *pair))
        assert lines == ["<|USER|>a<|END|><|ASSISTANT|>b<|END|>"]


def test_wrong_options_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ChatError, match="at least one token, got 0"):
        GeneratorRules(context_len=0)
    with pytest.raises(ChatError, match="on_error is 'skip', 'raise' or None"):
        GeneratorRules(on_error="ignore")  # type: ignore[arg-type]


roles = st.sampled_from(["system", "user", "prompter", "assistant", "tool", None])
texts = st.none() | st.text("ab \n\r\xa0<|", max_size=8) | st.sampled_from([*CONTROL_STRINGS, "x" * 30])
conversations = st.lists(st.tuples(roles, texts), max_size=10).map(lambda found: conversation(*found))


@settings(max_examples=drawn(100, 33))
@given(st.lists(conversations, max_size=6), st.integers(1, 60), st.booleans())
def test_transcripts_are_well_formed_and_every_pair_fits(
    given_: list[Conversation], context_len: int, line_based: bool
) -> None:
    lines, counts = written(*given_, context_len=context_len, line_based=line_based, drop=ORIGINAL["drop"])
    for line in lines:
        assert not re.search(r"<\|ASSISTANT\|>\s*<\|END\|>", line)
        shape = "".join(marker.strip("<|>")[:1] if marker != "<|END|>" else "." for marker in CONTROL.findall(line))
        assert re.fullmatch(r"(S\.)?(U\.A\.)+", shape), line
        spans = re.findall(
            r"(?s)((?:<\|SYSTEM\|>.*?<\|END\|>)?<\|USER\|>.*?<\|END\|><\|ASSISTANT\|>.*?<\|END\|>)", line
        )
        assert "".join(spans) == line
        assert all(size <= context_len for size in characters(spans))
        assert "\r" not in line
        assert not (line_based and "\n" in line)
    assert (
        counts.conversations_read
        == len(given_)
        == counts.conversations_written + sum(counts.conversations_skipped.values())
    )
    assert counts.conversations_written == len(lines)
    assert counts.pairs_written == sum(line.count("<|USER|>") for line in lines)
    left_out = counts.as_dict()["messages_left_out"]
    assert counts.messages_read == sum(len(one.messages) for one in given_)
    assert counts.messages_read == counts.messages_written + sum(left_out.values())
    assert counts.messages_written == sum(len(re.findall(r"<\|(?:SYSTEM|USER|ASSISTANT)\|>", line)) for line in lines)


def test_a_line_that_cannot_be_read_is_named_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    good = json.dumps([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]).encode()
    path.write_bytes(b"\n".join([good, b"{broken", b'{"other": 1}', b'["\xff"]', good[:-4]]))
    with pytest.raises(ValueError, match=r"not JSON(?s:.*)some\.jsonl, line 2"):
        list(read_conversations(path))
    counts = GeneratorCounts()
    lines = list(
        generate(read_conversations(path, counts.unreadable), GeneratorRules(), count_tokens=characters, counts=counts)
    )
    assert len(lines) == 1
    assert counts.as_dict()["conversations_skipped"] == {"unreadable": 4}
    assert [example["where"] for example in counts.as_dict()["examples"]["unreadable"]] == [
        f"{path}, line {number}" for number in (2, 3, 4, 5)
    ]
    assert counts.conversations_read == 5


# What a transcript has no place for


@pytest.mark.parametrize("flag", [{"should_train": "no"}, {"exclude_from_loss": True}])
def test_no_remedy_drops_what_may_be_a_flag(tmp_path: Path, flag: dict[str, Any]) -> None:
    path = tmp_path / "some.jsonl"
    answer = {"role": "assistant", "content": "2", **flag}
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "2?"}, answer]}) + "\n")
    with pytest.raises(ChatError, match="no place for the key") as refused:
        written(*read_conversations(path))
    assert "--drop" not in str(refused.value)
    assert "rename it to train" in str(refused.value)


REASONED = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2", "tool_calls": []}


def test_a_key_that_is_not_read_is_refused_with_its_line_or_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    plain = {"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]}
    extra = {"tools": [{"name": "add"}], "messages": [{"role": "user", "content": "4?", "name": "Ann"}, REASONED]}
    path.write_text(json.dumps(plain) + "\n" + json.dumps(extra) + "\n")

    def made(drop: str, on_error: Any = None) -> tuple[list[str], GeneratorCounts]:
        return written(*read_conversations(path), drop=frozenset(drop.split(",")), on_error=on_error)

    for drop, missing in (("", "tools, name, reasoning_content"), ("name,reasoning_content", "tools")):
        with pytest.raises(ChatError, match=f"no place for the keys? {missing}(?s:.*)line 2(?s:.*)--drop") as refused:
            made(drop)
        assert f"--drop {missing.replace(', ', ',')}," in str(refused.value)
    lines, counts = made("tools,name,reasoning_content")
    assert lines[1] == "<|USER|>4?<|END|><|ASSISTANT|>4<|END|>"
    assert counts.as_dict()["keys_dropped"] == {"name": 1, "reasoning_content": 1, "tools": 1}
    lines, counts = made("", on_error="skip")
    assert len(lines) == 1
    assert counts.as_dict()["conversations_skipped"] == {"unused_key": 1}
    (example,) = counts.as_dict()["examples"]["unused_key"]
    assert (example["found"], example["where"]) == ("tools, name, reasoning_content", f"{path}, line 2")


def test_a_role_without_a_marker_is_refused_or_dropped_and_counted() -> None:
    used = conversation(
        ("user", "a"), ("assistant", "b"), ("tool", "t"), (None, "n"), ("user", "c"), ("assistant", "d")
    )
    with pytest.raises(
        ChatError, match=r"no place for the roles tool, no-role(?s:.*)message 2(?s:.*)--drop tool,no-role"
    ):
        written(used)
    with pytest.raises(ChatError, match=r"no place for the role no-role(?s:.*)message 3"):
        written(used, drop=frozenset({"tool"}))
    lines, counts = written(used, drop=frozenset({"tool", NO_ROLE}))
    assert lines == ["<|USER|>a<|END|><|ASSISTANT|>b<|END|><|USER|>c<|END|><|ASSISTANT|>d<|END|>"]
    assert counts.as_dict()["roles_dropped"] == {"no-role": 1, "tool": 1}
    assert counts.as_dict()["messages_left_out"] == {"dropped_role": 2}


def test_a_tool_conversation_never_becomes_an_empty_answer() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "clock"}}]}
    asked = [{"role": "user", "content": "Time?"}, call, {"role": "tool", "content": "9"}]
    tail = [{"role": "assistant", "content": "Nine."}]
    drop = frozenset({"tool_calls", "tool"})
    lines, counts = written(conversation_of([*asked, *tail]), drop=drop)
    assert lines == []
    assert counts.as_dict()["conversations_skipped"] == {"empty_answer": 1}
    pair = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    lines, counts = written(conversation_of([*pair, *asked, *tail]), drop=drop)
    assert lines == ["<|USER|>Hi<|END|><|ASSISTANT|>Hello<|END|>"]
    assert counts.as_dict()["messages_left_out"] == {"empty_answer": 2, "after_the_end": 2}
    assert counts.as_dict()["conversations_ended_early"] == 1


@pytest.mark.parametrize("empty", [None, "", " \n\t", "\xa0", "<think>only this</think>\n"])
def test_an_answer_of_nothing_is_not_written(empty: str | None) -> None:
    for line_based in (True, False):
        lines, counts = written(conversation(("user", "a"), ("assistant", empty)), think="drop", line_based=line_based)
        assert (lines, counts.as_dict()["conversations_skipped"]) == ([], {"empty_answer": 1})


THOUGHT = "<think>\nsmall\n</think>\n\nNine. <THINK>x</THINK> Done."


def test_think_blocks_are_kept_dropped_or_refused() -> None:
    given_ = conversation(("user", "a <think> b"), ("assistant", THOUGHT))
    for options in ({}, {"think": "refuse"}):
        with pytest.raises(ChatError, match=r"the answer holds <think>(?s:.*)message 1(?s:.*)--think drop"):
            written(given_, context_len=99, **options)
    lines, counts = written(given_, context_len=99, line_based=False, think="drop")
    assert lines == ["<|USER|>a <think> b<|END|><|ASSISTANT|>Nine. Done.<|END|>"]
    assert (counts.think_blocks_dropped, counts.think_blocks_kept) == (2, 0)
    lines, counts = written(given_, context_len=99, line_based=False, think="keep")
    assert lines == [f"<|USER|>a <think> b<|END|><|ASSISTANT|>{THOUGHT}<|END|>"]
    assert (counts.think_blocks_dropped, counts.think_blocks_kept) == (0, 2)


@pytest.mark.parametrize("half", ["thought</think>said", "<think>thought", "<think>a<think>b</think>c</think>d"])
def test_half_a_think_block_is_never_dropped_by_guessing(half: str) -> None:
    given_ = conversation(("user", "a"), ("assistant", half))
    with pytest.raises(ChatError, match="without the other half of its pair"):
        written(given_, think="drop")
    _, counts = written(given_, think="drop", on_error="skip")
    assert counts.as_dict()["conversations_skipped"] == {"think_tag": 1}
    assert written(given_, think="keep")[0] == [f"<|USER|>a<|END|><|ASSISTANT|>{half}<|END|>"]


# Every key and role of the input is used, refused with its line, or dropped by an option that counts it.

WORDS = [f"w{number}w" for number in range(60)]
"""Texts that are told apart wherever they turn up; each is used once in an input."""

KEYS = ["reasoning_content", "tool_calls", "name", "refusal", "reasoning"]
ROLES = ["system", "user", "assistant", "tool", "developer", "function", None]
TOOLS = ("tool", "function")
NAMES = [*KEYS, *ROLES[3:6], NO_ROLE, "tools", "source", "think"]


@st.composite
def record(draw: st.DrawFn, words: list[str]) -> dict[str, Any]:
    def word() -> str:
        return words.pop()

    messages = []
    for _ in range(draw(st.integers(0, 5))):
        role = draw(st.sampled_from(ROLES + ["user", "assistant"] * 3))
        text: Any = draw(st.sampled_from([word(), word(), [{"type": "text", "text": word()}, word()], "", None]))
        if isinstance(text, str) and role == "assistant" and text and draw(st.integers(0, 5)) == 0:
            text = f"<think>{word()}</think>{text}"
        message: dict[str, Any] = {"role": role, "content": text}
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True)):
            message[key] = draw(st.sampled_from([word(), [{"inner": word()}], None, [], ""]))
        messages.append(message)
    made: dict[str, Any] = {"messages": messages}
    for key in draw(st.lists(st.sampled_from(["tools", "source"]), max_size=2, unique=True)):
        made[key] = draw(st.sampled_from([word(), None, {"inner": None}]))
    return made


def words_of(value: Any) -> set[str]:
    return set(re.findall(r"w\d+w", json.dumps(value)))


@settings(max_examples=drawn(400, 65))
@given(st.data())
def test_every_word_of_the_input_is_written_refused_with_its_line_or_dropped_and_counted(data: st.DataObject) -> None:
    words = list(WORDS) * 4
    words = [f"{word[:-1]}{number}w" for number, word in enumerate(words)]
    made = data.draw(record(words))
    drop = frozenset(data.draw(st.lists(st.sampled_from(NAMES), unique=True)))
    think = data.draw(st.sampled_from(["keep", "drop", "refuse"]))
    if any(isinstance(message.get("name"), list) for message in made["messages"] if message["role"] in TOOLS):
        with pytest.raises(ChatError, match=r"chats\.jsonl, line 7"):
            conversation_of(made, "chats.jsonl, line 7")
        return
    given_ = conversation_of(made, "chats.jsonl, line 7")
    refused = None
    try:
        lines, counts = written(given_, context_len=10_000, drop=drop, think=think)
    except ChatError as error:
        refused = str(error)
    if refused is not None:
        assert "chats.jsonl, line 7" in refused
        lines, counts = written(given_, context_len=10_000, drop=drop, think=think, on_error="skip")
        assert lines == []
        assert sum(counts.conversations_skipped.values()) == 1
        return
    said = counts.as_dict()
    if not lines:
        assert sum(said["conversations_skipped"].values()) == 1
        assert said["messages_left_out"] == (
            {"conversation_skipped": len(made["messages"])} if made["messages"] else {}
        )
        return
    missing = words_of(made) - words_of(lines)
    # What is missing is in a key, a role or a block that an option names, or in a message that is counted.
    of_keys = sum(words_of(value) != set() for value in keyed(made))
    assert of_keys == sum(said["keys_dropped"].values())
    assert set(said["keys_dropped"]) <= drop
    assert said["roles_dropped"] == {
        name: count for name in (*ROLES[3:6], NO_ROLE)
        if (count := sum((m["role"] or NO_ROLE) == name for m in made["messages"])) and name in drop
    }  # fmt: skip
    assert len(made["messages"]) == said["messages_written"] + sum(said["messages_left_out"].values())
    gone = missing - set().union(*map(words_of, keyed(made)))
    texts = [words_of(message["content"]) for message in made["messages"]]
    whole = [text for text in texts if text and text <= gone]
    thoughts = {word for message in made["messages"] for word in re.findall(r"<think>(w\d+w)", str(message["content"]))}
    assert gone <= set().union(*whole) | (thoughts if think == "drop" else set())
    assert len(whole) <= sum(said["messages_left_out"].values())
    if gone & thoughts - set().union(*whole):
        assert said["think_blocks_dropped"]


def keyed(made: dict[str, Any]) -> list[Any]:
    """The values of the keys that are neither role nor text."""
    values = [value for key, value in made.items() if key != "messages"]
    return values + [
        value for message in made["messages"] for key, value in message.items() if key not in ("role", "content")
    ]


@pytest.mark.parametrize(
    ("extra", "reason", "said"),
    [
        ({"weight": 0}, "untrained", "is marked as not to be trained"),
        ({"finish_reason": "length"}, "truncated", "was cut off by a limit of tokens"),
    ],
)
def test_an_answer_that_is_not_to_be_trained_whole_is_refused_or_skipped(extra: Any, reason: str, said: str) -> None:
    asked, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    given_ = conversation_of({"messages": [asked, {**answer, **extra}, asked, answer]}, "chats.jsonl, line 7")
    with pytest.raises(ChatError, match=f"{said}(?s:.*)line 7, message 1(?s:.*)--on-error skip"):
        written(given_)
    lines, counts = written(given_, on_error="skip")
    assert (lines, counts.as_dict()["conversations_skipped"]) == ([], {reason: 1})
    assert counts.as_dict()["messages_left_out"] == {"conversation_skipped": 4}


def test_thoughts_and_calls_are_left_out_by_name_alone() -> None:
    call = {"role": "assistant", "content": "a", "thinking": "r", "tool_calls": [{"name": "f", "arguments": {}}]}
    given_ = conversation_of({"messages": [{"role": "user", "content": "q"}, call]})
    with pytest.raises(ChatError, match="no place for the keys thinking, tool_calls"):
        written(given_)
    lines, counts = written(given_, drop=frozenset({"thinking", "tool_calls"}))
    assert lines == ["<|USER|>q<|END|><|ASSISTANT|>a<|END|>"]
    assert counts.as_dict()["keys_dropped"] == {"thinking": 1, "tool_calls": 1}


def test_a_record_that_a_label_rejects_is_counted() -> None:
    lines, counts = written(conversation_of({"prompt": "q", "completion": "a", "label": False}))
    assert (lines, counts.as_dict()["conversations_skipped"]) == ([], {"not_preferred": 1})


@pytest.mark.parametrize(
    "mark", ["<|im_end|>", "[INST]", "<tool_call>", "<end_of_turn>", "<|channel|>final<|message|>"]
)
def test_markup_of_templates_in_an_answer_is_refused_or_kept_by_name(mark: str) -> None:
    given_ = conversation(("user", f"q {mark}"), ("assistant", f"a {mark}"))
    with pytest.raises(ChatError, match=r"as chat templates write it(?s:.*)message 1(?s:.*)--text-as-is"):
        written(given_, context_len=99)
    lines, counts = written(given_, context_len=99, on_error="skip")
    assert (lines, counts.as_dict()["conversations_skipped"]) == ([], {"markup": 1})
    lines, _ = written(given_, context_len=99, text_as_is=True)
    assert lines == [f"<|USER|>q {mark}<|END|><|ASSISTANT|>a {mark}<|END|>"]


@pytest.mark.parametrize(
    "flag", [{"loss_masks": [0, 1]}, {"train_turns": [1]}, {"mask_history": True}, {"train": False}]
)
def test_a_flag_of_a_record_is_never_dropped(flag: Any) -> None:
    asked, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    with pytest.raises(ChatError) as refused:
        conversation_of({"messages": [asked, answer, asked, answer], **flag}, "chats.jsonl, line 7")
    assert "--drop" not in str(refused.value)
