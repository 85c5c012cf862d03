"""Datasets that are false and fit together: files listed as they are, counts and totals made to agree.

Each test changes one thing and everything that follows from it, but for what only the tokens, the rule or the source
can tell.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.dataset import manifest
from spanloom.dataset.manifest import ManifestError
from spanloom.dataset.validate import dataset as validate
from spanloom.families.harmony import dataset as harmony
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.findings import Report
from spanloom.provenance import canonical_json, sha256_json
from spanloom.split import id_digests, is_valid
from support import sources
from support.bad_builds import BAD_ROWS, write_cells

validate_dataset = partial(validate.validate_dataset, family=harmony)
Json = dict[str, Any]
REJECTS = "rejects/shard_00.jsonl"
ROWS = "train/shard_01_rows.parquet"
REFUSED_BY_HARMONY = {"a megabyte of spaces"}
"""Takes a second to render."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards; in the first, among good rows, a row for every reason to refuse one."""
    bad = [
        row.row(f"bad-{index}") for index, (name, row) in enumerate(BAD_ROWS.items()) if name not in REFUSED_BY_HARMONY
    ]
    good = sources.rows(20, prefix="s0")
    first = [row for pair in zip(good, bad[:20], strict=True) for row in pair] + bad[20:]
    languages = ["en", "de", None]
    second = [sources.row(f"s1-{index}", language=languages[index % 3]) for index in range(30)]
    return write_cells(tmp_path_factory.mktemp("source"), first, second)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, source: Path, asset: Path) -> Path:
    root = tmp_path_factory.mktemp("built") / "root"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_GIT_SHA", "0" * 40)
        options = BuildOptions(
            source=source, out=root, shards=2, valid_fraction=0.3, workers=1, tokenizer=asset, max_rejects="100%"
        )
        result = build(options)
    assert result.report.clean, result.report.findings
    return root


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may falsify."""
    return Path(shutil.copytree(built, tmp_path / "root"))


def read(root: Path) -> Json:
    return dict(json.loads((root / "manifest.json").read_bytes()))


def write(root: Path, whole: Json) -> None:
    """The manifest with files, config_sha256 and the sums of the shards as they are."""
    content = whole["content"]
    for shard in content["shards"]:
        files = [file for counts in shard["splits"].values() for file in counts["files"]]
        for file in (*files, *filter(None, [shard["rejects_file"]])):
            data = (root / file["path"]).read_bytes()
            file.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    content["totals"]["rows_read"] = sum(shard["rows_read"] for shard in content["shards"])
    content["totals"]["rejected"] = dict(sum((Counter(shard["rejected"]) for shard in content["shards"]), Counter()))
    content["config_sha256"] = sha256_json(content["config"])
    (root / "manifest.json").write_text(json.dumps(whole))


def change(root: Path, edit: Callable[[Json], object]) -> None:
    whole = read(root)
    edit(whole["content"])
    write(root, whole)


def change_column(root: Path, name: str, index: int, value: Any) -> None:
    table = pq.read_table(root / ROWS)
    values = table[name].to_pylist()
    assert values[index] != value
    values[index] = value
    at = table.schema.names.index(name)
    column = pa.array(values, table.schema.field(name).type)
    pq.write_table(table.set_column(at, table.schema.field(name), column), root / ROWS)
    write(root, read(root))


def reject_lines(root: Path) -> list[Json]:
    return [json.loads(line) for line in (root / REJECTS).read_bytes().splitlines()]


def write_rejects(root: Path, lines: list[Json]) -> None:
    (root / REJECTS).write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))

    def recount(content: Json) -> None:
        content["shards"][0]["rejected"] = dict(sorted(Counter(line["reason"] for line in lines).items()))

    change(root, recount)


def said(report: Report) -> list[str]:
    return [f"{finding.check}: {finding.message}" for finding in report.findings]


def test_every_reason_to_refuse_a_row_is_found_right(built: Path, source: Path) -> None:
    report = validate_dataset(built, source=source, deep=70)
    assert report.clean, report.findings
    assert len({line["reason"] for line in reject_lines(built)}) == 15, "all reasons are here"
    assert report.checked["rows placed"] == report.checked["source rows"] == len(reject_lines(built)) + 50


def test_written_back_it_is_clean(root: Path, source: Path) -> None:
    write(root, read(root))
    assert validate_dataset(root, source=source).clean


# --- The manifest, nothing but itself and the files -------------------------------------------------------------------

SHA = "ab" * 32


NO_PACKING = dict.fromkeys(manifest.schema()["$defs"]["packing"]["required"], 0)


def put(*path: Any) -> Callable[[Json], None]:
    """Puts the last of `path` at the place that the others name."""

    def edit(content: Json) -> None:
        inner: Any = content
        for part in path[:-2]:
            inner = inner[part]
        assert not isinstance(inner, dict) or inner.get(path[-2]) != path[-1]
        inner[path[-2]] = path[-1]

    return edit


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([put("span_names", ["context", "final", "analysis"])], "span_names is ['context', 'final', 'analysis']"),
        ([put("arrays", "span", "int32")], "arrays is"),
        ([put("shards", 1, "shard", 0)], "the shards are numbered [0, 0]"),
        ([put("config", "shards", 3)], "config.shards is 3, not 2"),
        ([put("config", "eod", 1), put("tokenizer", "eod", 1)], "tokenizer.eod is 1, not 199999"),
        ([put("config", "tokenizer_sha256", SHA), put("tokenizer", "sha256", SHA)], "tokenizer.sha256 is"),
        ([put("tokenizer", "name", "cl100k")], "tokenizer.name is 'cl100k', not 'o200k_harmony'"),
        ([put("tokenizer", "vocab_size", 200_064)], "tokenizer.vocab_size is 200064"),
        ([put("config", "caps", "max_rows", 7)], "rows read of"),
        ([put("config", "caps", "max_rows", -1)], "config.caps is"),
        ([put("config", "caps", "max_tokens", 100)], "the caps allow 50"),
        ([put("config", "input_schema", "x")], "config.input_schema is 'x'"),
        ([put("config", "alignment", "x")], "config.alignment is 'x'"),
        ([put("config", "arrays", "span", "int32")], "config.arrays.span is 'int32'"),
        ([put("config", "more", 1)], "config.more is 1, not None"),
        ([put("config", "valid_fraction", 0.31)], "config.valid_fraction is 0.31, not 0.3"),
        ([put("config", "valid_fraction", 0.31), put("split", "valid_fraction", 0.31)], "split.threshold is"),
        ([put("split", "threshold", "1")], "split.threshold is '1'"),
        ([put("split", "realised_valid_fraction", 0.3)], "split.realised_valid_fraction is 0.3"),
        ([put("split", "repeated_rows", 1)], "split.repeated_rows is 1, 0 rows repeat an earlier id"),
        ([put("split", "rule", "crc"), put("config", "split_rule", "crc")], "split.rule is 'crc'"),
        ([put("renderer", "name", "slow")], "renderer.name is 'slow'"),
        ([put("renderer", "name", "harmony")], "renderer.version is"),
        ([put("renderer", "audited_rows", 10**6)], "renderer.audited_rows is 1000000"),
        ([put("renderer", "fallback_rows", 10**6)], "renderer.fallback_rows is 1000000"),
        ([put("input", "schema_version", "x")], "input.schema_version is 'x'"),
        ([put("input", "shards", 1, "rows", 31)], "30 rows read of 31, the caps allow 31"),
        ([put("input", "shards", 1, "path", "other.parquet")], "input.shards[1] is 'other.parquet'"),
        ([put("totals", "splits", "train", "longest", 1)], "longest is 1, the shards add up to"),
        ([put("totals", "splits", "train", "fitting", "2048", 1)], "fitting.2048 is 1, the shards add up to"),
        ([put("totals", "splits", "valid", "span_tokens", "final", 1)], "span_tokens.final is 1, the shards"),
        ([put("totals", "splits", "valid", "sequences", 1)], "sequences is 1, the shards add up to"),
        ([put("totals", "splits", "valid", "fitting", {"2048": 1})], "fitting is of ['2048']"),
        ([put("totals", "packing", NO_PACKING)], "packing is given"),
        ([put("shards", 0, "packing", NO_PACKING)], "packing is given"),
        ([put("more", 1)], "content has more, which this version does not know"),
    ],
)
def test_a_manifest_that_is_false_by_itself(root: Path, edits: list[Callable[[Json], None]], message: str) -> None:
    for edit in edits:
        change(root, edit)
    report = validate_dataset(root)
    assert any(message in line for line in said(report)), said(report)


@pytest.mark.parametrize("name", ["longest", "fitting"])
def test_lengths_of_a_shard(root: Path, name: str) -> None:
    def edit(content: Json) -> None:
        for counts in (content["shards"][1]["splits"]["train"], content["totals"]["splits"]["train"]):
            counts[name] = 10**6 if name == "longest" else {**counts[name], "4096": counts[name]["4096"] - 1}

    change(root, edit)
    (finding,) = validate_dataset(root).findings
    assert (finding.split, finding.shard, finding.check) == ("train", 1, "manifest")
    assert name in finding.message


@pytest.mark.parametrize(("name", "number"), [("rows_read", 1), ("totals", 1)])
def test_sums_that_are_none(root: Path, name: str, number: int) -> None:
    whole = read(root)
    if name == "rows_read":
        whole["content"]["totals"]["rows_read"] += number
    else:
        whole["content"]["totals"]["rejected"]["no_messages"] += number
    (root / "manifest.json").write_text(json.dumps(whole))
    assert any("the shards add up to" in line for line in said(validate_dataset(root)))


def test_a_file_that_is_not_listed(root: Path) -> None:
    change(root, lambda content: content["shards"][0]["splits"]["train"]["files"].pop())
    assert any("listed" in line for line in said(validate_dataset(root)))


@pytest.mark.parametrize(
    ("edit", "refused"),
    [
        (lambda files: files.append(files[0]), "lists a file twice: train/shard_00_rows.parquet"),
        (lambda files: files[0].update(path="train/shard_01_tokens.bin"), "lists a file twice"),
        (lambda files: files[0].update(path="../root/train/shard_00_rows.parquet"), "does not match"),
    ],
)
def test_files_that_no_manifest_may_list(root: Path, edit: Callable[[list[Json]], object], refused: str) -> None:
    change(root, lambda content: edit(content["shards"][0]["splits"]["train"]["files"]))
    with pytest.raises(ManifestError, match=refused):
        validate_dataset(root)


# --- Rows: in one place, once -----------------------------------------------------------------------------------------


def test_the_last_row_left_out(root: Path, source: Path) -> None:
    """As if the source had ended before it."""
    change(root, lambda content: content["shards"][1].update(rows_read=29))
    assert any("29 rows read of 30" in line for line in said(validate_dataset(root)))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("language", "xx", "has language "),
        ("language", None, "has language "),
        ("exercise", "essay", "has exercise 'qa', the dataset says 'essay'"),
    ],
)
def test_metadata_of_one_row(root: Path, source: Path, column: str, value: str | None, message: str) -> None:
    row = pq.read_table(root / ROWS)["row"].to_pylist()
    at = next(index for index in range(len(row)) if row[index] % 3 != 2)  # the third language is null
    change_column(root, column, at, value)
    assert validate_dataset(root).clean, "only the source tells"
    report = validate_dataset(root, source=source)
    (finding,) = report.findings
    assert f"source row {row[at]}: {message}" in finding.message
    assert (finding.split, finding.shard, finding.sequence) == ("train", 1, at)


def test_an_invented_id_of_the_same_split(root: Path, source: Path) -> None:
    invented = next(
        name for name in map("invented-{}".format, range(99)) if not is_valid(id_digests([name]), 0.3).any()
    )
    change_column(root, "synth_id", 2, invented)
    assert validate_dataset(root).clean
    (finding,) = validate_dataset(root, source=source).findings
    assert f"the dataset says {invented!r}" in finding.message


def test_one_row_twice_and_another_nowhere(root: Path) -> None:
    rows = pq.read_table(root / ROWS)["row"].to_pylist()
    valid = pq.read_table(root / ROWS.replace("train", "valid"))["row"].to_pylist()
    at = next(index for index in range(1, len(rows)) if rows[index] - 1 in valid)
    change_column(root, "row", at, rows[at] - 1)
    lines = said(validate_dataset(root))
    assert f"source: source row {rows[at] - 1}: is in the dataset 2 times" in lines
    assert f"source: source row {rows[at]}: is in neither split and was not rejected" in lines


def test_an_id_that_stands_twice_is_counted(root: Path) -> None:
    ids = pq.read_table(root / ROWS)["synth_id"].to_pylist()
    change_column(root, "synth_id", 3, ids[2])
    lines = said(validate_dataset(root))
    assert lines == ["manifest: split.repeated_rows is 0, 1 rows repeat an earlier id"]
    change(root, put("split", "repeated_rows", 1))
    assert validate_dataset(root).clean


@pytest.mark.parametrize("columns", ["less", "more", "order"])
def test_columns_of_the_row_table(root: Path, columns: str) -> None:
    table = pq.read_table(root / ROWS)
    names = {"less": table.schema.names[:4], "more": table.schema.names, "order": table.schema.names[::-1]}[columns]
    table = table.select(names)
    if columns == "more":
        table = table.append_column("score", pa.array(np.zeros(table.num_rows)))
    pq.write_table(table, root / ROWS)
    write(root, read(root))
    assert any("rows: rows.parquet has" in line for line in said(validate_dataset(root)))


# --- Rejects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "alone", "with_source"),
    [
        (lambda lines: lines[0].update(row=lines[0]["row"] - 1), "was rejected, yet is in the dataset", None),
        (lambda lines: lines[0].update(row=10**6), "row 1000000 does not follow", None),
        (lambda lines: lines.reverse(), "does not follow row", None),
        (lambda lines: lines.append(lines[-1]), "does not follow row", None),
        (lambda lines: lines[3].update(shard=1), "shard is 1", None),
        (lambda lines: lines[3].update(synth_id=7), "is not a rejected row", None),
        (lambda lines: lines[3].update(more=7), "is not a rejected row", None),
        (lambda lines: lines[3].pop("detail"), "is not a rejected row", None),
        (lambda lines: lines.pop(), "is in neither split and was not rejected", None),
        (lambda lines: lines[0].update(reason="role_unknown"), None, "is refused for synth_id_missing"),
        (lambda lines: lines[0].update(detail="so"), None, "is refused since "),
        (lambda lines: lines[0].update(synth_id="someone"), None, "has id None, the file says 'someone'"),
    ],
)
def test_rejects_that_are_false(
    root: Path, source: Path, edit: Callable[[list[Json]], object], alone: str | None, with_source: str | None
) -> None:
    lines = reject_lines(root)
    edit(lines)
    write_rejects(root, lines)
    report = validate_dataset(root)
    assert report.clean == (alone is None), said(report)
    assert alone is None or any(alone in line for line in said(report)), said(report)
    if with_source is not None:
        (line,) = said(validate_dataset(root, source=source))
        assert with_source in line


def test_a_good_row_declared_rejected(root: Path, source: Path) -> None:
    """The first document of shard 1 is set aside, all counts made to fit."""
    whole = read(root)
    shard = whole["content"]["shards"][0]
    counts, totals = shard["splits"]["train"], whole["content"]["totals"]["splits"]["train"]
    table = pq.read_table(root / "train/shard_00_rows.parquet")
    gone = table.slice(table.num_rows - 1, 1).to_pylist()[0]
    for name, dtype in (("tokens", np.int32), ("lossmask", np.uint8), ("span", np.uint8)):
        data, index = (root / f"train/shard_00_{name}{end}" for end in (".bin", ".idx"))
        np.fromfile(data, dtype=dtype)[: -gone["tokens"]].tofile(data)
        raw, n = index.read_bytes(), table.num_rows
        header = raw[:18] + (n - 1).to_bytes(8, "little") + n.to_bytes(8, "little")
        lengths, pointers, documents = raw[34 : 34 + 4 * (n - 1)], raw[34 + 4 * n : 34 + 12 * n - 8], raw[34 + 12 * n :]
        index.write_bytes(header + lengths + pointers + documents[:-8])
    kept = table.slice(0, table.num_rows - 1)
    pq.write_table(kept, root / "train/shard_00_rows.parquet")
    for part in (counts, totals):
        part["sequences"] -= 1
        part["tokens"] -= gone["tokens"]
        part["fitting"] = {limit: count - 1 for limit, count in part["fitting"].items()}
        part["span_tokens"] = {name: count - gone[f"{name}_tokens"] for name, count in part["span_tokens"].items()}
    counts["longest"] = max(kept["tokens"].to_pylist())
    totals["longest"] = max(one["splits"]["train"]["longest"] for one in whole["content"]["shards"])
    sequences = [split["sequences"] for split in whole["content"]["totals"]["splits"].values()]
    whole["content"]["split"]["realised_valid_fraction"] = sequences[1] / sum(sequences)
    whole["content"]["renderer"]["audited_rows"] = whole["content"]["renderer"]["fallback_rows"] = 1
    (root / "manifest.json").write_text(json.dumps(whole))
    line = {"shard": 0, "row": gone["row"], "synth_id": gone["synth_id"], "reason": "no_messages", "detail": "none"}
    write_rejects(root, sorted([*reject_lines(root), line], key=lambda one: int(one["row"])))
    assert validate_dataset(root).clean, "only the source tells"
    (finding,) = validate_dataset(root, source=source).findings
    assert finding.message == f"source row {gone['row']}: was rejected (no_messages), and nothing is wrong with it"


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 400, b"{", b'{"row":', b"[]\n", b"[" * 100_000, b'{"row": 1}\n', b"\xff\xfe\n", b"\n" * 9],
)
def test_a_rejects_file_that_is_none(root: Path, source: Path, data: bytes) -> None:
    (root / REJECTS).write_bytes(data)
    write(root, read(root))
    for options in ({}, {"source": source}):
        report = validate_dataset(root, **options)
        assert not report.clean
        assert all(finding.check in ("rejects", "source") for finding in report.findings)


def test_a_folder_in_place_of_the_rejects_file(root: Path, source: Path) -> None:
    (root / REJECTS).unlink()
    (root / REJECTS).mkdir()
    report = validate_dataset(root, source=source)
    assert [f.file for f in report.findings if f.check == "inventory"] == [REJECTS]


@pytest.mark.parametrize("kind", ["shorter", "longer", "of another shard", "strings", "nulls"])
def test_a_row_table_that_is_another(root: Path, source: Path, kind: str) -> None:
    table = pq.read_table(root / ROWS)
    match kind:
        case "shorter":
            table = table.slice(0, 3)
        case "longer":
            table = pa.concat_tables([table, table])
        case "of another shard":
            table = pq.read_table(root / "train/shard_00_rows.parquet")
        case "strings":
            table = table.set_column(1, "row", pa.array([str(row) for row in table["row"].to_pylist()]))
        case "nulls":
            table = table.set_column(1, "row", pa.array([None, *table["row"].to_pylist()[1:]], pa.int64()))
    pq.write_table(table, root / ROWS)
    write(root, read(root))
    assert validate_dataset(root, source=source, deep=60).found["rows"]


# --- The source -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("input", "dataset", "other"), "input.dataset is 'other', not 'test'"),
        (put("input", "license", "MIT"), "input.license is 'MIT', not None"),
        (put("input", "shards", 1, "sha256", SHA), f"input.shards[1].sha256 is '{SHA}'"),
        (put("input", "shards", 1, "bytes", 1), "input.shards[1].bytes is 1"),
    ],
)
def test_what_is_said_of_the_source(root: Path, source: Path, edit: Callable[[Json], None], message: str) -> None:
    change(root, edit)
    assert validate_dataset(root).clean
    assert any(message in line for line in said(validate_dataset(root, source=source)))


def test_a_source_that_is_not_what_its_manifest_says(root: Path, source: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(source, tmp_path / "source"))
    shard = changed / "synth_harmony_shard_01.parquet"
    data = bytearray(shard.read_bytes())
    data[200] ^= 1
    shard.write_bytes(data)
    report = validate_dataset(root, source=changed)
    (finding,) = report.findings
    assert (finding.check, finding.file, finding.shard) == ("source", shard.name, 1)
    assert "the source's manifest says" in finding.message
