"""The steps over a bucket make what the commands make on one machine; what was published is not published otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.building.steps import StepTask
from spanloom.dataset import manifest
from spanloom.dataset.fetch import fetch
from spanloom.errors import ConflictError
from spanloom.families import dataset_family
from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.export.lines import FORMATS, ExportOptions, export_lines
from spanloom.families.traces.recipe import TokenizeRules
from spanloom.families.traces.sample import run as sample
from spanloom.families.traces.steps import (
    build_traces,
    export_traces,
    ingest_traces,
    tokenize_traces,
    validate_traces,
)
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from spanloom.steps import validate_alignment
from spanloom.storage.staging import read_object
from support.nightly import nightly
from support.object_stores import Place

BEGAN = "2026-01-01T00:00:00Z"
WANTED = BuildRequest(dataset_name="d", dataset_version="1", limit=40, selection_strategy="random", seed=7)
RULES = TokenizeRules(valid_fraction=0.2)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The same by functions alone: a store, a dataset, exports, tokens."""
    root = tmp_path / "host"
    sample(out=str(root / "sample.jsonl"), traces=60, tokenizer=str(root / "tokenizer.json"))
    store = open_store(default_url(root), create=True)
    ingest_file(store, root / "sample.jsonl", source_name="s", created_at=timestamps.given(BEGAN))
    dataset, _ = build_dataset(store, root, WANTED, reproducible=True)
    for form in FORMATS:
        with store.snapshot() as snapshot:
            lines = export_lines(snapshot, dataset.ids, form, ExportOptions())
            (root / f"{form}.jsonl").write_bytes(b"".join(lines))
    options = TokenBuildOptions(
        root=root,
        key="d-1",
        tokenizer=root / "tokenizer.json",
        out=root / "tokens",
        rules=RULES,
        allow_unknown_sha=True,
    )
    assert build_tokens(store, options).report.clean
    store.close()
    return root


@pytest.mark.parametrize("place", [nightly("gs"), "s3"], indirect=True)
def test_steps_over_a_bucket_make_what_one_machine_makes(tmp_path: Path, place: Place, host: Path) -> None:
    at = place.uri
    source, tokenizer = str(at / "sample.jsonl"), str(at / "tokenizer.json")
    store, made, root = str(at / "run/store.sqlite"), str(at / "run/manifest.json"), str(at / "tokens")
    sample(out=source, traces=60, tokenizer=tokenizer)
    said = ingest_traces.run(source=source, store=store, source_name="s", created_at=BEGAN)
    assert said["ingested_count"] == 60
    build_traces.run(store=store, manifest=made, request=WANTED)
    assert read_object(at / "run/manifest.json") == (host / "datasets/d-1/manifest.json").read_bytes()
    exports: dict[Any, str] = {form: str(at / f"run/{form}.jsonl") for form in FORMATS}
    for form, out in exports.items():
        told = export_traces.run(store=store, manifest=made, out=out, form=form)
        assert read_object(at / f"run/{form}.jsonl") == (host / f"{form}.jsonl").read_bytes()
        assert (told["exported"], told["bytes"]) == (40, (host / f"{form}.jsonl").stat().st_size)
    checked = validate_traces.run(exports=exports, manifest=made, report=str(at / "run/report.json"))
    assert checked["clean"]
    assert json.loads(read_object(at / "run/report.json") or b"")["lines"] == 40 * len(FORMATS)
    for _ in range(2):  # a retry
        tokenize_traces.run(
            store=store,
            dataset=made,
            root=root,
            tokenizer=tokenizer,
            asset=str(at / "run/tokenizer"),
            rules=RULES,
            task=StepTask(max_rejects=None, on_duplicate="keep", allow_unknown_sha=True),
        )
    assert read_object(at / "tokens/manifest.json") is None
    report = validate_alignment.run(
        root=root,
        family_of=dataset_family,
        source=exports["tunix_sft"],
        deep=64,
        tokenizer=str(at / "run/tokenizer"),
    )
    assert report.clean, report.findings
    assert report.checked["rows encoded again"] == 40
    fetch(root, tmp_path / "fetched")
    assert (tmp_path / "fetched/tokenizer.json").read_bytes() == (host / "tokenizer.json").read_bytes()
    assert manifest.read(tmp_path / "fetched").content.as_dict() == manifest.read(host / "tokens").content.as_dict()
    for file in (host / "tokens/train").iterdir():
        assert (tmp_path / "fetched/train" / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(ConflictError):
        tokenize_traces.run(
            store=store,
            dataset=made,
            root=root,
            tokenizer=tokenizer,
            rules=TokenizeRules(valid_fraction=0.5),
            task=StepTask(max_rejects=None, on_duplicate="keep", allow_unknown_sha=True),
        )


def test_a_store_in_a_folder_that_is_read_only_is_read(tmp_path: Path) -> None:
    sample(out=str(tmp_path / "s.jsonl"), traces=10)
    ingest_traces.run(source=str(tmp_path / "s.jsonl"), store=str(tmp_path / "in/store"), source_name="s")
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["store"]  # one file: no log beside it
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    import subprocess

    bind = subprocess.run(["mount", "--bind", str(tmp_path / "in"), str(mounted)], capture_output=True, check=False)
    if bind.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(mounted)], check=True)
        said = build_traces.run(store=str(mounted / "store"), manifest=str(tmp_path / "m.json"), request=WANTED)
        assert said["trace_count"] == 10
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)
