"""Raw SYNTH → `synth_harmony_v1`: what becomes of each row, where it goes, and what is left behind on a failure."""

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.conversations.source.folder import open_source, verify_hash
from spanloom.conversations.source.structure import row_id
from spanloom.errors import SourceError, SpanloomError
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.convert import synth as convert
from spanloom.families.harmony.convert.synth import Conversion, convert_synth, find_raw_files
from spanloom.families.harmony.render.official import render_one
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.tokenizers.o200k.asset import ASSET_FILE_VARIABLE
from support.raw_synth import COLUMNS, numbered, raw_row, shard_ids, shard_rows, tree, write_raw

REPOSITORY = Path(__file__).parents[4]
ASSET = Path(os.environ.get(ASSET_FILE_VARIABLE) or REPOSITORY / "data/tokenizer/o200k_base.tiktoken")


@pytest.fixture(scope="module")
def encoding():
    return load_encoding(ASSET)


# --- One row ---------------------------------------------------------------------------------------------------------


def test_a_fifo_among_the_raw_files_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    os.mkfifo(tmp_path / "raw/a.parquet")
    with pytest.raises(SourceError, match="not a regular file"):
        find_raw_files(tmp_path / "raw", with_seed_text=False)


def test_a_converted_row_has_exactly_this_shape(tmp_path: Path) -> None:
    row = raw_row(
        0,
        query=" Wie weit? ",
        synthetic_reasoning="→ ●\n",
        synthetic_answer='"<|end|>" \\ \x00 \U0001f9f5',
        synth_id="id-ä",
        language="de",
        model="m",
        query_seed_url="https://example.org/ä",
        query_seed_text="seed",
        script="ignored",
    )
    convert_synth(
        raw=write_raw(tmp_path / "raw.parquet", [row]),
        out=tmp_path / "out",
        conversion=Conversion(shards=1, developer_instructions="Be brief."),
    )
    table = pq.read_table(tmp_path / "out/synth_harmony_shard_00.parquet")
    assert table.schema.equals(
        pa.schema(
            [
                ("messages_json", pa.string()),
                ("metadata_json", pa.string()),
                ("synth_id", pa.string()),
                ("language", pa.string()),
                ("exercise", pa.string()),
                ("model", pa.string()),
                ("constraints", pa.string()),
                ("seed_license", pa.string()),
                ("query_seed_url", pa.string()),
            ]
        )
    )
    assert table.to_pylist() == [
        {
            "messages_json": (
                '{"messages": [{"role": "system", "content": [{"type": "system_content", "model_identity": '
                '"You are ChatGPT, a large language model trained by OpenAI.", "reasoning_effort": "High", '
                '"conversation_start_date": "2026-01-01", "knowledge_cutoff": "2024-06", "channel_config": '
                '{"valid_channels": ["analysis", "commentary", "final"], "channel_required": true}}]}, '
                '{"role": "developer", "content": [{"type": "developer_content", "instructions": "Be brief."}]}, '
                '{"role": "user", "content": [{"type": "text", "text": " Wie weit? "}]}, '
                '{"role": "assistant", "content": [{"type": "text", "text": "→ ●\\n"}], "channel": "analysis"}, '
                '{"role": "assistant", "content": [{"type": "text", "text": '
                '"\\"<|end|>\\" \\\\ \\u0000 \U0001f9f5"}], "channel": "final"}]}'
            ),
            "metadata_json": (
                '{"synth_id": "id-ä", "language": "de", "exercise": null, "model": "m", "constraints": null, '
                '"seed_license": null, "query_seed_url": "https://example.org/ä"}'
            ),
            "synth_id": "id-ä",
            "language": "de",
            "exercise": None,
            "model": "m",
            "constraints": None,
            "seed_license": None,
            "query_seed_url": "https://example.org/ä",
        }
    ]


def test_what_is_written_is_what_the_contract_reads(tmp_path: Path) -> None:
    convert_synth(raw=numbered(tmp_path / "raw.parquet", 9), out=tmp_path / "out", conversion=Conversion(shards=2))
    source = open_source(tmp_path / "out", shards=2)
    for shard in source.shards:
        verify_hash(shard)
        for row in pq.read_table(shard.path).to_pylist():
            assert row_id(row["synth_id"], row["metadata_json"], "synth_id") == row["synth_id"]
            assert parse_conversation(row["messages_json"]).labels.tolist() == [0, 0, 1, 2]


