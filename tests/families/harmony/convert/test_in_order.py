"""Records converted by workers: the same folder as by one process, also where ids repeat, shards end, a run goes on."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.errors import RejectedRowError
from spanloom.families.harmony.convert.chat import convert_chat
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion


def records(count: int) -> list[str]:
    """Lines: conversations, among them ids that an earlier batch, or the same, has; refused ones; lines of no JSON."""
    lines = []
    for number in range(count):
        answer: dict[str, Any] = {"role": "assistant", "content": f"A{number}"}
        if number % 7 == 3:
            answer["refusal"] = "no"
        identity = number % 300 if number % 11 == 5 else number
        turns = [{"role": "user", "content": f"Q{number}"}, answer]
        record = {"id": f"id-{identity}", "messages": turns, "topic": number, "label": number % 13 != 1}
        lines.append("no JSON" if number % 101 == 50 else json.dumps(record))
        if number % 50 == 49:
            lines.append("")
    return lines


def folder(out: Path, chat: Path, workers: int, **options: Any) -> dict[str, str]:
    conversion = ChatConversion(**{"max_rejects": "90%", "rows_per_shard": 150, **options})
    convert_chat(chat=open_chat([chat], conversion), out=out, conversion=conversion, workers=workers)
    found = sorted(path for path in out.rglob("*") if path.is_file())
    return {path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(records(900)))
    return path


def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path, chat: Path) -> None:
    alone = folder(tmp_path / "one", chat, 1)
    assert len([name for name in alone if name.endswith(".parquet")]) > 3
    assert folder(tmp_path / "two", chat, 2) == alone
    done = json.loads((tmp_path / "two/manifest.json").read_bytes())["conversion"]
    assert {"id_repeated", "key_unknown", "unreadable", "not_preferred"} == set(done["skipped"])
    assert done["rows_read"] == done["rows_written"] + sum(done["skipped"].values()) == 900


def test_a_run_that_workers_have_begun_goes_on_with_any_number(tmp_path: Path, chat: Path) -> None:
    alone = folder(tmp_path / "one", chat, 1)
    with pytest.raises(RejectedRowError, match=r"more than 100 refused"):
        folder(tmp_path / "two", chat, 2, max_rejects="100")
    assert list((tmp_path / "two").glob("*.parquet")), "whole shards are kept"
    assert folder(tmp_path / "two", chat, 1) == alone


def test_a_limit_stops_at_the_same_record(tmp_path: Path, chat: Path) -> None:
    places = []
    for workers in (1, 2):
        with pytest.raises(RejectedRowError) as stopped:
            folder(tmp_path / f"{workers}", chat, workers, max_rejects="40")
        places.append((stopped.value.where, stopped.value.what))
    assert places[0] == places[1]
