"""Chat data → `conversations_v1`: what is written and counted, what stands after a run that ended early."""

import hashlib
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest

from spanloom.conversations.ids import SeenIds
from spanloom.conversations.source.folder import open_source, verify_hash
from spanloom.conversations.source.manifest import CONVERSATIONS_COLUMNS
from spanloom.conversations.source.structure import row_id
from spanloom.errors import ArtifactError, ConflictError, RejectedRowError, SourceError, SpanloomError
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.messages import SystemFields
from spanloom.families.harmony.contract.profile import CHAT_OF_ANY_MODEL
from spanloom.families.harmony.convert.chat import RECORD_NAME, convert_chat, count_chat
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion
from support.killed import STRIDE, killed_before


def record(number: int, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": f"Q{number} ü"}, {"role": "assistant", "content": f"A{number}", **more}]
    return {"id": f"id-{number}", "messages": turns, "source": "web"}


def write(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in records))
    return path


def run(*places: Path, out: Path, **options: Any) -> dict[str, Any]:
    on_progress = options.pop("on_progress", None)
    conversion = ChatConversion(**options)
    return convert_chat(chat=open_chat(places, conversion), out=out, conversion=conversion, on_progress=on_progress)


def rows(out: Path) -> list[list[dict[str, Any]]]:
    return [pq.read_table(path).to_pylist() for path in sorted(out.glob("*.parquet"))]


def ids(out: Path) -> list[list[str]]:
    return [[row["id"] for row in shard] for shard in rows(out)]


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- What is written -------------------------------------------------------------------------------------------------


def test_a_row_has_exactly_this_shape(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(1)])
    run(chat, out=tmp_path / "out", system_fields=SystemFields(model_identity="You are Loom.", reasoning_effort="Low"))
    table = pq.read_table(tmp_path / "out/conversations_shard_00.parquet")
    assert table.schema.equals(CONVERSATIONS_COLUMNS)
    assert table.to_pylist() == [
        {
            "messages_json": (
                '{"messages":[{"role":"user","content":"Q1 ü"},{"role":"assistant","content":"A1"}],'
                '"settings":{"reasoning_effort":"low","model_identity":"You are Loom."}}'
            ),
            "metadata_json": '{"id":"id-1","source":{"file":"chat.jsonl","number":1},"record":{"source":"web"}}',
            "id": "id-1",
        }
    ]


def test_what_is_written_is_what_the_contract_reads(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(number) for number in range(9)])
    manifest = run(chat, out=tmp_path / "out", rows_per_shard=4)
    schema = files("spanloom.conversations.source").joinpath("conversations_v1.schema.json")
    jsonschema.validate(manifest, json.loads(schema.read_bytes()))
    source = open_source(tmp_path / "out")
    assert [shard.rows for shard in source.shards] == [4, 4, 1]
    for shard in source.shards:
        verify_hash(shard)
        for row in pq.read_table(shard.path).to_pylist():
            assert row_id(row["id"], row["metadata_json"], "id") == row["id"]
            assert parse_conversation(row["messages_json"], profile=CHAT_OF_ANY_MODEL).labels.tolist() == [0, 0, 2]


