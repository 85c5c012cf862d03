"""`spanloom convert` as a user runs it: what it says, shows, asks and refuses; and from the examples to a dataset."""

import gzip
import json
import os
import pty
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from conftest import REPOSITORY, Cli
from support import warm

EXAMPLES = REPOSITORY / "docs/examples"
CHAT = EXAMPLES / "chat.jsonl"


def manifest(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "manifest.json").read_bytes()))


def conversations(out: Path) -> list[dict[str, Any]]:
    return [
        json.loads(text)
        for path in sorted(out.glob("*.parquet"))
        for text in pq.read_table(path).column("messages_json").to_pylist()
    ]


def messages(out: Path) -> list[dict[str, Any]]:
    return [message for row in conversations(out) for message in row["messages"]]


def test_it_says_the_form_shows_the_first_conversation_and_names_the_next_command(cli: Cli, tmp_path: Path) -> None:
    done = cli("convert", CHAT, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for line in (
        "1 file (JSON Lines): chat.jsonl",
        "form: messages with role and content (OpenAI)",
        "  messages ← messages",
        "  tools ← tools",
        "  metadata, not trained on: topic",
        "the first conversation, for gpt-oss; other models: `build`, then `inspect`",
        "preview/00/0  tides-1#0 · 2 assistant runs",
        '║ assistant to=functions.tide… {"harbour": "Husum", "day": "2026-06-14"}      36',
        "… and 2 more documents of this conversation",
    ):
        assert line in done.stderr.splitlines(), done.stderr
    assert done.stdout.splitlines() == [
        f"10 conversations in 1 shard under {tmp_path / 'out'} (10 records read)",
        "messages: 25 assistant, 6 calls, 19 reasoning, 4 system, 6 tool, 19 user",
        "refused: none",
        "dropped: none",
        "metadata, not trained on: topic (10)",
        "settings: no identity, no effort, no date, no cutoff, no developer",
        f"next: spanloom build --source {tmp_path / 'out'} --out ROOT",
        "      for gpt-oss; for another model add --model DIR, the folder of its tokenizer and chat template",
    ]


def test_no_row_says_that_it_is_chatgpt_unless_asked_to(cli: Cli, tmp_path: Path) -> None:
    assert cli("convert", CHAT, "--out", tmp_path / "out", "-q").returncode == 0
    assert "ChatGPT" not in json.dumps(messages(tmp_path / "out"))
    said = ("--identity", "You are ChatGPT.", "--effort", "high", "--date", "2026-01-31", "--cutoff", "2025-06")
    assert cli("convert", CHAT, "--out", tmp_path / "said", "-q", *said, "--developer", "Be kind.").returncode == 0
    rows = conversations(tmp_path / "said")
    assert [row["settings"] for row in rows] == [
        {
            "reasoning_effort": "high",
            "model_identity": "You are ChatGPT.",
            "conversation_start_date": "2026-01-31",
            "knowledge_cutoff": "2025-06",
        }
    ] * len(rows)
    assert rows[0]["messages"][0]["content"].startswith("You help the crew"), "its own, not the option's"
    own = [message["content"] for message in messages(tmp_path / "said") if message["role"] == "developer"]
    assert own.count("Be kind.") == 6, "the conversations that bring no system text"


def test_preview_shows_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("convert", CHAT, "--preview", "--verbose", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "┊ assistant analysis – learned as analysis" in done.stdout
    assert "preview/00/2  tides-1#2" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_preview_fits_a_screen_of_24_lines(cli: Cli, tmp_path: Path) -> None:
    """However many turns and however long the texts are; the first and the last messages of the document are shown."""
    turns = [{"role": role, "content": f"{n} " + "word\n" * 500} for n in range(40) for role in ("user", "assistant")]
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": turns}) + "\n")
    done = cli("convert", chat, "--preview", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) + len(done.stderr.splitlines()) <= 24
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith("┃ assistant final              0 word word")]


def test_a_preview_without_a_conversation_to_show_says_so(cli: Cli, tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": [{"role": "user", "content": "Q"}]}))
    done = cli("convert", chat, "--preview", "--max-rejects", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "none of the first 1,000 records makes a conversation" in done.stderr


def test_a_dry_run_counts_and_names_a_record_of_each_refusal(cli: Cli, tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    bad = {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "", "audio": {"id": "x"}}]}
    chat.write_text(CHAT.read_text() + json.dumps(bad) + "\n")
    done = cli("convert", chat, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "10 conversations of 11 records; nothing was written",
        "messages: 25 assistant, 6 calls, 19 reasoning, 4 system, 6 tool, 19 user",
        "refused: 1 key_unknown",
        "dropped: none",
        "metadata, not trained on: topic (10)",
        "keys that refused a record: audio (1)",
        f"  key_unknown: {chat}, line 11: message 1 has the key 'audio', which conversations do not have "
        "(--drop audio)",
    ]
    as_json = json.loads(cli("convert", chat, "--dry-run", "--json", "--drop", "audio,never").stdout)
    assert (as_json["written"], as_json["skipped"]) == (10, {"no_assistant": 1})
    assert list(tmp_path.iterdir()) == [chat]
    first = cli("convert", EXAMPLES / "sharegpt.json", "--dry-run")
    assert (first.returncode, first.stdout.splitlines()[2]) == (0, "refused: 1 think_tags"), "the first is counted too"


def test_what_was_refused_and_dropped_is_in_the_summary(cli: Cli, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in CHAT.read_text().splitlines()]
    rows[0]["messages"][-1]["refusal"] = "no"
    rows[1]["messages"][-1]["audio"] = "x"
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stopped = cli("convert", tmp_path / "chat.jsonl", "--out", tmp_path / "out")
    assert stopped.returncode == 1
    assert "message 10 has the key 'refusal'" in stopped.stderr
    assert f"where: {tmp_path / 'chat.jsonl'}, line 1" in stopped.stderr
    assert "remedy: --drop refusal; --dry-run counts" in stopped.stderr
    options = ("--drop", "refusal,never", "--max-rejects", "1")
    done = cli("convert", tmp_path / "chat.jsonl", "--out", tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    for line in (
        "refused: 1 key_unknown",
        "dropped: 1 refusal (2 characters)",
        "to be dropped, but not found: never",
        f"records set aside: rejects/shard_00.jsonl under {tmp_path / 'out'}",
    ):
        assert line in done.stdout.splitlines()


def on_a_terminal(answers: str, *arguments: object) -> tuple[int, str]:
    """The command with stdin and stderr on a terminal: its exit code, and what the terminal showed."""
    ours, theirs = pty.openpty()
    os.write(ours, answers.encode())
    nothing = os.open(os.devnull, os.O_WRONLY)
    process = warm.start("spanloom", *arguments, env=os.environ, stdin=theirs, streams=(nothing, theirs))
    os.close(theirs)
    os.close(nothing)
    shown = warm.until_closed(ours)
    return process.wait(), shown


def test_on_a_terminal_what_is_said_around_is_asked_for(tmp_path: Path) -> None:
    code, shown = on_a_terminal(
        "low\n\n\nBe kind.\n", "convert", CHAT, "--out", tmp_path / "out", "--identity", "Loom."
    )
    assert code == 0, shown
    assert "Reasoning effort: low, medium, high? (--effort)" in shown
    assert "--identity)" not in shown, "an option says it already"
    done = manifest(tmp_path / "out")["conversion"]
    assert (done["model_identity"], done["reasoning_effort"], done["developer"]) == ("Loom.", "Low", "Be kind.")
    assert (done["conversation_start_date"], done["knowledge_cutoff"]) == (None, None)
    code, shown = on_a_terminal("", "convert", CHAT, "--out", tmp_path / "yes", "--yes")
    assert code == 0, shown
    assert "Enter leaves it out" not in shown
    assert manifest(tmp_path / "yes")["conversion"]["model_identity"] is None


def test_on_a_terminal_a_text_beside_the_question_is_asked_about(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    rows = [{"question": "Q1", "answer": "A"}, {"question": "Q2", "answer": "A", "context": "C"}]
    chat.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for answer, asked in (("y", "Q2\n\nC"), ("n", "Q2")):
        out = tmp_path / answer
        code, shown = on_a_terminal(f"{answer}\n\n\n\n\n\n", "convert", chat, "--out", out)
        assert code == 0, shown
        assert "'context' beside the question looks like a part of it" in shown
        users = [message for message in messages(out) if message["role"] == "user"]
        assert [user["content"] for user in users] == ["Q1", asked]
    code, shown = on_a_terminal("", "convert", chat, "--out", tmp_path / "yes", "--yes")
    assert code == 1, "an option that asks nothing decides nothing that changes the meaning"
    assert "--map query=question+context appends it to the question, --metadata context" in shown


def test_records_that_are_left_out_are_named_and_no_refusal(cli: Cli, tmp_path: Path) -> None:
    done = cli("convert", EXAMPLES / "forms/kto.jsonl", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "refused: none" in lines
    assert "left out: 1 not_preferred" in lines
    assert "  label ← false leaves a record out (not_preferred)" in done.stderr.splitlines()
    dry = cli("convert", EXAMPLES / "forms/kto.jsonl", "--dry-run")
    assert "left out: 1 not_preferred" in dry.stdout.splitlines()


@pytest.mark.parametrize("name", ["hermes", "toolace", "openhands", "stratos"])
def test_the_remedy_of_a_refusal_works_when_it_is_pasted(cli: Cli, tmp_path: Path, name: str) -> None:
    path = EXAMPLES / f"forms/{name}.jsonl"
    stopped = cli("convert", path, "--out", tmp_path / "out")
    assert stopped.returncode == 1
    remedy = re.search(r"remedy: (--[a-z-]+(?: [a-z]+)?) reads it as", stopped.stderr)
    assert remedy is not None, stopped.stderr
    done = cli("convert", path, "--out", tmp_path / "out", *remedy[1].split())
    assert done.returncode == 0, done.stderr


def test_who_answers_nothing_more_has_interrupted(tmp_path: Path) -> None:
    code, shown = on_a_terminal("low\n\x04", "convert", CHAT, "--out", tmp_path / "out")
    assert code == 130
    assert "Traceback" not in shown
    assert not (tmp_path / "out").exists()


def test_several_places_and_kinds_in_one_source(cli: Cli, tmp_path: Path) -> None:
    lines = CHAT.read_text().splitlines()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[:4]).encode()))
    (tmp_path / "b.json").write_text(f"[{','.join(lines[4:8])}]")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/c.jsonl").write_text("\n".join(lines[8:]))
    places = (f"{tmp_path}/*.jsonl*", tmp_path / "b.json", tmp_path / "more")
    done = cli("convert", *places, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [source["path"] for source in said["conversion"]["sources"]] == ["a.jsonl.gz", "b.json", "c.jsonl"]
    assert cli("convert", CHAT, "--out", tmp_path / "one", "-q").returncode == 0
    assert messages(tmp_path / "out") == messages(tmp_path / "one")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Missing argument"),
        ((CHAT,), 2, "give a folder for the source: --out DIR"),
        ((CHAT, "--out", "x", "--map", "a=b"), 1, "--map takes MEANING=KEY"),
        ((CHAT, "--out", "x", "--effort", "extreme"), 1, "no reasoning effort 'extreme'"),
        ((CHAT, "--out", "x", "--max-rejects", "many"), 1, "--max-rejects takes"),
        (("none.jsonl", "--out", "x"), 1, "the source does not exist"),
        ((EXAMPLES / "columns.jsonl", "--out", "x"), 1, "no known form of chat data"),
        ((EXAMPLES / "sharegpt.json", "--out", "x"), 1, "--think-tags reads it as analysis"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    cli: Cli, tmp_path: Path, arguments: tuple[object, ...], code: int, said: str
) -> None:
    done = cli("convert", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_text_of_others_does_not_steer_the_terminal(cli: Cli, tmp_path: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": "\x1b[31mQ"}, {"role": "assistant", "content": "A"}],
        "\x1b[2Jkey": "x",
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    done = cli("convert", tmp_path / "a.jsonl", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "metadata, not trained on: ␛[2Jkey" in done.stderr


def test_the_first_conversation_is_not_needed_to_be_shown(cli: Cli, tmp_path: Path) -> None:
    done = cli("convert", CHAT, "--out", tmp_path / "out", O200K_HARMONY_VOCAB_PATH=str(tmp_path / "none"))
    assert done.returncode == 0, done.stderr
    assert "the first conversation is not shown as gpt-oss reads it" in done.stderr


FORMS = {
    "chat.jsonl": (),
    "sharegpt.json": ("--think-tags",),
    "columns.jsonl": ("--map", "query=question,reasoning=thoughts,answer=reply"),
}


def test_every_example_is_one_of_a_form_that_is_read(cli: Cli, tmp_path: Path) -> None:
    assert set(FORMS) == {path.name for path in EXAMPLES.glob("*.json*")}
    for name, options in FORMS.items():
        done = cli("convert", EXAMPLES / name, "--dry-run", "--json", *options)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["skipped"], said["dropped"]) == ({}, {})
        assert said["read"] == said["written"] > 0
        assert said["messages"]["reasoning"] > 0
        assert name == "columns.jsonl" or said["messages"]["calls"] == said["messages"]["tool"] > 0


def test_what_harmony_cannot_hold_is_named_with_the_option_that_helps(cli: Cli, tmp_path: Path) -> None:
    calls = [{"id": name, "name": "f", "arguments": "{}"} for name in "ab"]
    results = [{"role": "tool", "tool_call_id": name, "content": "4"} for name in "ab"]
    asked = [{"role": "user", "content": "Q"}, {"role": "assistant", "tool_calls": calls}, *results]
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": [*asked, {"role": "assistant", "content": "A"}]}))
    done = cli("convert", chat, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Harmony cannot hold this conversation, a build would refuse it: tool_calls_parallel" in done.stderr
    lines = done.stdout.splitlines()
    assert "Harmony: 1 conversation would be refused by build: 1 tool_calls_parallel" in lines
    assert any("--calls-in-turn writes parallel calls one after the other" in line for line in lines)
    turned = cli("convert", chat, "--out", tmp_path / "turned", "--calls-in-turn")
    assert turned.returncode == 0, turned.stderr
    assert "Harmony" not in turned.stdout
    refused = cli("convert", chat, "--out", tmp_path / "harmony", "--format", "harmony")
    assert refused.returncode == 1
    assert "--calls-in-turn" in refused.stderr


def test_messages_that_are_not_trained_are_counted_and_shown_as_context(cli: Cli, tmp_path: Path) -> None:
    pair = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "Bad", "weight": 0}]
    good = [{"role": "user", "content": "Again"}, {"role": "assistant", "content": "Good", "weight": 1}]
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": pair + good}))
    done = cli("convert", chat, "--verbose", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "messages: 2 assistant, 1 untrained, 2 user" in done.stdout.splitlines()
    assert [message.get("trained") for message in messages(tmp_path / "out")] == [None, False, None, None]
    assert "· <|start|>assistant<|channel|>final<|message|>Bad<|end|>" in done.stderr.splitlines()
    assert "┃ <|start|>assistant<|channel|>final<|message|>Good<|return|>" in done.stderr.splitlines()


def test_answers_that_may_need_a_repair_are_counted(cli: Cli, tmp_path: Path) -> None:
    answers = [
        "I am {{name}}.",
        "I am {{ name }} and {name}.",
        "```\n{{name}}\n```",
        "Thought: x\nAction: look\nAction Input: y",
        "Action: none",
    ]
    chat = tmp_path / "chat.jsonl"
    chat.write_text("".join(json.dumps({"question": "{{name}}?", "answer": answer}) + "\n" for answer in answers))
    done = cli("convert", chat, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "messages: 5 assistant, 5 user, 1 with_placeholder, 1 with_react" in lines
    assert [line for line in lines if line.startswith("note: 1 answer with ")] == [
        "note: 1 answer with a placeholder such as {{name}}, trained as text: replace it in the data first",
        "note: 1 answer with a call written as text (Action: … Action Input: …), trained as text of the answer",
    ]