def test_rows_that_lack_something_are_counted_by_the_first_reason(tmp_path: Path) -> None:
    rows = [
        raw_row(0),
        raw_row(1, query=None),
        raw_row(2, query="", synthetic_reasoning=None, synth_id=None),
        raw_row(3, synthetic_reasoning=None),
        raw_row(4, synthetic_answer="", synth_id=""),
        raw_row(5, synth_id=None),
        raw_row(6, synth_id=""),
        raw_row(7, synth_id=""),
        raw_row(8, query=" "),
    ]
    raw = write_raw(tmp_path / "raw.parquet", rows)
    manifest = convert_synth(raw=raw, out=tmp_path / "out", conversion=Conversion(shards=1))
    assert shard_ids(tmp_path / "out") == [["id-0", "id-8"]]
    assert manifest["conversion"]["rows_read"] == 9
    assert manifest["conversion"]["rows_written"] == 2
    assert manifest["conversion"]["skipped"] == {
        "query_missing": 2,
        "reasoning_missing": 1,
        "answer_missing": 1,
        "synth_id_missing": 3,
    }


@pytest.mark.parametrize("column", [*COLUMNS, "language"])
def test_a_string_that_is_not_utf8_skips_its_row_alone(tmp_path: Path, column: str) -> None:
    table = {name: pa.array([f"{name} {row}" for row in range(3)]) for name in (*COLUMNS, "language")}
    table[column] = pa.array([b"before", b"\xff", b"after"], pa.binary()).view(pa.string())
    pq.write_table(pa.table(table), tmp_path / "raw.parquet")
    manifest = convert_synth(raw=tmp_path / "raw.parquet", out=tmp_path / "out", conversion=Conversion(shards=1))
    assert manifest["conversion"]["skipped"] == {"not_utf8": 1}
    before, after = shard_rows(tmp_path / "out")[0]
    assert "before" in before["messages_json"] + before["metadata_json"]
    assert "after" in after["messages_json"] + after["metadata_json"]


def test_a_row_that_lacks_something_counts_as_that_though_another_string_is_not_utf8(tmp_path: Path) -> None:
    table = {name: pa.array(["x"]) for name in COLUMNS}
    table["query"] = pa.array([b"\xff"], pa.binary()).view(pa.string())
    table["synth_id"] = pa.array([""])
    pq.write_table(pa.table(table), tmp_path / "raw.parquet")
    manifest = convert_synth(raw=tmp_path / "raw.parquet", out=tmp_path / "out")
    assert manifest["conversion"]["skipped"] == {"synth_id_missing": 1}


# --- Which shard -----------------------------------------------------------------------------------------------------


def test_round_robin_deals_rows_out_in_turn(tmp_path: Path) -> None:
    convert_synth(raw=numbered(tmp_path / "raw.parquet", 7), out=tmp_path / "out", conversion=Conversion(shards=3))
    assert shard_ids(tmp_path / "out") == [["id-0", "id-3", "id-6"], ["id-1", "id-4"], ["id-2", "id-5"]]


def test_contiguous_gives_each_shard_one_run(tmp_path: Path) -> None:
    convert_synth(
        raw=numbered(tmp_path / "raw.parquet", 7),
        out=tmp_path / "out",
        conversion=Conversion(shards=3, assignment="contiguous"),
    )
    assert shard_ids(tmp_path / "out") == [["id-0", "id-1", "id-2"], ["id-3", "id-4"], ["id-5", "id-6"]]


def test_a_skipped_row_keeps_its_place(tmp_path: Path) -> None:
    rows = [raw_row(number, query=None if number == 1 else "q") for number in range(5)]
    raw = write_raw(tmp_path / "raw.parquet", rows)
    convert_synth(raw=raw, out=tmp_path / "turn", conversion=Conversion(shards=2))
    convert_synth(raw=raw, out=tmp_path / "run", conversion=Conversion(shards=2, assignment="contiguous"))
    assert shard_ids(tmp_path / "turn") == [["id-0", "id-2", "id-4"], ["id-3"]]
    assert shard_ids(tmp_path / "run") == [["id-0", "id-2"], ["id-3", "id-4"]]


def test_a_row_cap_counts_source_rows_and_shrinks_the_runs(tmp_path: Path) -> None:
    raw = numbered(tmp_path / "raw.parquet", 600)
    manifest = convert_synth(
        raw=raw, out=tmp_path / "out", conversion=Conversion(shards=2, assignment="contiguous"), max_rows=4
    )
    assert shard_ids(tmp_path / "out") == [["id-0", "id-1"], ["id-2", "id-3"]]
    assert (manifest["conversion"]["max_rows"], manifest["conversion"]["rows_read"]) == (4, 4)
    assert manifest["conversion"]["sources"][0]["rows"] == 600