def test_the_manifest_says_what_was_done(tmp_path: Path) -> None:
    bad = [{**record(1), "messages": []}, record(2, refusal="no"), record(3, refusal="")]
    chat = write(tmp_path / "chat.jsonl", [record(0, reasoning="R", annotations=["x"]), *bad])
    with chat.open("a") as stream:
        stream.write("no JSON\n")
    manifest = run(
        chat, out=tmp_path / "out", drop=("annotations",), max_rejects="3", dataset="ours", license="CC0", maps=("id=",)
    )
    assert manifest == json.loads((tmp_path / "out/manifest.json").read_bytes())
    assert str(tmp_path) not in (tmp_path / "out/manifest.json").read_text()
    done = manifest["conversion"]
    assert done.pop("spanloom")
    assert done.pop("rejects") == [
        {
            "path": "rejects/shard_00.jsonl",
            "records": 3,
            "bytes": (tmp_path / "out/rejects/shard_00.jsonl").stat().st_size,
        }
    ]
    assert done == {
        "form": "openai_messages",
        "options": {
            "around": {
                "model_identity": None,
                "reasoning_effort": None,
                "start_date": None,
                "knowledge_cutoff": None,
                "developer": None,
            },
            "maps": ["id="],
            "think_tags": None,
            "calls_in_turn": False,
            "format": "conversations",
            "drop": ["annotations"],
            "rows_per_shard": 65536,
        },
        "model_identity": None,
        "conversation_start_date": None,
        "knowledge_cutoff": None,
        "reasoning_effort": None,
        "developer": None,
        "rows_read": 5,
        "rows_written": 2,
        "skipped": {"key_unknown": 1, "no_messages": 1, "unreadable": 1},
        "dropped": {"annotations": 1},
        "dropped_characters": {"annotations": 5},
        "metadata": {"id": 2, "source": 2},
        "messages": {"assistant": 2, "reasoning": 1, "user": 2},
        "harmony": {"refused": {}, "not_rendered": {}},
        "refused_keys": {"refusal": 1},
        "ids_made": 2,
        "sources": [{"path": "chat.jsonl", "rows": 5, "bytes": chat.stat().st_size}],
        "dataset": "ours",
        "license": "CC0",
    }


def test_rejects_name_file_number_reason_and_hold_the_record(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(0), record(1, refusal="no"), record(0)])
    run(chat, out=tmp_path / "out", max_rejects="100%")
    lines = (tmp_path / "out/rejects/shard_00.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert first == {
        "file": "chat.jsonl",
        "number": 2,
        "reason": "key_unknown",
        "detail": "message 1 has the key 'refusal', which conversations do not have",
        "record": record(1, refusal="no"),
    }
    assert (second["number"], second["reason"]) == (3, "id_repeated")


def test_the_first_refused_record_stops_with_its_line_and_what_helps(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(0), record(1, refusal="no")])
    with pytest.raises(RejectedRowError) as stopped:
        run(chat, out=tmp_path / "out")
    assert stopped.value.where == f"{chat}, line 2"
    assert stopped.value.remedy is not None
    assert stopped.value.remedy.startswith("--drop refusal; --dry-run counts")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("limit", "goes"), [("1", False), ("2", True), ("20%", False), ("40%", True), ("100%", True)])
def test_as_many_may_be_refused_as_allowed(tmp_path: Path, limit: str, goes: bool) -> None:
    refused = [record(1, refusal="x"), record(2, refusal="x")]
    chat = write(tmp_path / "chat.jsonl", [record(0), *refused, record(3), record(4)])
    if goes:
        assert run(chat, out=tmp_path / "out", max_rejects=limit)["conversion"]["rows_written"] == 3
    else:
        with pytest.raises(RejectedRowError, match="key_unknown"):
            run(chat, out=tmp_path / "out", max_rejects=limit)


def test_where_no_record_makes_a_conversation_nothing_is_written(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(0, refusal="x"), record(1, refusal="x")])
    with pytest.raises(SourceError, match="no record makes a conversation: 2 key_unknown"):
        run(chat, out=tmp_path / "out", max_rejects="100%")


def test_ids_are_made_of_file_and_line_where_there_are_none(tmp_path: Path) -> None:
    named = {name: value for name, value in record(0).items() if name != "id"}
    write(tmp_path / "data/a.jsonl", [named, named])
    write(tmp_path / "data/sub/b.jsonl", [record(7), named])
    run(tmp_path / "data", out=tmp_path / "out")
    assert ids(tmp_path / "out") == [["a.jsonl:1", "a.jsonl:2", "id-7", "sub/b.jsonl:2"]]


def test_the_first_record_says_the_form_of_all_files(tmp_path: Path) -> None:
    write(tmp_path / "data/a.jsonl", [record(0)])
    write(tmp_path / "data/b.jsonl", [{"prompt": "Q", "response": "A"}])
    with pytest.raises(RejectedRowError, match="no_messages"):
        run(tmp_path / "data", out=tmp_path / "out")


