"""Rows for Megatron-Bridge: every label that is trained on disk is trained by its reader, once, and no other."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.dataset.export import bridge_rows
from spanloom.dataset.export.bridge_rows import RowCounts, RowPacker
from spanloom.dataset.root.layout import open_arrays
from spanloom.errors import DatasetError
from support.cases import REPOSITORY
from support.chat_datasets import packed as packed_chat
from support.each import each
from support.nightly import drawn
from support.requirements import BRIDGE, absent

EOD = 9
Row = dict[str, list[int]]
Trained = tuple[int, int]
"""What a trained label is: the tokens before it in its part, as a hash, and itself."""


def prefixes(tokens: list[int]) -> Iterator[int]:
    """A hash of the tokens up to each."""
    value = 0
    for token in tokens:
        value = hash((value, token))
        yield value


def packed(
    documents: list[tuple[list[int], list[int]]],
    length: int,
    *,
    drop: bool = False,
    padding: list[int] | None = None,
    blocks: bool = False,
) -> tuple[list[Row], RowCounts]:
    """Rows of documents, each its tokens and its mask as on disk; `blocks`: of packed blocks."""
    counts = RowCounts()
    cut_behind = EOD if blocks else None
    packer = RowPacker(sequence_length=length, cut_behind=cut_behind, drop_too_long=drop, counts=counts)
    arrays = {
        "tokens": np.array([token for tokens, _ in documents for token in tokens], np.int32),
        "lossmask": np.array([flag for _, mask in documents for flag in mask], np.uint8),
    }
    lengths = np.array([len(tokens) for tokens, _ in documents], np.int32)
    batches = list(packer.add(lengths, arrays, None if padding is None else np.array(padding, np.int64)))
    batches += packer.finish()
    return [row for batch in batches for row in batch.to_pylist()], counts


def trained_of_row(row: Row) -> Iterator[Trained]:
    """As Bridge's collation takes a row apart: of each part all but the last are inputs, all but the first labels."""
    for start, stop in pairwise([*row["seq_start_id"], len(row["input_ids"])]):
        tokens = row["input_ids"][start:stop]
        for at, (before, flag) in enumerate(zip(prefixes(tokens), row["loss_mask"][start : stop - 1], strict=False)):
            if flag:
                yield before, tokens[at + 1]


def test_documents_lie_end_to_end_with_the_mask_of_the_disk() -> None:
    rows, counts = packed([([1, 2, 3, EOD], [0, 1, 1, 0]), ([4, 5, EOD], [1, 1, 0]), ([6, EOD], [1, 0])], 8)
    assert rows == [
        {"input_ids": [1, 2, 3, EOD, 4, 5, EOD], "loss_mask": [0, 1, 1, 0, 1, 1, 0], "seq_start_id": [0, 4]},
        {"input_ids": [6, EOD], "loss_mask": [1, 0], "seq_start_id": [0]},
    ]
    assert (counts.documents, counts.rows, counts.tokens, counts.trained, counts.parts) == (3, 2, 9, 5, 3)
    assert counts.metadata(8) == {
        "dataset_max_seqlen": 4, "max_samples_per_bin": 2, "packing_factor": 1.5, "packing_efficiency": 56.25,
        "pack_size": 8, "min_packed_seqlen": 2,
    }  # fmt: skip


def test_a_document_goes_into_the_first_row_that_has_room() -> None:
    sizes = [5, 4, 3, 2, 6]
    rows, _ = packed([([number] * size, [0] * size) for number, size in enumerate(sizes)], 8)
    assert [row["input_ids"] for row in rows] == [[0] * 5 + [2] * 3, [1] * 4 + [3] * 2, [4] * 6]


def test_a_block_is_cut_at_its_conversations_unless_the_label_behind_is_trained() -> None:
    block = [1, EOD, 2, 3, EOD, EOD, 4, 0]
    rows, _ = packed([(block, [1, 0, 1, 1, 0, 0, 0, 0])], 8, padding=[1], blocks=True)
    assert rows == [{"input_ids": block[:-1], "loss_mask": [1, 0, 1, 1, 0, 0, 0], "seq_start_id": [0, 2, 5, 6]}]
    rows, _ = packed([(block, [1] * 7 + [0])], 8, blocks=True)
    assert rows == [{"input_ids": block, "loss_mask": [1] * 7 + [0], "seq_start_id": [0]}], "plainly packed"