@pytest.mark.parametrize("assignment", ["round-robin", "contiguous"])
@pytest.mark.parametrize("shards", range(1, 8))
def test_any_number_of_shards_keeps_each_usable_row_once_and_in_order(
    tmp_path: Path, shards: int, assignment: convert.Assignment
) -> None:
    rows = [raw_row(number, query="" if number % 5 == 3 else "q") for number in range(300)]
    write_raw(tmp_path / "raw/a.parquet", rows[:2])
    write_raw(tmp_path / "raw/b.parquet", [])
    write_raw(tmp_path / "raw/c.parquet", rows[2:], row_group_size=70)
    manifest = convert_synth(
        raw=tmp_path / "raw", out=tmp_path / "out", conversion=Conversion(shards=shards, assignment=assignment)
    )
    found = shard_ids(tmp_path / "out")
    usable = [f"id-{number}" for number in range(300) if number % 5 != 3]
    assert len(found) == shards
    assert sorted(name for ids in found for name in ids) == sorted(usable)
    assert all(ids == [name for name in usable if name in ids] for ids in found)
    assert [entry["rows"] for entry in manifest["storage"]["shards"]] == [len(ids) for ids in found]
    open_source(tmp_path / "out", shards=shards)


def test_more_shards_than_rows_leaves_shards_empty_but_there(tmp_path: Path) -> None:
    convert_synth(raw=numbered(tmp_path / "raw.parquet", 2), out=tmp_path / "out", conversion=Conversion(shards=3))
    assert shard_ids(tmp_path / "out") == [["id-0"], ["id-1"], []]
    open_source(tmp_path / "out", shards=3)


# --- The files -------------------------------------------------------------------------------------------------------


def test_files_of_a_directory_are_read_by_relative_path(tmp_path: Path) -> None:
    for number, name in enumerate(("b.parquet", "a/z.parquet", "a.parquet", "a/notes.txt.parquet", "c/d/e.parquet")):
        write_raw(tmp_path / "raw" / name, [raw_row(number)])
    (tmp_path / "raw/README.md").write_text("not data")
    (tmp_path / "raw/folder.parquet").mkdir()
    manifest = convert_synth(raw=tmp_path / "raw", out=tmp_path / "out", conversion=Conversion(shards=1))
    names = ["a.parquet", "a/notes.txt.parquet", "a/z.parquet", "b.parquet", "c/d/e.parquet"]
    assert shard_ids(tmp_path / "out") == [["id-2", "id-3", "id-1", "id-0", "id-4"]]
    assert manifest["conversion"]["sources"] == [
        {"path": name, "rows": 1, "bytes": (tmp_path / "raw" / name).stat().st_size} for name in names
    ]