def test_first_records_that_have_no_form_are_passed_over_to_find_it(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text("no JSON\n" + json.dumps(record(1)) + "\n")
    assert run(chat, out=tmp_path / "out", max_rejects="1")["conversion"]["skipped"] == {"unreadable": 1}
    chat.write_text('{"messages": []}\n{"other": 1}\n' + json.dumps(record(1)) + "\n")
    assert run(chat, out=tmp_path / "two", max_rejects="2")["conversion"]["skipped"] == {"no_messages": 2}
    chat.write_text("no JSON\n")
    with pytest.raises(SourceError, match=r"no record that can be read: the line is not JSON(.|\n)*jsonl, line 1"):
        open_chat([chat], ChatConversion())


def test_json_that_is_not_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / "chat.jsonl", [record(1)])
    assert open_chat([tmp_path], ChatConversion()).described()[:1] == ["1 file (JSON Lines): chat.jsonl"]
    (tmp_path / "about.json").write_text("{}")
    said = open_chat([tmp_path], ChatConversion()).described()
    assert said[1:3] == [
        "not read: 1 file (about.json)",
        "  .json beside data describes it; to read such a file, name it",
    ]
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    said = open_chat([tmp_path], ChatConversion()).described()
    assert said[1] == "not read: 3 files (about.json, gone.jsonl (a link to nothing), notes.txt)"


def test_a_dry_run_counts_what_a_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(0), record(1, refusal="x"), record(2, audio="y"), record(0)])
    conversion = ChatConversion(max_rejects="100%", drop=("audio",))
    counts, examples = count_chat(open_chat([chat], conversion), conversion)
    done = run(chat, out=tmp_path / "out", max_rejects="100%", drop=("audio",))["conversion"]
    assert (counts.read, counts.written) == (done["rows_read"], done["rows_written"]) == (4, 2)
    assert dict(counts.skipped) == done["skipped"] == {"id_repeated": 1, "key_unknown": 1}
    assert dict(counts.dropped) == done["dropped"] == {"audio": 1}
    assert {name: one.read.number for name, one in examples.refused.items()} == {"key_unknown": 2, "id_repeated": 4}


@pytest.mark.parametrize("depth", [300, 700, 990, 1020, 5000])
def test_what_is_nested_too_deep_refuses_its_record_alone(tmp_path: Path, depth: int) -> None:
    deep = json.dumps(record(1)).replace('"web"', "[" * depth + '"x"' + "]" * depth)
    (tmp_path / "chat.jsonl").write_text(f"{json.dumps(record(0))}\n{deep}\n{json.dumps(record(2))}\n")
    manifest = run(tmp_path / "chat.jsonl", out=tmp_path / "out", max_rejects="1")
    found = [name for shard in ids(tmp_path / "out") for name in shard]
    assert found in (["id-0", "id-1", "id-2"], ["id-0", "id-2"])
    assert manifest["conversion"]["rows_read"] == 3


def test_a_source_in_a_folder_that_is_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "data/chat.jsonl", [record(0)])
    with pytest.raises(ConflictError, match="contain one another"):
        run(tmp_path / "data", out=tmp_path / "data/out")
    assert list((tmp_path / "data").iterdir()) == [tmp_path / "data/chat.jsonl"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"system_fields": SystemFields(model_identity="\udcff")}, "the option model_identity is not UTF-8"),
        ({"rows_per_shard": 0}, "cannot hold 0 rows"),
        ({"max_rejects": "many"}, "--max-rejects takes"),
        ({"maps": ("x",)}, "--map takes"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_at_once(options: dict[str, Any], what: str) -> None:
    with pytest.raises(SpanloomError, match=what):
        ChatConversion(**options)


# --- The same bytes, and runs that end early -------------------------------------------------------------------------


def many(folder: Path) -> Path:
    """Two files whose records fill shards of 100 at odd places, with refused ones, also after the last row."""
    records = [record(number, **({"refusal": "x"} if number % 7 == 3 else {})) for number in range(411)]
    write(folder / "a.jsonl", records[:250])
    write(folder / "b.jsonl", [*records[250:], record(411, refusal="x"), record(0)])
    return folder


def test_the_same_input_and_options_give_the_same_bytes(tmp_path: Path) -> None:
    data = many(tmp_path / "data")
    for name in ("one", "two"):
        run(data, out=tmp_path / name, max_rejects="100%", rows_per_shard=100)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert sorted(tree(tmp_path / "one")) == [
        ".spanloom-made.json",
        *(f"conversations_shard_{shard:02d}.parquet" for shard in range(4)),
        "manifest.json",
        *(f"rejects/shard_{shard:02d}.jsonl" for shard in range(4)),
    ]
    assert [len(shard) for shard in rows(tmp_path / "one")] == [100, 100, 100, 52]


def test_records_refused_after_a_full_last_shard_have_their_file_and_no_empty_shard(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(0), record(1), record(2, refusal="x")])
    manifest = run(chat, out=tmp_path / "out", rows_per_shard=2, max_rejects="1")
    assert [shard["rows"] for shard in manifest["storage"]["shards"]] == [2]
    assert [entry["path"] for entry in manifest["conversion"]["rejects"]] == ["rejects/shard_01.jsonl"]


