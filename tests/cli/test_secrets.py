"""Keys in addresses, in forty spellings, given to the commands: refused or hidden, in all that they print and write."""

import contextlib
import io
import logging
import sys
from pathlib import Path

import pytest

from spanloom import cli
from spanloom.storage import transfer
from spanloom.storage.stores import retry

SECRET = "hunter22hunter22"
AMAZON, GOOGLE = "https://b.s3.amazonaws.com/k", "https://storage.googleapis.com/b/k"
SPELLINGS = [
    text.replace("SECRET", SECRET)
    for text in (
        "s3://KEY:SECRET@bucket/key",
        "s3://KEY:SECRET@bucket",
        "S3://KEY:SECRET@bucket/key",
        "s3a://KEY:SECRET@bucket/key",
        "s3n://KEY:SECRET@bucket/key",
        "minio://KEY:SECRET@bucket/key",
        "gs://SECRET@bucket/key",
        "gcs://SECRET@bucket/key",
        "https://KEY:SECRET@host/bucket/key",
        "http://KEY:SECRET@host/bucket/key",
        f"{AMAZON}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=SECRET&X-Amz-Signature=SECRET",
        f"{AMAZON}?AWSAccessKeyId=SECRET&Signature=SECRET&Expires=1",
        f"{AMAZON}?x-amz-security-token=SECRET",
        f"{GOOGLE}?X-Goog-Credential=SECRET&X-Goog-Signature=SECRET",
        "https://a.blob.core.windows.net/c/b?sv=1&sig=SECRET",
        "s3://bucket/key?X-Amz-Signature=SECRET",
        "s3://bucket/key?AWSAccessKeyId=a&Signature=SECRET",
        "s3://bucket/key#token=SECRET",
        "s3://bucket/key;token=SECRET",
        "s3://bucket/key&X-Amz-Signature=SECRET",
        "s3://bucket/k%3FX-Amz-Signature=SECRET",
        "s3://bucket/a/../k?x-amz-security-token=SECRET",
        "s3://KEY:a/SECRET@bucket/key",
        "s3://KEY:SECRET%40@bucket/key",
        "s3://KEY%3ASECRET@bucket/key",
        "s3://:SECRET@bucket/",
        "s3://bucket@KEY:SECRET/key",
        "s3://KEY:SECRET@host:9000/bucket/key",
        "s3://KEY:SECRET@bucket/*.jsonl",
        "s3://KEY:SECRET@bucket/key\n",
        " s3://KEY:SECRET@bucket/key",
        "./s3://KEY:SECRET@bucket/key",
        "s3:/KEY:SECRET@bucket/key",
        "s3:KEY:SECRET@bucket/key",
        "s3:///KEY:SECRET@bucket/key",
        "s3:\\\\KEY:SECRET@bucket",
        "s3%3A%2F%2FKEY%3ASECRET%40bucket%2Fkey",
        "simplecache::s3://KEY:SECRET@bucket/key",
        "ftp://user:SECRET@host/x",
        "hf://user:SECRET@datasets/x",
        "postgresql://user:SECRET@host/db",
    )
]
COMMANDS = [
    "convert HERE -y --out out",
    "convert chat.jsonl -y --out HERE",
    "build --source HERE --out root",
    "build --source chat.jsonl --out=HERE",
    "validate HERE",
    "export HERE --to trl --out exported",
    "fetch HERE fetched",
    "audit HERE --model model",
    "traces ingest HERE --store store.sqlite",
    "chat generate --input HERE --out text.parquet",
    "chess convert --pgn HERE --out games",
    "tasks --for slurm --source HERE --out scripts",
    "model fetch HERE",
    "step render-shard --shard 0 --source HERE",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
        "SPANLOOM_STORAGE_DEADLINE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)
    transfer._open.cache_clear()
    (tmp_path / "chat.jsonl").write_text('{"prompt": "a", "response": "b"}\n')
    return tmp_path


def test_there_are_at_least_thirty_spellings() -> None:
    assert len(set(SPELLINGS)) > 30


@pytest.mark.parametrize("command", COMMANDS)
def test_no_spelling_of_a_secret_leaves_the_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for spelling in SPELLINGS:
        words = [word.replace("HERE", spelling) for word in command.split()]
        monkeypatch.setattr(sys, "argv", ["spanloom", *words])
        monkeypatch.setattr(logging.root, "handlers", [])
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            cli.show_warnings()
            code = cli._run(words)
        assert code not in (0, None), spelling
        assert SECRET not in shown.getvalue(), spelling
        assert "Traceback" not in shown.getvalue(), spelling
        for path in folder.rglob("*"):
            assert SECRET not in str(path.relative_to(folder)), spelling
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), spelling
