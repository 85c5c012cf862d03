"""Token datasets of samples: validation holds every value to something and finds each fault."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.dataset.manifest import ManifestError
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.table import rows_schema
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.families.toolcalls import dataset as family
from spanloom.families.toolcalls.recipe import LAYOUTS
from spanloom.families.toolcalls.verify.content import NOT_CHECKABLE
from support.nightly import drawn
from support.strange_files import INSTEAD
from support.toolcall_datasets import documents, samples
from support.toolcall_samples import write_samples
from tools.corruption.leaves import leaf_edits
from tools.corruption.trial import ROOT

EOT, EOD = "<|eot_id|>", "<|end_of_text|>"


def test_the_samples_are_the_source(built: Path, data: Path, tmp_path: Path) -> None:
    for name in ("harmful", "retain"):
        report = validate_dataset(built / name, family, source=data, deep=100)
        assert report.clean, report.as_dict()
        assert report.as_dict()["checked"]["samples rendered again"] >= 12
    other = write_samples(tmp_path / "other.jsonl", samples()[1:])
    assert "another" not in str(validate_dataset(built / "retain", family, source=data, deep=1).as_dict()["findings"])
    found = validate_dataset(built / "retain", family, source=other, deep=1).as_dict()["found"]
    assert found == {"source": 1}


def test_every_value_of_the_manifest_is_held_to_something(built: Path, data: Path, tmp_path: Path) -> None:
    """Each leaf edited alone, and with the rest made to fit; but those of which `NOT_CHECKABLE` says why."""
    for name in ("harmful", "retain"):
        root = tmp_path / ROOT
        shutil.copytree(built / name, root)
        whole = json.loads((root / "manifest.json").read_bytes())
        edits = [
            edit for edit in leaf_edits(whole) if edit.why is None and edit.name.split(":")[0] not in NOT_CHECKABLE
        ]
        assert len(edits) > 100
        unfound = []
        for edit in edits[:: drawn(nightly=1, otherwise=7)]:
            (root / "manifest.json").write_text(json.dumps(whole))
            edit.apply(tmp_path)
            try:
                clean = validate_dataset(root, family, source=data, deep=2).clean
            except ManifestError:
                clean = False
            if clean:
                unfound.append(str(edit))
        assert unfound == []
        shutil.rmtree(root)


def test_every_value_of_the_rows_is_held_to_something(built: Path, data: Path, tmp_path: Path) -> None:
    """Each column of the row table edited in one row, the manifest made to fit the file."""
    others = {"source": "x", "subtype": "borderline", "sample_id": "x"}
    for number, field in enumerate(rows_schema(family.ROW_SCHEMA, LAYOUTS["answer"].span_names)):
        root = tmp_path / str(number)
        shutil.copytree(built / "retain", root)
        path = rows_file(root, "train", 0)
        table = pq.read_table(path)
        column = table.column(field.name).to_pylist()
        last = column[-1]
        if field.name in others:
            column[-1] = others[field.name]
        else:
            column[-1] = not last if isinstance(last, bool) else last + 1
        table = table.set_column(table.schema.get_field_index(field.name), field, pa.array(column, field.type))
        pq.write_table(table, path)
        whole = json.loads((root / "manifest.json").read_bytes())
        listed = whole["content"]["shards"][0]["splits"]["train"]["files"]
        entry = next(one for one in listed if one["path"].endswith("rows.parquet"))
        entry["bytes"], entry["sha256"] = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
        (root / "manifest.json").write_text(json.dumps(whole))
        found = validate_dataset(root, family, source=data, deep=100).as_dict()["found"]
        assert found, field.name
        assert "inventory" not in found, found


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"labels": {"split": "retain"}}', "[" * 5000, '{"labels": 1}'])
def test_a_damaged_source_is_a_finding(built: Path, data: Path, tmp_path: Path, line: str) -> None:
    """Even where the manifest was made to name the damaged file."""
    root = tmp_path / "root"
    shutil.copytree(built / "retain", root)
    lines_of_data = data.read_text().splitlines(keepends=True)
    first = next(at for at, one in enumerate(lines_of_data) if '"split": "retain"' in one)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("".join([*lines_of_data[:first], line + "\n", *lines_of_data[first + 1 :]]))
    whole = json.loads((root / "manifest.json").read_bytes())
    (entry,) = whole["content"]["input"]["shards"]
    entry["bytes"], entry["sha256"] = damaged.stat().st_size, hashlib.sha256(damaged.read_bytes()).hexdigest()
    (root / "manifest.json").write_text(json.dumps(whole))
    assert validate_dataset(root, family, source=damaged, deep=100).as_dict()["found"]["source"] >= 1


@pytest.mark.parametrize("name", ["chat_template.jinja", "tool_registries.json", "tokenizer.json"])
@pytest.mark.parametrize("instead", [None, *(each for each in INSTEAD if "8 GiB" not in each)])  # minutes to hash
def test_another_thing_in_place_of_what_the_root_carries_is_found(
    built: Path, data: Path, tmp_path: Path, name: str, instead: str | None
) -> None:
    root = tmp_path / "root"
    shutil.copytree(built / "retain", root)
    (root / name).unlink()
    if instead is not None:
        INSTEAD[instead](root / name)
    assert validate_dataset(root, family, source=data, deep=2).as_dict()["found"]["inventory"] == 1


FAULTS = {
    "shift": ("lossmask", lambda mask, ends: mask.__setitem__(ends - 1, 1)),
    "eod": ("tokens", lambda tokens, ends: tokens.__setitem__(ends - 1, 9)),
    "ids": ("tokens", lambda tokens, _: tokens.__setitem__(0, 1_000_000)),
    "values": ("lossmask", lambda mask, _: mask.__setitem__(0, 2)),
    "mask": ("lossmask", lambda mask, ends: mask.__setitem__(slice(0, ends), 0)),
}


@pytest.mark.parametrize("check", FAULTS)
def test_validation_finds_what_is_wrong_in_documents(built: Path, tmp_path: Path, check: str) -> None:
    root = tmp_path / "root"
    shutil.copytree(built / "retain", root)
    name, spoil = FAULTS[check]
    path = root / f"train/shard_00_{name}.bin"
    values_on_disk = np.fromfile(path, np.int32 if name == "tokens" else np.uint8)
    spoil(values_on_disk, len(documents(root, "train")[0][0]))
    values_on_disk.tofile(path)
    assert check in validate_dataset(root, family).as_dict()["found"]


def test_a_mask_that_is_shifted_is_found_against_the_source(built: Path, data: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(built / "harmful", root)
    path = root / "train/shard_00_lossmask.bin"
    np.roll(np.fromfile(path, np.uint8), -1).tofile(path)
    found = validate_dataset(root, family, source=data, deep=100).as_dict()["found"]
    assert found["source"] >= 1