@pytest.mark.parametrize("on_duplicate", ["keep", "leave-out"])
def test_killed_before_any_change_the_same_command_ends_with_the_same_bytes(tmp_path: Path, on_duplicate: str) -> None:
    records = [record(number, **({"x": 1} if number == 3 else {})) for number in range(8)]
    records.insert(5, {**record(1), "id": "id-1 again"})
    chat = write(tmp_path / "chat.jsonl", records)

    def go(out: Path) -> dict[str, Any]:
        return run(chat, out=out, rows_per_shard=3, max_rejects="1", on_duplicate_content=on_duplicate)

    go(tmp_path / "whole")
    change = 0
    while True:
        change += STRIDE
        out = tmp_path / f"out{change}"
        if not killed_before(change, lambda: go(out)):  # noqa: B023  # called at once
            break
        go(out)
        assert tree(out) == tree(tmp_path / "whole")
    assert change > 20


class StoppedError(Exception):
    """Stands for whatever may end a run half-way."""


def stopped_half_way(data: Path, out: Path, **options: Any) -> None:
    def stop(done: int, total: int) -> None:
        if done > 0.6 * total:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(data, out=out, on_progress=stop, **options)


def test_a_run_that_is_stopped_goes_on_after_its_last_whole_shard(tmp_path: Path) -> None:
    data, options = many(tmp_path / "data"), {"max_rejects": "100%", "rows_per_shard": 100}
    stopped_half_way(data, tmp_path / "out", **options)
    left = tree(tmp_path / "out")
    assert RECORD_NAME in left
    assert "manifest.json" not in left
    first = (tmp_path / "out/conversations_shard_00.parquet").stat().st_ino
    run(data, out=tmp_path / "out", **options)
    run(data, out=tmp_path / "whole", **options)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert (tmp_path / "out/conversations_shard_00.parquet").stat().st_ino == first, "it was not written again"


def test_a_run_stopped_by_too_many_refused_records_goes_on_when_more_are_allowed(tmp_path: Path) -> None:
    records = [record(number) for number in range(5)]
    chat = write(tmp_path / "chat.jsonl", [*records, record(5, refusal="x"), record(6)])
    with pytest.raises(RejectedRowError):
        run(chat, out=tmp_path / "out", rows_per_shard=2)
    assert [len(shard) for shard in rows(tmp_path / "out")] == [2, 2]
    manifest = run(chat, out=tmp_path / "out", rows_per_shard=2, max_rejects="1")
    assert ids(tmp_path / "out") == [["id-0", "id-1"], ["id-2", "id-3"], ["id-4", "id-6"]]
    assert manifest["conversion"]["rows_read"] == 7


def test_ids_of_shards_that_stand_are_known_to_a_run_that_goes_on(tmp_path: Path) -> None:
    data = many(tmp_path / "data")
    options = {"max_rejects": "100%", "rows_per_shard": 100}
    stopped_half_way(data, tmp_path / "out", **options)
    manifest = run(data, out=tmp_path / "out", **options)
    assert manifest["conversion"]["skipped"]["id_repeated"] == 1


