"""Laws of the generator: what fits is written as it stands, what does not is counted, and nothing forges a span."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.errors import ChatError
from spanloom.families.chat.convert import GeneratorCounts, clean, generate
from spanloom.families.chat.markers import CONTROL_STRINGS
from spanloom.families.chat.source import Conversation, Message, conversation_of, read_conversations

CONTROL = re.compile("|".join(map(re.escape, CONTROL_STRINGS)))


def characters(texts: Sequence[str]) -> list[int]:
    """A tokenizer that anyone can follow: each control string one token, each other character one."""
    return [len(CONTROL.sub("#", text)) for text in texts]


def conversation(*messages: tuple[str | None, str | None]) -> Conversation:
    return Conversation(messages=tuple(Message(role=role, text=text) for role, text in messages))


def written(
    *conversations: Conversation, context_len: int = 40, line_based: bool = True, **options: Any
) -> tuple[list[str], GeneratorCounts]:
    counts = GeneratorCounts()
    lines = generate(
        conversations,
        count_tokens=characters,
        context_len=context_len,
        line_based=line_based,
        counts=counts,
        **options,
    )
    return list(lines), counts


def test_every_case_gives_the_transcript_worked_out_for_it(generator_cases: list[dict[str, Any]]) -> None:
    seen = 0
    for case in generator_cases:
        if "conversation" not in case:
            continue
        given = conversation(*((message.get("role"), message.get("text")) for message in case["conversation"]))
        lines, _ = written(given, context_len=case["context_len"])
        assert lines == ([] if case["intended"] is None else [case["intended"]]), case["case"]
        # By way of JSON, where text may be `text` and roles have their aliases, nothing changes.
        read, _ = written(conversation_of({"conversation": case["conversation"]}), context_len=case["context_len"])
        assert read == lines, case["case"]
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
        "messages_passed_over": 0,
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
        generate([], count_tokens=characters, context_len=0)
    with pytest.raises(ChatError, match="on_error is 'skip' or 'raise'"):
        generate([], count_tokens=characters, context_len=1, on_error="ignore")  # type: ignore[arg-type]


roles = st.sampled_from(["system", "user", "prompter", "assistant", "tool", None])
texts = st.none() | st.text("ab \n\r\xa0<|", max_size=8) | st.sampled_from([*CONTROL_STRINGS, "x" * 30])
conversations = st.lists(st.tuples(roles, texts), max_size=10).map(lambda found: conversation(*found))


@settings(max_examples=100, deadline=None)
@given(st.lists(conversations, max_size=6), st.integers(1, 60), st.booleans())
def test_transcripts_are_well_formed_and_every_pair_fits(
    given_: list[Conversation], context_len: int, line_based: bool
) -> None:
    lines, counts = written(*given_, context_len=context_len, line_based=line_based)
    for line in lines:
        shape = "".join(marker.strip("<|>")[:1] if marker != "<|END|>" else "." for marker in CONTROL.findall(line))
        assert re.fullmatch(r"(S\.)?(U\.A\.)+", shape), line
        spans = re.findall(
            r"(?s)((?:<\|SYSTEM\|>.*?<\|END\|>)?<\|USER\|>.*?<\|END\|><\|ASSISTANT\|>.*?<\|END\|>)", line
        )
        assert "".join(spans) == line
        assert all(size <= context_len for size in characters(spans))
        assert "\r" not in line
        assert not (line_based and "\n" in line)
    assert counts.read == len(given_) == counts.written + sum(counts.skipped.values())
    assert counts.written == len(lines)
    assert counts.pairs_written == sum(line.count("<|USER|>") for line in lines)


def test_a_line_that_cannot_be_read_is_named_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    good = json.dumps([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]).encode()
    path.write_bytes(b"\n".join([good, b"{broken", b'{"other": 1}', b'["\xff"]', good[:-4]]))
    with pytest.raises(ValueError, match=r"not JSON(?s:.*)some\.jsonl, line 2"):
        list(read_conversations(path))
    counts = GeneratorCounts()
    lines = list(
        generate(read_conversations(path, counts.unreadable), count_tokens=characters, context_len=40, counts=counts)
    )
    assert len(lines) == 1
    assert counts.as_dict()["conversations_skipped"] == {"unreadable": 4}
    assert [example["where"] for example in counts.as_dict()["examples"]["unreadable"]] == [
        f"{path}, line {number}" for number in (2, 3, 4, 5)
    ]
    assert counts.read == 5
