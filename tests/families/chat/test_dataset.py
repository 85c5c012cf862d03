"""Validation of packed chat finds what is wrong, where it is, and nothing else. Files that are changed here are listed
anew, so that no finding comes of their hash alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.dataset.manifest import ManifestError, check, read
from spanloom.dataset.split_writer import SplitWriter
from spanloom.dataset.validate import validate_dataset
from spanloom.families.chat import dataset as family
from spanloom.findings import Report
from spanloom.steps.validate_alignment import validate_alignment
from spanloom.storage import sha256_file
from support.chat_datasets import packed, transcripts, write_transcripts

TOKENS, MASK, ROWS = (f"train/shard_01_{name}" for name in ("tokens.bin", "lossmask.bin", "rows.parquet"))


def revalidated(folder: Path, **options: Any) -> Report:
    return validate_dataset(folder / "dataset", family, tokenizer=folder / "tokenizer.json", **options)


def relisted(root: Path, change: Callable[[dict[str, Any]], object] = bool) -> None:
    """The manifest says what the files are now, and what `change` makes of it."""
    whole = json.loads((root / "manifest.json").read_bytes())
    splits = (counts for shard in whole["content"]["shards"] for counts in shard["splits"].values())
    for file in (file for counts in splits for file in counts["files"]):
        file["bytes"], file["sha256"] = (root / file["path"]).stat().st_size, sha256_file(root / file["path"])
    change(whole["content"])
    (root / "manifest.json").write_text(json.dumps(whole))


def poke(path: Path, dtype: str, offset: int, value: int) -> None:
    values = np.fromfile(path, dtype=dtype)
    assert values[offset] != value
    values[offset] = value
    values.tofile(path)


def found(report: Report) -> set[tuple[str, int | None, int | None, int | None]]:
    return {(finding.check, finding.shard, finding.sequence, finding.offset) for finding in report.findings}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    result = packed(tmp_path, pad_tail=True)
    assert result.report.clean
    return tmp_path


def test_a_clean_dataset_is_clean_alone_and_with_its_source(dataset: Path) -> None:
    alone = revalidated(dataset)
    assert alone.clean
    assert alone.checked["documents"] == read(dataset / "dataset").content.totals.splits["train"].sequences
    deep = revalidated(dataset, source=dataset / "transcripts.jsonl", deep=10_000)
    assert deep.clean
    assert deep.checked["blocks packed again"] == deep.checked["documents"]


@pytest.mark.parametrize("offset", [0, 64 * 5 + 17, 64 * 7 + 63])
def test_a_flipped_label_is_found_at_its_place(dataset: Path, offset: int) -> None:
    mask = dataset / "dataset" / MASK
    poke(mask, "uint8", offset, 1 - int(np.fromfile(mask, dtype="uint8")[offset]))
    report = revalidated(dataset)
    assert report.found["inventory"] == 1
    assert ("loss_mask", 1, offset // 64, offset % 64) in found(report)
    relisted(dataset / "dataset")
    places = found(revalidated(dataset))
    assert ("loss_mask", 1, offset // 64, offset % 64) in places
    assert ("rows", 1, offset // 64, None) in places
    assert {check for check, *_ in places} <= {"loss_mask", "rows", "manifest", "shift"}
    assert (("shift", 1, offset // 64, 63) in places) == (offset % 64 == 63)


def test_a_loss_mask_that_was_not_shifted_is_found(dataset: Path) -> None:
    path = dataset / "dataset" / MASK
    labels = np.fromfile(path, dtype="uint8").reshape(-1, 64)
    tokens = np.zeros_like(labels)
    tokens[:, 1:] = labels[:, :-1]
    tokens.tofile(path)
    relisted(dataset / "dataset")
    assert revalidated(dataset).found["loss_mask"] > 20


def test_a_changed_token_is_found_by_packing_again_and_one_that_is_no_id_without(dataset: Path) -> None:
    path = dataset / "dataset" / TOKENS
    tokens = np.fromfile(path, dtype="int32")
    at = 64 * 3 + int(np.flatnonzero(tokens[64 * 3 : 64 * 4] > 10)[5])
    poke(path, "int32", at, int(tokens[at]) - 1 if tokens[at] > 20 else int(tokens[at]) + 1)
    relisted(dataset / "dataset")
    assert revalidated(dataset).clean  # it is an ordinary token: nobody can tell without the source
    deep = revalidated(dataset, source=dataset / "transcripts.jsonl", deep=4)
    assert found(deep) == {("source", 1, 3, at % 64)}
    assert revalidated(dataset, source=dataset / "transcripts.jsonl", deep=3).clean  # the fourth was not asked for
    poke(path, "int32", at, 5000)
    relisted(dataset / "dataset")
    assert found(revalidated(dataset)) == {("ids", 1, 3, at % 64)}


def test_blocks_in_another_order_are_found(dataset: Path) -> None:
    root = dataset / "dataset"
    for name, dtype in ((TOKENS, "int32"), (MASK, "uint8")):
        values = np.fromfile(root / name, dtype=dtype).reshape(-1, 64)
        values[[2, 3]] = values[[3, 2]]
        values.tofile(root / name)
    relisted(root)
    report = revalidated(dataset, source=dataset / "transcripts.jsonl", deep=10)
    assert {sequence for check, _, sequence, _ in found(report) if check == "source"} == {2, 3}


@pytest.mark.parametrize(
    ("column", "check"),
    [
        ("sequence", "rows"),
        ("tokens", "rows"),
        ("context_tokens", "rows"),
        ("assistant_tokens", "rows"),
        ("conversations", "rows"),
        ("injected_tokens", "injected"),
        ("padding_tokens", "rows"),
    ],
)
def test_rows_that_tell_otherwise_are_found(dataset: Path, column: str, check: str) -> None:
    path = dataset / "dataset" / ROWS
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[4] += 1
    pq.write_table(
        table.set_column(table.schema.names.index(column), table.schema.field(column), pa.array(values)), path
    )
    relisted(dataset / "dataset")
    places = found(revalidated(dataset))
    assert (check, 1, 4, None) in places
    assert {sequence for _, _, sequence, _ in places} <= {4, None}


def test_rows_that_are_missing_or_too_many_are_found(dataset: Path) -> None:
    path = dataset / "dataset" / ROWS
    table = pq.read_table(path)
    for changed in (table.slice(0, table.num_rows - 1), pa.concat_tables([table, table.slice(0, 1)])):
        pq.write_table(changed, path)
        relisted(dataset / "dataset")
        assert {check for check, *_ in found(revalidated(dataset))} >= {"rows"}


def test_blocks_of_another_length_are_found(dataset: Path) -> None:
    root = dataset / "dataset"
    for path in root.glob("train/shard_01_*"):
        path.unlink()
    rows = pa.record_batch(
        {name: pa.array([0, 0], pa.int64()) for name in ("injected_tokens", "padding_tokens", "conversations")}
    )
    lengths = np.array([64, 60], dtype=np.int32)
    arrays = {"tokens": np.full(124, 100, dtype=np.int32), "lossmask": np.zeros(124, dtype=np.uint8)}
    with SplitWriter(
        root, "train", 1, arrays={"tokens": "int32", "lossmask": "uint8"}, span_names=("context", "assistant"),
        about=rows.schema,
    ) as writer:  # fmt: skip
        writer.append_arrays(lengths, arrays)
        writer.append_rows(rows, lengths, np.array([[64, 0], [60, 0]]))
        writer.publish()
    relisted(root)
    assert ("block_size", 1, 1, None) in found(revalidated(dataset, source=dataset / "transcripts.jsonl", deep=2))


@pytest.mark.parametrize(
    "name", ["tokens_in", "injected_tokens", "padding_tokens", "tokens_given_up", "blocks", "lossless_blocks"]
)
def test_counts_that_do_not_fit_are_found(dataset: Path, name: str) -> None:
    def change(content: dict[str, Any]) -> None:
        content["shards"][1]["packing"][name] += 1

    relisted(dataset / "dataset", change)
    places = {("manifest", 1, None, None), ("manifest", None, None, None)}  # the shard, and the totals of all
    assert found(revalidated(dataset)) == places


def test_totals_that_are_no_sums_are_found(dataset: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["totals"]["packing"]["stops"] += 1

    relisted(dataset / "dataset", change)
    (finding,) = revalidated(dataset).findings
    assert finding.message.startswith("stops is")


def test_another_source_is_told_apart(dataset: Path) -> None:
    write_transcripts(dataset / "transcripts.jsonl", transcripts(61))
    report = revalidated(dataset, source=dataset / "transcripts.jsonl", deep=3)
    assert report.found == {"source": 1}
    assert "another source" in report.findings[0].message


def test_only_a_clean_validation_promotes(dataset: Path) -> None:
    root = dataset / "dataset"
    (root / "manifest.json").rename(root / "manifest.pending.json")
    poke(root / MASK, "uint8", 64 * 5 + 63, 1)
    assert not validate_alignment(root=root, family=family).clean
    assert not (root / "manifest.json").exists()
    poke(root / MASK, "uint8", 64 * 5 + 63, 0)
    assert validate_alignment(root=root, family=family).clean
    assert (root / "manifest.json").exists()
    assert not (root / "manifest.pending.json").exists()


@pytest.mark.parametrize("missing", ["block_size", "post_training", "strict_user", "pad_tail", "markers"])
def test_a_manifest_of_this_family_says_by_what_it_was_packed(dataset: Path, missing: str) -> None:
    whole = read(dataset / "dataset").as_dict()
    assert "split" not in whole["content"]
    del whole["content"]["config"][missing]
    with pytest.raises(ManifestError, match=f"content.config: '{missing}'"):
        check(whole, dataset)


def test_a_manifest_of_another_family_still_needs_split_and_renderer(dataset: Path) -> None:
    whole = read(dataset / "dataset").as_dict()
    with pytest.raises(ManifestError, match="at content: 'split' is a required property"):
        check({**whole, "content": {**whole["content"], "family": "synth_kd"}}, dataset)
    for shard in whole["content"]["shards"]:
        del shard["packing"]
    with pytest.raises(ManifestError, match="'packing' is a required property"):
        check(whole, dataset)
