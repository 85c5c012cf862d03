"""Records converted by workers: the same folder as by one process, also where ids repeat, shards end, a run goes on."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
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


def repeated_contents(count: int) -> list[str]:
    """Lines: contents that come again under other ids, in the same batch and in later ones; ids that come again beside
    another content, also those of records that are left out."""
    lines = []
    for number in range(count):
        content = number % 170 if number % 3 else number
        identity = number - 1 if number % 97 == 41 else number
        turns = [{"role": "user", "content": f"Q{content}"}, {"role": "assistant", "content": f"A{content}"}]
        lines.append(json.dumps({"id": f"id-{identity}", "messages": turns, "topic": number}))
    return lines


def written_and_listed(out: Path) -> tuple[list[str], list[tuple[int, str]]]:
    ids = [value for path in sorted(out.glob("*.parquet")) for value in pq.read_table(path)["id"].to_pylist()]
    lines = [json.loads(line) for path in sorted(out.glob("rejects/*")) for line in path.read_text().splitlines()]
    return ids, [(line["number"], line["reason"]) for line in lines]


def test_duplicate_contents_are_left_out_listed_and_not_counted_as_refused(tmp_path: Path) -> None:
    """Against a plain loop: an id is taken by the first record that has it, a content by the first that is written."""
    chat = tmp_path / "chat.jsonl"
    chat.write_text("\n".join(lines := repeated_contents(900)))
    ids: set[str] = set()
    contents: set[str] = set()
    written, listed = [], []
    for number, record in enumerate(map(json.loads, lines), 1):
        content = json.dumps(record["messages"])
        if record["id"] in ids:
            listed.append((number, "id_repeated"))
        elif content in contents:
            listed.append((number, "duplicate_content"))
        else:
            written.append(record["id"])
            contents.add(content)
        ids.add(record["id"])
    refused = sum(reason == "id_repeated" for _, reason in listed)
    assert 0 < refused < len(listed) - refused
    options = {"on_duplicate_content": "leave-out", "max_rejects": str(refused), "rows_per_shard": 70}
    alone = folder(tmp_path / "one", chat, 1, **options)
    assert written_and_listed(tmp_path / "one") == (written, listed)
    assert folder(tmp_path / "two", chat, 2, **options) == alone
    done = json.loads((tmp_path / "two/manifest.json").read_bytes())["conversion"]
    assert done["skipped"] == {"id_repeated": refused, "duplicate_content": len(listed) - refused}
    assert done["options"]["on_duplicate_content"] == "leave-out"
    assert done["messages"] == {"user": len(written), "assistant": len(written)}

    with pytest.raises(RejectedRowError):
        folder(tmp_path / "few", chat, 2, **{**options, "max_rejects": str(refused - 1)})
    assert list((tmp_path / "few").glob("*.parquet")), "whole shards are kept"
    kept = folder(tmp_path / "kept", chat, 1, max_rejects="100%")
    assert len(written_and_listed(tmp_path / "kept")[0]) == 900 - refused
    done = json.loads((tmp_path / "kept/manifest.json").read_bytes())["conversion"]
    assert "on_duplicate_content" not in done["options"]
    assert kept != alone


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_leaves_out_duplicates_goes_on_with_the_same_bytes(tmp_path: Path, workers: int) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text("\n".join(repeated_contents(900)))
    options = {"on_duplicate_content": "leave-out", "max_rejects": "90%", "rows_per_shard": 70}
    whole = folder(tmp_path / "whole", chat, 1, **options)
    conversion = ChatConversion(**options)

    def stop(done: int, total: int) -> None:
        if done > 0.6 * total:
            raise StoppedError

    with pytest.raises(StoppedError):
        convert_chat(
            chat=open_chat([chat], conversion), out=tmp_path / "out", conversion=conversion, workers=1, on_progress=stop
        )
    assert list((tmp_path / "out").glob("*.parquet")), "whole shards are kept"
    assert folder(tmp_path / "out", chat, workers, **options) == whole


def test_a_share_of_rejects_is_held_where_all_are_of_an_earlier_run(tmp_path: Path) -> None:
    """40 of 900 are more than 1 %, and all of them are before the stop."""
    chat = tmp_path / "chat.jsonl"
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    chat.write_text("".join(json.dumps({"id": f"{n}", "messages": turns[n < 40 :]}) + "\n" for n in range(900)))
    conversion = ChatConversion(max_rejects="1%", rows_per_shard=70)

    def stop(done: int, total: int) -> None:
        if done > 0.6 * total:
            raise StoppedError

    for on_progress, error in ((stop, StoppedError), (None, RejectedRowError)):
        with pytest.raises(error) as raised:
            convert_chat(
                chat=open_chat([chat], conversion), out=tmp_path / "out", conversion=conversion, on_progress=on_progress
            )
    assert "more than 1% of 900 records: 40 assistant_first refused" in str(raised.value)
    assert "chat.jsonl, record 1" in str(raised.value)


class StoppedError(Exception):
    """Stands for whatever may end a run half-way."""
