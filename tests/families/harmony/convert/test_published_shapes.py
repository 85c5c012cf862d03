"""Files in published shapes: the converter trains exactly what a second reading of them finds to be the assistant's.

The files of others are named by `SPANLOOM_CONVERSATIONS`; every file that lies there is tried, with those options that
the refusals themselves name. The examples of docs/examples/forms are read the same way.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from spanloom.conversations.outcomes import LeftAway
from spanloom.conversations.turns import Refusal
from spanloom.families.harmony.contract.messages import harmony_messages
from spanloom.families.harmony.convert.chat import conversations
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import REMEDIES, ChatConversion, Converted
from support.cases import beside
from support.plain_reader import bare, spoken
from support.requirements import CONVERSATIONS, absent

EXAMPLES = REPOSITORY / "docs/examples/forms"
NOT_READ_TWICE = ("toolace.jsonl", "openhands.jsonl", "pairs.jsonl", "columns.csv", "columns.tsv")
"""Examples whose texts `test_form_examples` holds alone: the second reading does not know their spelling of calls."""
NO_REMEDY = {"weight_zero", "nothing_trained", "tool_call_invalid", "tool_calls_parallel", "media"}
"""Refusals that may end in `--max-rejects` alone."""
PASTED = re.compile(r"--([a-z-]+)(?: ([^\s,]+))?")


@pytest.fixture(scope="session")
def published_conversations() -> Path:
    """Small files in the shapes of published data sets."""
    path = beside("SPANLOOM_CONVERSATIONS", "conversations")
    return path if path.is_dir() else absent(CONVERSATIONS, f"{path} is not there")


def pasted(remedy: str | None, options: dict[str, Any]) -> dict[str, Any] | None:
    """The options with the first one that a refusal names; None where it names none that reads the record."""
    found = PASTED.search(remedy or "")
    if found is None or found[1] == "max-rejects":
        return None
    name, value = found[1], found[2]
    if name in ("drop", "metadata", "map"):
        key = "maps" if name == "map" else name
        return {**options, key: (*options.get(key, ()), *value.split(","))}
    named = {"think-tags": True, "text-as-is": True, "calls-in-turn": True, "join-consecutive": True}
    named["keep-unprompted"] = True
    return {**options, name.replace("-", "_"): named.get(name, value)}


def converted(path: Path, number: int) -> tuple[Any, dict[str, Any]]:
    """What becomes of a record, with each option that a refusal names; and these options."""
    options: dict[str, Any] = {}
    for _ in range(4):
        conversion = ChatConversion(**options)
        done = list(conversations(open_chat([path], conversion), conversion))[number]
        if isinstance(done, LeftAway) or (isinstance(done, Converted) and done.fault is None):
            return done, options
        remedy = REMEDIES.get(Refusal(done.fault.reason)) if isinstance(done, Converted) else done.remedy
        if isinstance(done, Converted) and options.get("calls_in_turn"):
            return done, options
        more = pasted(remedy, options)
        if more is None:
            return done, options
        options = more
    raise AssertionError(f"no remedy of {path.name} helps: {done}")


def check(path: Path) -> tuple[int, int]:
    """Records that were converted, and all."""
    records = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    count = 0
    for number, record in enumerate(records):
        done, options = converted(path, number)
        if isinstance(done, Converted) and done.fault is not None:
            assert done.fault.reason.value in NO_REMEDY, done.fault
            continue
        if not isinstance(done, Converted):
            assert isinstance(done, LeftAway) or done.reason in NO_REMEDY, done
            continue
        count += 1
        said = spoken(record)
        trained = [
            "".join(part["text"] for part in message["content"])
            for message in harmony_messages(done.conversation)
            if message["role"] == "assistant"
        ]
        ours = [bare(text) for is_ours, text in said if is_ours]
        if not options.get("drop"):
            assert "".join(map(bare, trained)) == "".join(ours), path.name
        for text in trained:
            assert any(bare(text) in other for other in ours), text
        shown = {
            bare(part.get("text", ""))
            for m in harmony_messages(done.conversation)
            if m["role"] == "user"
            for part in m["content"]
        }
        theirs = "".join(bare(text) for is_ours, text in said if not is_ours)
        assert all(text in theirs for text in shown), path.name
    return count, len(records)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.jsonl")), ids=lambda path: path.name)
def test_an_example_trains_what_a_second_reading_finds(path: Path) -> None:
    if path.name in NOT_READ_TWICE:
        assert converted(path, 0)[0].row["id"]
        return
    count, records = check(path)
    assert count == records - (path.name == "kto.jsonl")


def test_published_files_train_what_a_second_reading_finds(published_conversations: Path) -> None:
    files = sorted(published_conversations.glob("*.jsonl"))
    read = {path.name: check(path) for path in files}
    assert files
    assert sum(count for count, _ in read.values()) > len(read) // 2, read
