"""Conversations are taken from files of many manners, in order, each with its place; what is none is named."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import ChatError, RecordError, SourceError
from spanloom.families.chat.transcripts.source import Message, conversation_of, read_conversations


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
        [{"role": "user", "content": [{"type": None, "text": "a"}]}, {"role": "assistant", "content": "b"}],
    ):
        assert conversation_of(record).messages == wanted
    assert conversation_of({"messages": [{"content": "a"}, {"role": "tool"}]}).messages == (
        Message(role=None, text="a"),
        Message(role="tool", text=None),
    )
    assert conversation_of({"messages": None}).messages == ()
    assert conversation_of({"id": 7, "messages": []}).id == "7"


def test_keys_that_hold_something_and_are_not_read_are_named() -> None:
    user = {"role": "user", "content": "a"}
    for message, unused in (
        (
            user | {"name": "Ann", "weight": 0, "tool_calls": [], "refusal": None, "audio": {"id": None}},
            ("name",),
        ),
        (user | {"from": "user", "text": "a"}, ()),
        (user | {"from": "human", "text": "b"}, ("from", "text")),
        (
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "x"}}]},
            ("cache_control",),
        ),
        ({"role": "user", "content": None, "value": "a"}, ()),
    ):
        (found,) = conversation_of([message]).messages
        assert (found.text, found.unused) == ("a", unused)
    found = conversation_of(
        {"id": "x", "uuid": 5, "messages": [user], "conversations": [user], "tools": [1], "n": None}
    )
    assert (found.id, found.unused) == ("x", ("conversations", "tools"))
    assert conversation_of({"messages": None, "turns": [user]}).messages[0].text == "a"


def test_columns_and_repeated_keys_are_not_passed_over(tmp_path: Path) -> None:
    messages = [[{"role": "user", "content": "a", "name": None}], [{"role": "user", "content": "b", "name": "Ann"}]]
    pq.write_table(pa.table({"messages": messages, "source": [None, "web"]}), tmp_path / "a.parquet")
    assert [(one.unused, one.messages[0].unused) for one in read_conversations(tmp_path)] == [
        ((), ()),
        (("source",), ("name",)),
    ]
    far = pa.array([None, 2**62], pa.timestamp("us"))  # Python has no such day
    pq.write_table(pa.table({"messages": messages, "at": far}), tmp_path / "a.parquet")
    assert [one.unused for one in read_conversations(tmp_path)] == [(), ("at",)]
    (tmp_path / "a.jsonl").write_text('{"messages": [{"role": "user", "content": "a", "content": "b"}]}\n')
    with pytest.raises(RecordError, match="'content' twice"):
        list(read_conversations(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "a"}, "the first record has the keys 'prompt'"),
        ("text", "the first record is text"),
        ({"messages": {"role": "user"}}, "must be a list, not an object"),
        ({"messages": ["hello"]}, "message 0 is text, not an object"),
        ({"messages": [{"role": "user", "content": 3}]}, "message 0: the content is a number, not text"),
        ({"messages": [{"role": 3, "content": "a"}]}, "message 0 has the role 3"),
        ({"messages": [{"role": "user", "content": [{"type": ["image"], "text": "x"}]}]}, "part 0 is of type"),
        ({"messages": "not json"}, "must be a list, not text"),
        ({"messages": '[{"role": "user", "content": "a", "content": "b"}]'}, "the key 'content' twice"),
        ({"messages": '[{"role": "user", "content": "\\ud800"}]'}, "text that is not JSON"),
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
    with pa.CompressedOutputStream(str(tmp_path / "sub" / "d.jsonl.zst"), "zstd") as packed:
        packed.write(line("d").encode())
    (tmp_path / "notes.md").write_text("not read")
    messages = [[{"from": "human", "value": "a1"}], [{"from": "human", "value": "a2"}], None]
    pq.write_table(pa.table({"conversations": messages, "id": ["a1", None, "a3"]}), tmp_path / "a.parquet")
    found = list(read_conversations(tmp_path))
    texts = [[message.text for message in one.messages] for one in found]
    assert texts == [["a1"], ["a2"], [], ["b1"], ["b2"], ["c"], ["d"]]
    assert [one.id for one in found] == ["a1", None, "a3", "b1", "b2", "c", "d"]
    assert found[1].where == f"{tmp_path / 'a.parquet'}, row 2"
    assert found[4].where == f"{tmp_path / 'b.jsonl'}, line 3"


def test_programs_of_jq_are_for_the_kind_of_file(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    for record in ({"topic": {"messages": talk}}, {"question": "Q", "answer": 4}):
        (tmp_path / "lines.jsonl").write_text(json.dumps(record) + "\n")
        (tmp_path / "array.json").write_text(json.dumps([record]))
        for name in ("lines.jsonl", "array.json"):
            with pytest.raises(ChatError) as refused:
                list(read_conversations(tmp_path / name))
            assert ("jq -c '(arrays[], objects) | " in str(refused.value.remedy)) == (name == "array.json")


def test_json_is_an_array_of_records_or_one_or_lines(tmp_path: Path) -> None:
    rows = [[{"role": "user", "content": f"q{number}"}] for number in range(3)]
    path = tmp_path / "chats.json"
    for text in (
        json.dumps([{"messages": row} for row in rows]),
        "".join(f'{{"messages": {json.dumps(row)}}}\n' for row in rows),
    ):
        path.write_text(text)
        for place in (path, tmp_path):
            assert [chat.messages[0].text for chat in read_conversations(place)] == ["q0", "q1", "q2"]
    path.write_text(json.dumps({"messages": rows[1]}))
    assert [chat.messages[0].text for chat in read_conversations(path)] == ["q1"]
    (tmp_path / "chats.jsonl").write_text(json.dumps(rows[2]) + "\n")
    assert [chat.messages[0].text for chat in read_conversations(tmp_path)] == ["q2"], "beside data it describes it"


def test_files_that_are_no_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        list(read_conversations(tmp_path / "missing.jsonl"))
    with pytest.raises(SourceError, match="holds none of"):
        list(read_conversations(tmp_path))
    (tmp_path / "x.xlsx").write_text("a,b")
    with pytest.raises(SourceError, match="unsupported file type"):
        list(read_conversations(tmp_path / "x.xlsx"))
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match="not a Parquet file"):
        list(read_conversations(tmp_path / "x.parquet"))
    pq.write_table(pa.table({"prompt": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(ChatError, match="no known form of chat data: the first record has the keys 'prompt'"):
        list(read_conversations(tmp_path / "x.parquet"))
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b"[]\n" * 9999)[:40])
    with pytest.raises(SourceError, match="cannot be unpacked"):
        list(read_conversations(tmp_path / "x.jsonl.gz"))


USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "q", "response": "a"},
        {"instruction": "q", "output": "a"},
        {"conversation": [{"human": "q", "assistant": "a"}]},
        {"contents": [{"role": "user", "parts": [{"text": "q"}]}, {"role": "model", "parts": [{"text": "a"}]}]},
        {"messages": [USER, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]},
        {"prompt": [USER], "completion": [ANSWER], "answer": "truth"},
        {"data": ["q", "a"]},
    ],
)
def test_any_form_that_convert_reads_is_read(record: Any) -> None:
    read = conversation_of(record)
    assert [(message.role, message.text, message.unused) for message in read.messages] == [
        ("user", "q", ()),
        ("assistant", "a", ()),
    ]
    assert read.unused == (("answer",) if "completion" in record else ())


def test_system_texts_and_developers_are_system_texts() -> None:
    for record in (
        {"system": "s", "messages": [USER, ANSWER]},
        {"system_prompt": "s", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    ):
        read = conversation_of(record)
        assert (read.messages[0].role, read.messages[0].text, read.unused) == ("system", "s", ())
    assert conversation_of({"messages": [{"role": "developer", "content": "s"}, USER, ANSWER]}).messages[0].role == (
        "developer"
    )


@pytest.mark.parametrize(
    ("answer", "unused"),
    [
        ({"content": "a", "reasoning_content": "r"}, ("reasoning_content",)),
        ({"content": "a", "thinking": "r"}, ("thinking",)),
        ({"content": [{"type": "thinking", "content": "r"}, {"type": "text", "text": "a"}]}, ("part:thinking",)),
        ({"content": "a", "tool_calls": [{"name": "f", "arguments": {}}]}, ("tool_calls",)),
        ({"content": "a", "function_call": {"name": "f", "arguments": "{}"}}, ("function_call",)),
    ],
)
def test_thoughts_and_calls_are_named_and_never_text(answer: Any, unused: tuple[str, ...]) -> None:
    (_, message) = conversation_of({"messages": [USER, {"role": "assistant", **answer}]}).messages
    assert (message.text, message.unused) == ("a", unused)


def test_turns_of_thoughts_and_calls_leave_the_answer() -> None:
    turns = [
        {"from": "human", "value": "q"},
        {"from": "thought", "value": "r"},
        {"from": "gpt", "value": "a"},
    ]
    read = conversation_of({"conversations": turns})
    assert [(message.role, message.text) for message in read.messages] == [("user", "q"), ("assistant", "a")]


@pytest.mark.parametrize(
    "flag", [{"train": False}, {"weight": 0}, {"loss_mask": 0}, {"mask": True}, {"trainable": False}]
)
def test_flags_and_ends_are_read(flag: Any) -> None:
    assert not conversation_of({"messages": [USER, {**ANSWER, **flag}]}).messages[1].trained
    assert conversation_of({"messages": [USER, {**ANSWER, "train": True}]}).messages[1].trained
    assert conversation_of({"messages": [USER, {**ANSWER, "finish_reason": "length"}]}).messages[1].truncated
    assert not conversation_of({"prompt": "q", "completion": "a", "label": False}).preferred
