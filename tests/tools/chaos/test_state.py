"""What is told apart of what is in a folder: whole and false datasets, and files of others that were touched."""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tools.chaos import state


def entry(folder: Path, name: str, data: bytes) -> dict[str, Any]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset of one file, and one of rejects."""
    root = tmp_path / "root"
    files = [entry(root, "train/shard_00_tokens.bin", b"tokens")]
    rejects = entry(root, "rejects/shard_00.jsonl", b"{}\n")
    shard = {"splits": {"train": {"files": files}}, "rejects_file": rejects}
    manifest = {"content": {"family": "any", "shards": [shard]}, "environment": {"created_at": "now"}}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def test_a_whole_dataset_is_whole(root: Path) -> None:
    assert state.false_datasets(root.parent) == []
    assert state.whole_datasets(root.parent) == ["root"]


@pytest.mark.parametrize("name", ["train/shard_00_tokens.bin", "rejects/shard_00.jsonl"])
def test_a_manifest_over_a_file_that_is_gone_or_other_is_false(root: Path, name: str) -> None:
    (root / name).write_bytes(b"other")
    assert state.false_datasets(root.parent) == [f"root/manifest.json: lists {name}, which has other bytes"]
    (root / name).unlink()
    assert state.false_datasets(root.parent) == [f"root/manifest.json: lists {name}, which is missing"]
    assert state.whole_datasets(root.parent) == []


def test_half_a_manifest_is_false(root: Path) -> None:
    whole = (root / "manifest.json").read_bytes()
    (root / "manifest.json").write_bytes(whole[: len(whole) // 2])
    assert state.false_datasets(root.parent) == ["root/manifest.json: cannot be read (JSONDecodeError)"]


def test_manifests_of_sources_and_exports_are_held_against_their_files_too(tmp_path: Path) -> None:
    shard = entry(tmp_path, "synth_harmony_shard_00.parquet", b"rows")
    (tmp_path / "manifest.json").write_text(json.dumps({"storage": {"shards": [shard]}}))
    (tmp_path / "export.json").write_text(json.dumps({"export": "any", "files": [shard]}))
    assert state.false_datasets(tmp_path) == []
    (tmp_path / shard["path"]).unlink()
    assert len(state.false_datasets(tmp_path)) == 2


def test_an_index_stands_beside_its_whole_data_alone(tmp_path: Path) -> None:
    index, data = tmp_path / "shard_00_tokens.idx", tmp_path / "shard_00_tokens.bin"
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2)
    whole = header + struct.pack("<i", 2) + struct.pack("<q", 0) + struct.pack("<2q", 0, 1)
    index.write_bytes(whole)
    assert state.false_indices(tmp_path) == ["shard_00_tokens.idx: stands without its .bin"]
    data.write_bytes(bytes(7))
    assert state.false_indices(tmp_path) == ["shard_00_tokens.idx: stands over a .bin that is not whole"]
    data.write_bytes(bytes(8))
    assert state.false_indices(tmp_path) == []
    index.write_bytes(whole[:-1])
    assert state.false_indices(tmp_path) == ["shard_00_tokens.idx: is not whole"]


def test_trees_differ_by_what_decides_a_dataset_alone(root: Path) -> None:
    before = state.tree(root)
    manifest = json.loads((root / "manifest.json").read_bytes())
    manifest["environment"]["created_at"] = "later"
    (root / "manifest.json").write_text(json.dumps(manifest))
    assert state.difference(before, state.tree(root)) == []
    manifest["content"]["family"] = "other"
    (root / "manifest.json").write_text(json.dumps(manifest))
    (root / "train/shard_00_tokens.bin").unlink()
    (root / "more").mkdir()
    assert state.difference(before, state.tree(root)) == [
        "missing train/shard_00_tokens.bin",
        "other manifest.json",
        "left behind more",
    ]


def test_files_of_others_may_not_change_in_bytes_time_or_kind(tmp_path: Path) -> None:
    names = ["a", "b", "c", "link"]
    for name in names[:3]:
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a")
    before = state.stamps(tmp_path, names)
    assert state.changed(tmp_path, before) == {}
    os.utime(tmp_path / "a", (1, 1))
    (tmp_path / "b").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("c")
    assert state.changed(tmp_path, before) == {"a": "changed", "b": "removed", "link": "changed"}


def test_a_file_that_went_aside_with_the_whole_dataset_did_not_change(tmp_path: Path) -> None:
    (tmp_path / "place/root/mine").mkdir(parents=True)
    (tmp_path / "place/root/mine/a").write_text("a")
    before = state.stamps(tmp_path, ["place/root/mine/a"])
    (tmp_path / "place/root").rename(tmp_path / "place/root.replaced")
    assert state.changed(tmp_path, before, moved_with="place/root") == {}
    assert state.changed(tmp_path, before) == {"place/root/mine/a": "removed"}
