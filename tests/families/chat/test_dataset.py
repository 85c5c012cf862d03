"""Validation of packed chat finds what is wrong, where it is, and nothing else. Files that are changed here are listed
anew, so that no finding comes of their hash alone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.dataset.manifest import ManifestError, check, read
from spanloom.dataset.split_writer import SplitWriter
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.families.chat import dataset as family
from spanloom.findings import Report
from spanloom.provenance import sha256_json
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


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    assert packed(folder, pad_tail=True).report.clean
    return folder


@pytest.fixture
def dataset(clean: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(clean, tmp_path, dirs_exist_ok=True))


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
    labels = np.fromfile(dataset / "dataset" / MASK, dtype="uint8")
    trained = np.flatnonzero(labels[64 * 3 :]) + 64 * 3 + 1
    at = int(trained[tokens[trained] > 10][2])
    block = at // 64
    poke(path, "int32", at, int(tokens[at]) - 1 if tokens[at] > 20 else int(tokens[at]) + 1)
    relisted(dataset / "dataset")
    assert revalidated(dataset).clean  # it is an ordinary token: nobody can tell without the source
    for deep in (0, 3, 4):  # the text of all blocks is compared
        report = revalidated(dataset, source=dataset / "transcripts.jsonl", deep=deep)
        assert found(report) == {("source", 1, block, at % 64)}
    poke(path, "int32", at, 5000)
    relisted(dataset / "dataset")
    assert found(revalidated(dataset)) == {("ids", 1, block, at % 64)}


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
    assert {sequence for _, _, sequence, _ in places} <= {4, 5, None}  # the next one follows from it


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


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda content: content["config"].update(shards=3), "config.shards is 3, not 2"),
        (lambda content: content["config"].update(input_schema="x"), "config.input_schema is 'x'"),
        (lambda content: content["config"].update(pad_tail=5), "config.pad_tail is 5, not 0"),
        (lambda content: content["config"].update(tokenizer_sha256="ab" * 32), "config.tokenizer_sha256 is"),
        (lambda content: content["config"].update(more=1), "config.more is 1, not None"),
        (lambda content: content["config"]["markers"]["eos"].update(text="<|END|>"), "config.markers.eos.text is"),
        (lambda content: content["config"]["markers"]["eos"].update(id=2), "not all different and below"),
        (lambda content: content["tokenizer"].update(eod=0), "tokenizer.eod is 0, the marker EOS is 1"),
        (lambda content: content["tokenizer"].update(name="o200k_chat"), "tokenizer.vocab_size is"),
        (lambda content: content["input"].update(schema_version="x"), "input.schema_version is 'x'"),
        (lambda content: content["input"].update(license="MIT"), "has none"),
        (lambda content: content["input"]["shards"][0].update(rows=70), "35 of the 70 rows of the input"),
        (lambda content: content.update(span_names=["context", "answer"]), "span_names is ['context', 'answer']"),
        (lambda content: content["shards"][1].update(shard=0), "the shards are numbered [0, 0]"),
        (lambda content: content["shards"][0]["packing"].update(loss_tokens=7), "loss_tokens is"),
        (lambda content: content["shards"][0]["packing"].update(injected_blocks=99), "injected_blocks is"),
        (lambda content: content["shards"][0]["packing"].update(dropped_blocks=1), "dropped_blocks is 1"),
        (lambda content: content["shards"][0]["packing"].update(stops=0), "stops is 0"),
        (lambda content: content["shards"][0]["splits"]["train"].update(longest=65), "longest is 65"),
        (lambda content: content["shards"][0]["rejected"].update(unreadable=99), "rejected is {'unreadable': 99}"),
    ],
)
def test_what_a_manifest_says_falsely_is_found(
    dataset: Path, edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    relisted(dataset / "dataset", edit)
    messages = [finding.message for finding in revalidated(dataset).findings]
    assert any(message in line for line in messages), messages


@pytest.mark.parametrize(
    ("edit", "alone"),
    [
        (
            lambda packing: packing.update(
                tokens_in=packing["tokens_in"] + 5, tokens_given_up=packing["tokens_given_up"] + 5
            ),
            set(),
        ),
        (lambda packing: packing.update(stops=packing["stops"] + 1), {"manifest"}),
    ],
)
def test_counts_of_the_stream_are_found_by_packing_all_of_it_again(
    dataset: Path, edit: Callable[[dict[str, int]], object], alone: set[str]
) -> None:
    def change(content: dict[str, Any]) -> None:
        edit(content["shards"][0]["packing"])
        content["totals"]["packing"] = {
            name: sum(shard["packing"][name] for shard in content["shards"]) for name in content["totals"]["packing"]
        }

    relisted(dataset / "dataset", change)
    assert {finding.check for finding in revalidated(dataset).findings} == alone
    for deep in (0, 3, 10_000):
        report = revalidated(dataset, source=dataset / "transcripts.jsonl", deep=deep)
        assert {finding.check for finding in report.findings} == {"source", *alone}
        messages = [finding.message for finding in report.findings if finding.check == "source"]
        assert all("packing the source again gives" in message for message in messages)


@pytest.mark.parametrize("options", [{"keep_lossless": False}, {"strict_user": False}, {"post_training": False}])
@pytest.mark.parametrize("pad_tail", [False, True])
def test_counts_of_every_way_to_pack_are_right(tmp_path: Path, options: dict[str, bool], pad_tail: bool) -> None:
    assert packed(tmp_path, pad_tail=pad_tail, deep=10_000, **options).report.clean


def test_what_a_record_is_cannot_be_said_of_files_without_lines(dataset: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["config"]["records"] = "eos"
        content["config_sha256"] = sha256_json(content["config"])

    relisted(dataset / "dataset", change)
    (finding,) = revalidated(dataset).findings
    assert "config.records is 'eos'" in finding.message


def test_a_last_block_of_one_token_carries_loss_where_all_tokens_do(tmp_path: Path) -> None:
    """That token is the label of none, so no label of the block is trained; the stream counts tokens."""
    settings = {"pad_tail": True, "shards": 1, "post_training": False, "deep": 100}
    tokens = packed(tmp_path, **settings).manifest.content.totals.packing["tokens_in"]
    size = next(size for size in range(16, 400) if tokens % size == 1)
    assert packed(tmp_path, name="one", block_size=size, **settings).report.clean


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda file: file.update(path="other.jsonl"), "input.shards[0].path is 'other.jsonl'"),
        (lambda file: file.update(bytes=1), "input.shards[0].bytes is 1"),
    ],
)
def test_what_is_said_of_the_transcripts_is_held_against_them(
    dataset: Path, edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    relisted(dataset / "dataset", lambda content: edit(content["input"]["shards"][0]))
    assert revalidated(dataset).clean
    (finding,) = revalidated(dataset, source=dataset / "transcripts.jsonl").findings
    assert message in finding.message


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
