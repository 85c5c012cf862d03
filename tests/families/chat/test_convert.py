"""Laws of the generator: what fits is written as it stands, what does not is counted, and nothing forges a span."""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.errors import ChatError, ConflictError, SourceError
from spanloom.families.chat.convert import GeneratorCounts, clean, generate
from spanloom.families.chat.markers import CONTROL_STRINGS
from spanloom.families.chat.source import Conversation, Message, conversation_of, read_conversations
from spanloom.families.chat.transcripts import TranscriptWriter, is_line_based, read_transcripts

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


# Reading


def test_common_names_of_keys_and_roles_are_taken() -> None:
    wanted = (Message(role="user", text="a"), Message(role="assistant", text="b"))
    for record in (
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
        {"conversation": [{"role": "prompter", "text": "a"}, {"role": "assistant", "text": "b"}]},
        {"turns": [{"speaker": "User", "text": "a"}, {"speaker": "bot", "text": "b"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"from": "model", "value": "b"}]},
        {"messages": '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]'},
    ):
        assert conversation_of(record).messages == wanted
    assert conversation_of({"messages": [{"content": "a"}, {"role": "tool"}]}).messages == (
        Message(role=None, text="a"),
        Message(role="tool", text=None),
    )
    assert conversation_of({"messages": None}).messages == ()
    assert conversation_of({"id": 7, "messages": []}).id == "7"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "a"}, "none of messages, conversations"),
        ("text", "no list of messages but text"),
        ({"messages": {"role": "user"}}, "no list of messages but an object"),
        ({"messages": ["hello"]}, "message is no object but text"),
        ({"messages": [{"role": "user", "content": 3}]}, "text of the message is a number"),
        ({"messages": [{"role": 3, "content": "a"}]}, "role is no text but a number"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "url": "x"}]}]}, "something else than text"),
        ({"messages": "not json"}, "text that is not JSON"),
    ],
)
def test_what_is_no_conversation_is_said_with_its_place(record: Any, message: str) -> None:
    with pytest.raises(ChatError, match=f"{message}(?s:.*)here"):
        conversation_of(record, "here")


def test_lines_are_read_from_files_and_folders_in_order(tmp_path: Path) -> None:
    def line(text: str) -> str:
        return json.dumps({"id": text, "messages": [{"role": "user", "content": text}]}) + "\n"

    (tmp_path / "b.jsonl").write_text("\ufeff" + line("b1") + "\n" + line("b2"), encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.jsonl.gz").write_bytes(gzip.compress(line("c").encode()))
    (tmp_path / "notes.md").write_text("not read")
    messages = [[{"from": "human", "value": "a1"}], [{"from": "human", "value": "a2"}], None]
    pq.write_table(pa.table({"conversations": messages, "id": ["a1", None, "a3"]}), tmp_path / "a.parquet")
    found = list(read_conversations(tmp_path))
    assert [[message.text for message in one.messages] for one in found] == [["a1"], ["a2"], [], ["b1"], ["b2"], ["c"]]
    assert [one.id for one in found] == ["a1", None, "a3", "b1", "b2", "c"]
    assert found[1].where == f"{tmp_path / 'a.parquet'}, row 2"
    assert found[4].where == f"{tmp_path / 'b.jsonl'}, line 3"


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


def test_files_that_are_no_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not there"):
        list(read_conversations(tmp_path / "missing.jsonl"))
    with pytest.raises(SourceError, match="holds none of"):
        list(read_conversations(tmp_path))
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(SourceError, match="of no kind that is read"):
        list(read_conversations(tmp_path / "x.csv"))
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match="not a readable Parquet file"):
        list(read_conversations(tmp_path / "x.parquet"))
    pq.write_table(pa.table({"prompt": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match="no column is named messages"):
        list(read_conversations(tmp_path / "x.parquet"))
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b"[]\n" * 9999)[:40])
    with pytest.raises(SourceError, match="cannot be unpacked"):
        list(read_conversations(tmp_path / "x.jsonl.gz"))


# Writing


TEXTS = ["<|USER|>a\nb\u2028c<|END|>", "", " \t", "ü日本🎉", "line\\nfeed"]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".txt"])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"transcripts{suffix}"
    wanted = [text.replace("\n", "\\n") if is_line_based(path) else text for text in TEXTS * 2000]
    with TranscriptWriter(path) as writer:
        for text in wanted:
            writer.write(text)
        entry = writer.publish()
    assert [text for _, text in read_transcripts(path)] == wanted
    assert entry["transcripts"] == len(wanted)
    assert entry["bytes"] == path.stat().st_size
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".txt"])
def test_what_is_not_finished_leaves_nothing_and_nothing_is_overwritten(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"transcripts{suffix}"
    with pytest.raises(RuntimeError, match="stopped"), TranscriptWriter(path) as writer:
        writer.write("a")
        raise RuntimeError("stopped")
    assert list(tmp_path.iterdir()) == []

    def write(text: str) -> None:
        with TranscriptWriter(path) as writer:
            writer.write(text)
            writer.publish()

    write("a")
    write("a")  # the same again is no conflict
    with pytest.raises(ConflictError, match="refusing to overwrite"):
        write("b")
    assert [text for _, text in read_transcripts(path)] == ["a"]
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_nothing_written_is_an_empty_file_that_is_read_back(tmp_path: Path) -> None:
    for suffix in (".parquet", ".jsonl", ".txt"):
        with TranscriptWriter(tmp_path / f"empty{suffix}") as writer:
            writer.publish()
        assert list(read_transcripts(tmp_path / f"empty{suffix}")) == []


def test_lines_hold_one_line_and_endings_are_known(tmp_path: Path) -> None:
    with pytest.raises(ChatError, match="more than one line"), TranscriptWriter(tmp_path / "x.txt") as writer:
        writer.write("a\nb")
    with pytest.raises(ChatError, match=r"written as \.parquet, \.jsonl, \.txt"):
        TranscriptWriter(tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []


def test_transcripts_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\r\n\xff\n\nlast")
    with pytest.raises(ValueError, match=r"not UTF-8(?s:.*)a\.txt, line 2"):
        list(read_transcripts(tmp_path / "a.txt"))
    errors: list[ChatError] = []
    assert [text for _, text in read_transcripts(tmp_path / "a.txt", unreadable=errors.append)] == ["fine", "", "last"]
    assert len(errors) == 1

    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n{"text": null}\n{"text": 3}\n{"other": "x"}\n[1]\n')
    errors.clear()
    assert [text for _, text in read_transcripts(tmp_path / "b.jsonl", unreadable=errors.append)] == ["a", None]
    assert [error.where for error in errors] == [f"{tmp_path / 'b.jsonl'}, line {number}" for number in (3, 4, 5)]

    pq.write_table(pa.table({"text": ["a", None], "number": [1, 2]}), tmp_path / "c.parquet")
    assert [text for _, text in read_transcripts(tmp_path / "c.parquet")] == ["a", None]
    with pytest.raises(SourceError, match="no column body; there are text, number"):
        list(read_transcripts(tmp_path / "c.parquet", column="body"))
    with pytest.raises(SourceError, match="the column number is int64, not text"):
        list(read_transcripts(tmp_path / "c.parquet", column="number"))


def test_bytes_in_parquet_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"\xff\xfe", b"too"], pa.binary())
    pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 3, raw.buffers())}), tmp_path / "a.parquet")
    errors: list[ChatError] = []
    found = [text for _, text in read_transcripts(tmp_path / "a.parquet", unreadable=errors.append)]
    assert found == ["fine", "too"]
    assert [error.where for error in errors] == [f"{tmp_path / 'a.parquet'}, row 2"]
