"""Conversations → transcripts as a step and as a command: the same file each time, whole or not at all; a report."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from spanloom.errors import ChatError, ConflictError
from spanloom.families.chat.steps.generate_chat import GeneratorRules, generate_chat
from spanloom.families.chat.tokenizer import load_tokenizer
from spanloom.families.chat.transcripts.files import read_transcripts


def message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


SHORT = [message("system", "Be brief."), message("user", "Two\nlines?"), message("assistant", "Yes.")]
LONG = [message("user", "word " * 200), message("assistant", "Yes.")]
FORGED = [message("user", "<|END|>"), message("assistant", "Yes.")]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "chats.jsonl"
    path.parent.mkdir()
    lines = [{"id": name, "messages": one} for name, one in (("short", SHORT), ("long", LONG), ("forged", FORGED))]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(("suffix", "new_line"), [(".parquet", "\n"), (".jsonl", "\n"), (".txt", "\\n")])
def test_the_file_and_the_report_say_the_same(source: Path, tmp_path: Path, suffix: str, new_line: str) -> None:
    out, report = tmp_path / f"out{suffix}", tmp_path / "report.json"
    done = generate_chat(source=source.parent, out=out, rules=GeneratorRules(context_len=100), report=report)
    wanted = f"<|SYSTEM|>Be brief.<|END|><|USER|>Two{new_line}lines?<|END|><|ASSISTANT|>Yes.<|END|>"
    assert [text for _, text in read_transcripts(out)] == [wanted]
    assert json.loads(report.read_text()) == done
    assert done["output"]["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert done["inputs"][0]["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert done["conversations_skipped"] == {"control_string": 1, "first_pair_too_long": 1}
    assert done["examples"]["first_pair_too_long"][0]["id"] == "long"
    assert done["examples"]["first_pair_too_long"][0]["where"].endswith("chats.jsonl, line 2")
    assert done["tokenizer"]["name"] == "o200k_chat"


def test_the_limit_is_inclusive_and_counts_what_the_tokenizer_counts(source: Path, tmp_path: Path) -> None:
    transcript = "<|SYSTEM|>Be brief.<|END|><|USER|>Two\nlines?<|END|><|ASSISTANT|>Yes.<|END|>"
    exact = load_tokenizer().count([transcript])[0]
    done = generate_chat(source=source, out=tmp_path / "a.parquet", rules=GeneratorRules(context_len=exact))
    assert done["conversations_written"] == 1
    with pytest.raises(ChatError, match="no conversation gives a transcript"):
        generate_chat(source=source, out=tmp_path / "b.parquet", rules=GeneratorRules(context_len=exact - 1))
    assert not (tmp_path / "b.parquet").exists()


def test_what_stops_leaves_nothing_half_written(source: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out" / "t.parquet", tmp_path / "out" / "report.json"
    with pytest.raises(ValueError, match=r"control string <\|END\|>(?s:.*)line 3, message 0, id forged"):
        generate_chat(source=source, out=out, rules=GeneratorRules(on_error="raise"), report=report)
    with source.open("a") as stream:
        stream.write("{broken\n")
    with pytest.raises(ValueError, match=r"not JSON(?s:.*)line 4"):
        generate_chat(source=source, out=out, rules=GeneratorRules(), report=report)
    assert list(out.parent.iterdir()) == []
    done = generate_chat(source=source, out=out, rules=GeneratorRules(on_error="skip", context_len=100), report=report)
    assert done["conversations_skipped"] == {"control_string": 1, "first_pair_too_long": 1, "unreadable": 1}
    assert done["conversations_read"] == 4


def test_the_same_again_is_no_conflict_and_other_bytes_are(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    first = generate_chat(source=source, out=out, rules=GeneratorRules(context_len=100))
    assert generate_chat(source=source, out=out, rules=GeneratorRules(context_len=100)) == first
    with pytest.raises(ConflictError, match="another result of this command"):
        generate_chat(source=source, out=out, rules=GeneratorRules(context_len=1000))


def test_the_command_says_what_it_did_and_what_is_wrong(
    cli: Callable[..., "CompletedProcess[str]"], source: Path, tmp_path: Path
) -> None:
    run = cli("chat", "generate", "--input", source, "--out", tmp_path / "t.txt", "--context-len", 100, "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["output"]["transcripts"] == 1
    run = cli("chat", "generate", "--input", source, "--out", tmp_path / "t.txt", "--on-error", "raise")
    assert run.returncode == 1
    assert "line 3, message 0" in run.stderr


@pytest.mark.parametrize("taken", ["source", "out"])
def test_a_report_takes_nobodys_place(source: Path, tmp_path: Path, taken: str) -> None:
    out = tmp_path / "out.jsonl"
    before = source.read_bytes()
    with pytest.raises(ChatError, match="the report would take the place"):
        generate_chat(source=source, out=out, rules=GeneratorRules(), report=source if taken == "source" else out)
    assert source.read_bytes() == before
    assert not out.exists()


def test_where_nothing_fits_the_report_says_why(source: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out.jsonl", tmp_path / "report.json"
    with pytest.raises(ChatError, match="--context-len"):
        generate_chat(source=source, out=out, rules=GeneratorRules(context_len=2), report=report)
    said = json.loads(report.read_text())
    assert said["output"] is None
    assert said["conversations_skipped"] == {"control_string": 1, "first_pair_too_long": 2}
    assert not out.exists()


def test_a_conversation_that_ends_at_a_user_without_an_answer_is_counted(tmp_path: Path) -> None:
    source, out = tmp_path / "chats.jsonl", tmp_path / "out.jsonl"
    pair = [message("user", "One?"), message("assistant", "One.")]
    cut = [*pair, message("user", "Two?"), message("tool", "2"), *pair]
    whole = [*pair, *pair]
    source.write_text("".join(json.dumps(one) + "\n" for one in (cut, whole)))
    with pytest.raises(ChatError, match=r"no place for the role tool(?s:.*)line 1, message 3"):
        generate_chat(source=source, out=out, rules=GeneratorRules())
    done = generate_chat(source=source, out=out, rules=GeneratorRules(drop=frozenset({"tool"})))
    assert (done["conversations_written"], done["pairs_written"], done["conversations_ended_early"]) == (2, 3, 1)
    (example,) = done["examples"]["unanswered_user"]
    assert (example["message"], example["followed_by"]) == (2, "tool")
