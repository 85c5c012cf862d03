"""Packed chat over a bucket, as its containers run it, is what it is on one machine."""

import json
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.storage.publishing import publish_file
from spanloom.storage.staging import list_objects, read_object
from support import sources
from support.chat_datasets import write_tokenizer
from support.nightly import nightly
from support.object_stores import Place


@pytest.mark.slow
@pytest.mark.parametrize("ordinary_place", ["emulator", nightly("s3")], indirect=True)
def test_the_steps_over_a_bucket_give_what_one_machine_gives(tmp_path: Path, ordinary_place: Place, cli: Cli) -> None:
    at = ordinary_place.uri
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    publish_file(tokenizer, at / "tokenizer.json")

    def run(*arguments: object, code: int = 0) -> str:
        done = cli(*arguments, SPANLOOM_SCRATCH=str(tmp_path / "scratch"), **ordinary_place.environment)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    run("chat", "sample", "--out", at / "chats.jsonl", "--conversations", 60)
    generate = ("--context-len", 128, "--report", at / "generated.json")
    run(
        *("step", "generate-chat", "--source", at / "chats.jsonl", "--out", at / "transcripts.parquet"),
        *("--tokenizer", at / "tokenizer.json", "--drop", "tool", *generate),
    )
    said = json.loads(read_object(at / "generated.json") or b"")
    assert said["conversations_read"] == 60
    assert said["conversations_skipped"]["control_string"] == 2
    pack = (
        *("step", "pack-chat", "--transcripts", at / "transcripts.parquet", "--root", at / "root"),
        *("--tokenizer", at / "tokenizer.json", "--asset", at / "verified", "--block-size", 64),
        *("--shards", 2, "--workers", 1),
    )
    for _ in range(2):  # and again: a retry
        run(*pack, "--post-training", 1)
    assert "another build" in run(*pack, "--post-training", 0, code=1)
    assert read_object(at / "root" / "manifest.json") is None
    validate = (
        *("step", "validate-alignment", "--root", at / "root", "--source", at / "transcripts.parquet"),
        *("--tokenizer", at / "verified", "--deep", 5, "--report", at / "report.json"),
    )
    for _ in range(2):
        report = json.loads(run(*validate))
        assert report["clean"] is True
        assert report["checked"]["blocks packed again"] == 10
    assert read_object(at / "root" / "manifest.pending.json") is None

    local = ("--tokenizer", tokenizer)
    run("chat", "sample", "--out", tmp_path / "chats.jsonl", "--conversations", 60)
    run(
        *("chat", "generate", "--input", tmp_path / "chats.jsonl", "--out", tmp_path / "transcripts.parquet"),
        *(*local, "--context-len", 128, "--drop", "tool"),
    )
    run(
        *("chat", "pack", "--input", tmp_path / "transcripts.parquet", "--out", tmp_path / "built", *local),
        *("--block-size", 64, "--shards", 2, "--post-training", "--quiet"),
    )
    environment = json.loads(read_object(at / "root" / "manifest.json") or b"")["environment"]
    assert environment["source"] == str(at / "transcripts.parquet")
    assert environment["tokenizer"] == str(at / "tokenizer.json")
    run("fetch", at / "root", tmp_path / "fetched")
    assert sources.data_files(tmp_path / "fetched") == sources.data_files(tmp_path / "built")
    assert run("manifest", "diff", at / "root", tmp_path / "built").strip() == "same content"
    run("validate", at / "root", "--source", at / "transcripts.parquet", "--tokenizer", tokenizer, "--deep", 3)
    names = {entry.uri.key.removeprefix(at.key) for entry in list_objects(at / "root")}
    assert {"/root/claim.json", "/root/README.md", "/root/report.html"} <= names