def test_the_manifest_says_what_was_done_and_no_more(tmp_path: Path) -> None:
    raw = numbered(tmp_path / "raw.parquet", 3)
    returned = convert_synth(
        raw=raw,
        out=tmp_path / "out",
        conversion=Conversion(shards=2, dataset="PleIAs/SYNTH", license="CDLA-Permissive"),
    )
    text = (tmp_path / "out/manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest == returned
    assert str(tmp_path) not in text
    shards = [tmp_path / "out" / f"synth_harmony_shard_{shard:02d}.parquet" for shard in range(2)]
    assert manifest["conversion"].pop("spanloom")
    assert manifest == {
        "schema_version": "synth_harmony_v1",
        "conversion": {
            "dataset": "PleIAs/SYNTH",
            "license": "CDLA-Permissive",
            "system_message": {
                "role": "system",
                "content": [
                    {
                        "type": "system_content",
                        "model_identity": "You are ChatGPT, a large language model trained by OpenAI.",
                        "reasoning_effort": "High",
                        "conversation_start_date": "2026-01-01",
                        "knowledge_cutoff": "2024-06",
                        "channel_config": {
                            "valid_channels": ["analysis", "commentary", "final"],
                            "channel_required": True,
                        },
                    }
                ],
            },
            "developer_instructions": None,
            "with_seed_text": False,
            "assignment": "round-robin",
            "shards": 2,
            "max_rows": None,
            "sources": [{"path": "raw.parquet", "rows": 3, "bytes": raw.stat().st_size}],
            "rows_read": 3,
            "rows_written": 3,
            "skipped": {},
        },
        "storage": {
            "format": "parquet",
            "glob": "synth_harmony_shard_*.parquet",
            "total_rows": 3,
            "shards": [
                {
                    "path": path.name,
                    "rows": rows,
                    "bytes": path.stat().st_size,
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                }
                for path, rows in zip(shards, (2, 1), strict=True)
            ],
        },
    }


def test_the_same_input_and_options_give_the_same_bytes(tmp_path: Path) -> None:
    rows = [raw_row(number, language=("de", "en", None)[number % 3]) for number in range(700)]
    write_raw(tmp_path / "raw/a.parquet", rows[:300])
    write_raw(tmp_path / "raw/b.parquet", rows[300:])
    (tmp_path / "two").mkdir()  # an empty directory that is there already is no difference
    for name in ("one", "two"):
        convert_synth(raw=tmp_path / "raw", out=tmp_path / name)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert sorted(tree(tmp_path / "one")) == [
        "manifest.json",
        *(f"synth_harmony_shard_{shard:02d}.parquet" for shard in range(4)),
    ]


def test_how_the_input_is_cut_into_row_groups_changes_nothing(tmp_path: Path) -> None:
    rows = [raw_row(number) for number in range(600)]
    for name, size in (("one", 600), ("two", 7)):
        raw = write_raw(tmp_path / name / "raw.parquet", rows, row_group_size=size)
        convert_synth(raw=raw, out=tmp_path / name / "out")
    one, two = tree(tmp_path / "one/out"), tree(tmp_path / "two/out")
    del one["manifest.json"], two["manifest.json"]  # they name the bytes of their sources
    assert one == two


def test_row_groups_hold_4096_rows_but_the_last(tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_synth(raw=numbered(tmp_path / "raw.parquet", 8200), out=out, conversion=Conversion(shards=1))
    metadata = pq.ParquetFile(out / "synth_harmony_shard_00.parquet").metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [4096, 4096, 8]
    column = metadata.row_group(0).column(0)
    assert (column.compression, column.has_dictionary_page, column.is_stats_set) == ("ZSTD", False, False)


def test_very_long_rows_close_a_row_group_early(tmp_path: Path) -> None:
    long = "x" * (30 << 20)
    raw = write_raw(tmp_path / "raw.parquet", [raw_row(number, query=long) for number in range(4)])
    convert_synth(raw=raw, out=tmp_path / "out", conversion=Conversion(shards=1))
    metadata = pq.ParquetFile(tmp_path / "out/synth_harmony_shard_00.parquet").metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [3, 1]


def test_progress_rises_to_the_number_of_rows(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    raw = numbered(tmp_path / "raw.parquet", 700)
    convert_synth(
        raw=raw, out=tmp_path / "out", max_rows=600, on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(256, 600), (512, 600), (600, 600)]


def test_large_strings_and_a_column_without_any_value_are_read(tmp_path: Path) -> None:
    table = {name: pa.array(["x"], pa.large_string()) for name in COLUMNS} | {"constraints": pa.nulls(1)}
    pq.write_table(pa.table(table), tmp_path / "raw.parquet")
    convert_synth(raw=tmp_path / "raw.parquet", out=tmp_path / "out", conversion=Conversion(shards=1))
    [[row]] = shard_rows(tmp_path / "out")
    assert (row["synth_id"], row["constraints"]) == ("x", None)


# --- Options, as openai-harmony renders them -------------------------------------------------------------------------


def rendered(tmp_path: Path, encoding, conversion: Conversion, **changes: str | None) -> str:
    """The text that openai-harmony makes of the one row of a conversion."""
    raw = write_raw(tmp_path / "raw.parquet", [raw_row(0, **changes)])
    convert_synth(raw=raw, out=tmp_path / "out", conversion=conversion)
    [[row], *_] = shard_rows(tmp_path / "out")
    return encoding.decode_utf8(render_one(parse_conversation(row["messages_json"]).messages, encoding).tolist())


CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
TURNS = (
    "<|start|>user<|message|>question 0<|end|>"
    "<|start|>assistant<|channel|>analysis<|message|>thought 0<|end|>"
    "<|start|>assistant<|channel|>final<|message|>answer 0<|return|>"
)


def test_the_default_render(tmp_path: Path, encoding) -> None:
    assert rendered(tmp_path, encoding, Conversion()) == (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-01\n\nReasoning: high\n\n" + CHANNELS + TURNS
    )


def test_every_option_shows_in_the_render(tmp_path: Path, encoding) -> None:
    conversion = Conversion(
        model_identity="You are a loom.",
        reasoning_effort="mEDIUM",
        start_date="1804-01-01",
        knowledge_cutoff="1803-12",
        developer_instructions="Weave.",
    )
    assert rendered(tmp_path, encoding, conversion) == (
        "<|start|>system<|message|>You are a loom.\nKnowledge cutoff: 1803-12\nCurrent date: 1804-01-01\n\n"
        "Reasoning: medium\n\n" + CHANNELS + "<|start|>developer<|message|># Instructions\n\nWeave.<|end|>" + TURNS
    )


@pytest.mark.parametrize(
    ("conversion", "head"),
    [
        (Conversion(model_identity=None), "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-01\n\n"),
        (Conversion(model_identity="Id.", knowledge_cutoff=None), "Id.\nCurrent date: 2026-01-01\n\n"),
        (Conversion(model_identity="Id.", start_date=None), "Id.\nKnowledge cutoff: 2024-06\n\n"),
        (Conversion(model_identity=None, knowledge_cutoff=None, start_date=None), ""),
    ],
)
def test_none_leaves_the_line_out_where_openai_harmony_has_a_default(
    tmp_path: Path, encoding, conversion: Conversion, head: str
) -> None:
    text = rendered(tmp_path, encoding, conversion)
    assert text == f"<|start|>system<|message|>{head}Reasoning: high\n\n" + CHANNELS + TURNS


def test_seed_text_stays_out_by_default(tmp_path: Path, encoding) -> None:
    assert rendered(tmp_path, encoding, Conversion(), query_seed_text="a seed").endswith(TURNS)


def test_seed_text_comes_after_the_query_when_asked_for(tmp_path: Path, encoding) -> None:
    text = rendered(tmp_path, encoding, Conversion(with_seed_text=True), query_seed_text="a seed")
    assert text.endswith(TURNS.replace("question 0", "question 0\n\na seed"))


@pytest.mark.parametrize("seed_text", [None, ""])
def test_without_a_seed_text_the_query_stands_alone(tmp_path: Path, encoding, seed_text: str | None) -> None:
    conversion = Conversion(with_seed_text=True)
    assert rendered(tmp_path, encoding, conversion, query_seed_text=seed_text).endswith(TURNS)


@pytest.mark.parametrize(("given", "stored"), [("low", "Low"), ("MEDIUM", "Medium"), ("High", "High")])
def test_reasoning_effort_is_taken_in_any_case(given: str, stored: str) -> None:
    assert Conversion(reasoning_effort=given).reasoning_effort == stored


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reasoning_effort": "extreme"}, r"no reasoning effort 'extreme'\n  remedy: use one of: Low, Medium, High"),
        ({"assignment": "random"}, r"no assignment 'random'\n  remedy: use one of: round-robin, contiguous"),
        ({"shards": 0}, r"cannot be 0 shards"),
        ({"model_identity": "\udcff"}, r"the option model_identity is not UTF-8: '\\udcff'"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_at_once(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpanloomError, match=message):
        Conversion(**options)


# --- Real rows -------------------------------------------------------------------------------------------------------


def test_real_conversations_come_back_token_for_token(tmp_path: Path, encoding, real_sample: Path) -> None:
    """Takes published conversations apart into raw rows; converted again, they render to the same tokens."""
    source = open_source(real_sample / "synth_harmony")
    originals = [row for shard in source.shards for row in pq.read_table(shard.path).to_pylist()]
    raw = []
    for row in originals:
        system, developer, user, analysis, final = json.loads(row["messages_json"])["messages"]
        texts = [message["content"][0]["text"] for message in (user, analysis, final)]
        raw.append(dict(zip(COLUMNS, (*texts, row["synth_id"]), strict=True)))
    said = system["content"][0]
    convert_synth(
        raw=write_raw(tmp_path / "raw.parquet", raw),
        out=tmp_path / "out",
        conversion=Conversion(
            model_identity=said["model_identity"],
            reasoning_effort=said["reasoning_effort"],
            start_date=said["conversation_start_date"],
            knowledge_cutoff=said["knowledge_cutoff"],
            developer_instructions=developer["content"][0]["instructions"],
            assignment="contiguous",
        ),
    )
    converted = [row for rows in shard_rows(tmp_path / "out") for row in rows]
    assert [row["synth_id"] for row in converted] == [row["synth_id"] for row in originals]
    for new, old in zip(converted, originals, strict=True):
        assert json.loads(new["metadata_json"]) == json.loads(old["metadata_json"])
        tokens = [
            render_one(parse_conversation(row["messages_json"]).messages, encoding).tolist() for row in (new, old)
        ]
        assert tokens[0] == tokens[1], f"{new['synth_id']}: {encoding.decode_utf8(tokens[0])}"