def test_a_document_whose_answers_end_in_eod_is_one_part() -> None:
    """As DeepSeek's: BOS, question, answer EOD, question, answer EOD. The second answer keeps its history and BOS."""
    tokens, mask = [1, 2, 3, EOD, 4, 5, EOD, EOD], [0, 1, 1, 0, 1, 1, 0, 0]
    rows, counts = packed([(tokens, mask), ([6, EOD], [1, 0])], 16)
    assert rows == [{"input_ids": [*tokens, 6, EOD], "loss_mask": [*mask, 1, 0], "seq_start_id": [0, 8]}]
    assert (counts.parts, counts.longest_part, counts.most_parts) == (2, 8, 2)


def test_a_document_longer_than_a_row_stops_or_is_counted() -> None:
    documents = [([1] * 9, [1] * 8 + [0]), ([2, EOD], [1, 0])]
    with pytest.raises(DatasetError, match=r"has 9 tokens, a row holds 8(?s:.*)--too-long drop"):
        packed(documents, 8)
    rows, counts = packed(documents, 8, drop=True)
    assert [row["input_ids"] for row in rows] == [[2, EOD]]
    assert (counts.documents, counts.dropped_documents, counts.dropped_tokens) == (2, 1, 9)


documents_ = st.lists(
    st.lists(st.tuples(st.integers(1, EOD), st.booleans()), min_size=1, max_size=20).map(
        lambda pairs: ([token for token, _ in pairs], [*(int(flag) for _, flag in pairs[:-1]), 0])
    ),
    max_size=150,
)


@settings(max_examples=drawn(200, 30))
@given(documents_, st.integers(20, 60), st.booleans())
def test_every_trained_label_is_trained_once_and_no_other(
    documents: list[tuple[list[int], list[int]]], length: int, blocks: bool
) -> None:
    rows, counts = packed(documents, length, blocks=blocks)
    assert blocks or counts.parts == len(documents)
    whole = Counter(tokens[at + 1] for tokens, mask in documents for at, flag in enumerate(mask) if flag)
    found = [one for row in rows for one in trained_of_row(row)]
    assert Counter(label for _, label in found) == whole
    assert counts.trained == whole.total()
    assert all(0 < len(row["input_ids"]) <= length for row in rows)
    assert sorted(token for row in rows for token in row["input_ids"]) == sorted(t for one, _ in documents for t in one)
    starts = [[0, *row["seq_start_id"]] for row in rows]
    assert all(
        one[1] == 0 and one == sorted(one) and one[-1] < len(row["input_ids"])
        for one, row in zip(starts, rows, strict=True)
    )
    assert counts.tokens == sum(len(tokens) for tokens, _ in documents)


# What Bridge's own reader makes of an export


@pytest.fixture(scope="session")
def bridge() -> Path:
    """A checkout of NVIDIA-NeMo/Megatron-Bridge; not part of the repository, and not to be installed on this Python."""
    path = Path(os.environ.get("SPANLOOM_MEGATRON_BRIDGE") or REPOSITORY.parent / "Megatron-Bridge")
    if not (path / "src/megatron/bridge").is_dir():
        absent(BRIDGE, f"{path} is not there")
    return path.resolve()


def trained_on_disk(root: Path, split: str) -> Counter[Trained]:
    """What the dataset's own arrays train: the tokens of the document, or of its conversation, and the label."""
    content = manifest.read(root).content
    found: Counter[Trained] = Counter()
    for shard in content.shards:
        if not shard.splits[split].sequences:
            continue
        for _, lengths, arrays in open_arrays(root, split, shard.shard, content.arrays).batches(1 << 20):
            begin = 0
            for length in lengths.tolist():
                tokens = arrays["tokens"][begin : begin + length].tolist()
                mask = arrays["lossmask"][begin : begin + length].tolist()
                before = 0
                for at, flag in enumerate(mask):
                    before = hash((before, tokens[at]))
                    if flag:
                        found[before, tokens[at + 1]] += 1
                    elif tokens[at] == content.tokenizer.eod:
                        before = 0
                begin += length
    return found


def trained_by_bridge(row: dict[str, Any]) -> Iterator[Trained]:
    """What a collated row of Bridge trains: a sequence begins where positions begin again."""
    before = 0
    for token, label, flag, position in zip(
        row["tokens"], row["labels"], row["loss_mask"], row["position_ids"], strict=True
    ):
        before = hash((before if position else 0, token))
        if flag:
            yield before, label