@pytest.mark.parametrize("change", ["options", "input"])
def test_another_run_into_what_was_begun_begins_anew(tmp_path: Path, change: str) -> None:
    data, options = many(tmp_path / "data"), {"max_rejects": "100%", "rows_per_shard": 100}
    stopped_half_way(data, tmp_path / "out", **options)
    if change == "options":
        options["rows_per_shard"] = 150
    else:
        write(data / "a.jsonl", [record(9000)])
    run(data, out=tmp_path / "out", **options)
    run(data, out=tmp_path / "whole", **options)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_a_shard_that_was_damaged_meanwhile_is_not_built_upon(tmp_path: Path) -> None:
    data, options = many(tmp_path / "data"), {"max_rejects": "100%", "rows_per_shard": 100}
    stopped_half_way(data, tmp_path / "out", **options)
    (tmp_path / "out/conversations_shard_00.parquet").write_bytes(b"")
    with pytest.raises(ArtifactError, match="is damaged"):
        run(data, out=tmp_path / "out", **options)


def test_a_file_that_changes_while_it_is_read_stops_the_run(tmp_path: Path) -> None:
    data = many(tmp_path / "data")

    def change(done: int, total: int) -> None:
        os.utime(data / "a.jsonl")

    with pytest.raises(SourceError, match="changed"):
        run(data, out=tmp_path / "out", max_rejects="100%", on_progress=change)
    assert not (tmp_path / "out/manifest.json").exists()


def test_what_stands_there_is_left_alone(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [record(0)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"it holds notes\.txt"):
        run(chat, out=tmp_path / "out")
    run(chat, out=tmp_path / "done")
    before = tree(tmp_path / "done")
    run(chat, out=tmp_path / "done")
    assert tree(tmp_path / "done") == before
    write(chat, [record(1)])
    with pytest.raises(ConflictError, match="another result of this command: other input"):
        run(chat, out=tmp_path / "done")
    assert tree(tmp_path / "done") == before
    assert tree(tmp_path / "out") == {"notes.txt": hashlib.sha256(b"mine").hexdigest()}


def test_progress_rises_to_the_bytes_of_all_files(tmp_path: Path) -> None:
    data = many(tmp_path / "data")
    seen: list[tuple[int, int]] = []
    run(data, out=tmp_path / "out", max_rejects="100%", on_progress=lambda done, total: seen.append((done, total)))
    total = sum(path.stat().st_size for path in data.iterdir())
    assert {one[1] for one in seen} == {total}
    assert [one[0] for one in seen] == sorted(one[0] for one in seen)
    assert seen[-1][0] == total


MEASURED = """
import sys
from pathlib import Path
from spanloom.families.harmony.convert.chat import *
from spanloom.families.harmony.convert.chat_input import *
conversion = ChatConversion(rows_per_shard=100_000)
chat = open_chat([Path(sys.argv[1])], conversion)
convert_chat(chat=chat, out=Path(sys.argv[2]), conversion=conversion)
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
"""Prints the most memory that the process itself held, in kB: getrusage would count that of the process before exec."""


def test_memory_follows_a_row_group_and_not_the_input(tmp_path: Path) -> None:
    held = {}
    for rows in (5_000, 20_000):  # of 4096 to a row group
        with (tmp_path / "chat.jsonl").open("w") as stream:
            for number in range(rows):
                stream.write(json.dumps({**record(number), "id": number, "about": os.urandom(4000).hex()}) + "\n")
        arguments = [sys.executable, "-c", MEASURED, tmp_path / "chat.jsonl", tmp_path / f"out{rows}"]
        held[rows] = int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    assert (tmp_path / "chat.jsonl").stat().st_size > 160e6
    assert held[20_000] - held[5_000] < 60_000, "15,000 records more are 120 MB"


def test_ids_seen_are_known_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeenIds, "RECENT", 7)
    seen = SeenIds()
    assert all(seen.add(f"id-{number}") for number in range(1000))
    assert not any(seen.add(f"id-{number}") for number in range(1000))
    assert seen.add("new")