def read_by_bridge(bridge: Path, folder: Path, length: int, out: Path) -> list[dict[str, Any]]:
    script = REPOSITORY / "tests/support/bridge_reader.py"
    done = subprocess.run([sys.executable, script, bridge, folder, str(length), out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(out.read_text())
    return rows


def test_bridge_reads_conversations_as_they_are_trained_on_disk(
    demo: Path, bridge: Path, tmp_path: Path, cli: Cli
) -> None:
    options = ("--to", "megatron-bridge", "--sequence-length", 2048, "--too-long", "drop")
    done = cli("export", demo, *options, "--out", tmp_path / "out", "--json", "-q")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for split in ("train", "valid"):
        wanted = trained_on_disk(demo, split)
        for file in (tmp_path / "out" / split).iterdir():
            assert file.name.endswith(".idx.parquet")
        rows = read_by_bridge(bridge, tmp_path / "out" / split, 2048, tmp_path / f"{split}.json")
        found = Counter(one for row in rows for one in trained_by_bridge(row))
        counts = said["packed"][split]
        assert (len(rows), found.total()) == (counts["rows"], counts["trained"])
        assert not found - wanted
        assert (found == wanted) == (counts["dropped_documents"] == 0)
        assert counts["documents"] - counts["dropped_documents"] == counts["parts"]


@each("options", [{}, {"pad_tail": True}, {"post_training": False}])
def test_bridge_reads_packed_chat_as_it_is_trained_on_disk(
    bridge: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli, options: dict[str, Any]
) -> None:
    tmp_path = tmp_path_factory.mktemp("packed")
    root = packed_chat(tmp_path, **options).root
    done = cli("export", root, "--to", "megatron-bridge", "--out", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    rows = read_by_bridge(bridge, tmp_path / "out/train", 64, tmp_path / "rows.json")
    assert len(rows) == manifest.read(root).content.totals.sequences
    assert Counter(one for row in rows for one in trained_by_bridge(row)) == trained_on_disk(root, "train")


def test_the_schema_is_the_one_that_bridge_writes(demo: Path, tmp_path: Path, cli: Cli) -> None:
    """`input_ids` list<int32>, `loss_mask` list<int8>, `seq_start_id` list<int32>: what its documentation demands."""
    with_default = cli("export", demo, "--to", "megatron-bridge", "--out", tmp_path / "none")
    assert with_default.returncode == 1
    assert "--too-long drop" in with_default.stderr
    assert not (tmp_path / "none").exists()
    done = cli("export", demo, "--to", "megatron-bridge", "--sequence-length", 20_000, "--out", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    for split in ("train", "valid"):
        rows = [row for path in (tmp_path / "out" / split).iterdir() for row in pq.read_table(path).to_pylist()]
        assert Counter(one for row in rows for one in trained_of_row(row)) == trained_on_disk(demo, split)
    (schema,) = {pq.read_schema(path) for path in (tmp_path / "out/train").iterdir()}
    kinds = {field.name: str(field.type.value_type) for field in schema}
    assert kinds == {"input_ids": "int32", "loss_mask": "int8", "seq_start_id": "int32"}
    assert bridge_rows.SCHEMA.names == schema.names
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    said = json.loads((tmp_path / "out/export.json").read_bytes())["packed"]
    assert {name: split.num_rows for name, split in loaded.items()} == {
        "train": said["train"]["rows"],
        "validation": said["valid"]["rows"],
    }
    metadata = json.loads((tmp_path / "out/packed_metadata.json").read_bytes())
    assert [split["pack_size"] for split in metadata] == [20_000, 20_000]
    less = cli("export", demo, "--to", "megatron-bridge", "--too-long", "drop", "--out", tmp_path / "less")
    longest = manifest.read(demo).content.totals.splits
    assert sum(1 for one in longest.values() if one.longest > 8192) == 2
    assert re.search(r"left out: \d+ documents of more than 8,192 tokens, [\d,]+ tokens in all", less.stdout), (
        less.stdout
    )
    assert "documents longer than a row were left out" in (tmp_path / "less/README.md").read_text()
    refused = cli("export", demo, "--to", "trl", "--sequence-length", 512, "--out", tmp_path / "trl")
    assert refused.returncode == 2
    assert "rows are packed by --to megatron-bridge" in refused.stderr
