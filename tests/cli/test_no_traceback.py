"""Bad environments, files and bodies, 120 in all: each ends in a message, an answer or a result, never in a traceback.

Further tests say what the message of a kind is; here the kinds are counted. `docs/reliability.md` has the numbers.
"""

import gzip
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.families.traces.service.application import traces_application
from spanloom.families.traces.store.opening import default_url, open_store
from support.http_service import Service, served
from support.nightly import nightly

CHAT = {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]}
LINE = json.dumps(CHAT)

WRONG = {"text": "hello", "number": "-7", "blank": " ", "control": "\x1b[31m\n", "letters": "ü" * 300}
VARIABLES = (
    *("TMPDIR", "HOME", "XDG_CACHE_HOME", "COLUMNS", "LC_ALL", "PYTHONIOENCODING", "SPANLOOM_STORAGE_DEADLINE"),
    *("SPANLOOM_GIT_SHA", "O200K_HARMONY_VOCAB_PATH", "TIKTOKEN_ENCODINGS_BASE"),
)
"""40 environments: each of these variables with four wrong values, by day with one; a build starts processes and writes
everywhere."""

ENVIRONMENTS = [(variable, kind) for variable in VARIABLES for kind in ("text", "number", "blank", "letters")]
BY_DAY = [(variable, ("text", "number", "blank", "letters")[at % 4]) for at, variable in enumerate(VARIABLES)]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def parquet(path: Path, table: pa.Table) -> bytes:
    pq.write_table(table, path)
    return path.read_bytes()


def columns(value: object, kind: pa.DataType | None = None) -> Callable[[Path], bytes]:
    return lambda path: parquet(path, pa.table({"messages": pa.array([value], kind)}))


TEXTS: dict[str, bytes] = {
    "empty": b"",
    "blank_lines": b"\n\n \n",
    "nul": b"\0" * 100,
    "cut_line": LINE.encode()[:40],
    "two_values_in_a_line": f"{LINE} {LINE}".encode(),
    "no_utf8": b'{"messages": "\xff\xfe"}',
    "utf16": LINE.encode("utf-16"),
    "deep": nested(100_000).encode(),
    "deep_in_a_key": f'{{"messages": {nested(50_000)}}}'.encode(),
    "number": b"7",
    "null": b"null",
    "list_of_numbers": b"[1, 2, 3]",
    "nan": b'{"messages": NaN}',
    "huge_number": b'{"messages": 1' + b"0" * 10_000 + b"}",
    "duplicate_key": b'{"messages": [], "messages": []}',
    "surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "assistant", "content": "a"}]}',
    "messages_is_text": b'{"messages": "hello"}',
    "messages_is_a_number": b'{"messages": 7}',
    "message_is_null": b'{"messages": [null]}',
    "role_is_a_list": b'{"messages": [{"role": [], "content": "a"}]}',
    "content_is_a_number": b'{"messages": [{"role": "user", "content": 7}]}',
    "no_answer": b'{"messages": [{"role": "user", "content": "a"}]}',
    "tool_calls_is_text": b'{"messages": [{"role": "assistant", "content": "a", "tool_calls": "x"}]}',
    "tools_is_a_number": b'{"tools": 3, "messages": [{"role": "user", "content": "a"}]}',
    "gzip_name_no_gzip": b"hello",
    "unknown_columns": b'{"a": 1, "b": 2}',
}
PARQUETS: dict[str, Callable[[Path], bytes]] = {
    "parquet_empty": lambda _: b"",
    "parquet_magic_alone": lambda _: b"PAR1PAR1",
    "parquet_footer_too_long": lambda _: b"PAR1" + struct.pack("<I", 1 << 31) + b"PAR1",
    "parquet_cut": lambda path: columns(LINE)(path)[:-9],
    "parquet_zeros_inside": lambda path: columns(LINE)(path)[:20] + b"\0" * 40 + columns(LINE)(path)[60:],
    "parquet_numbers": columns(7),
    "parquet_bytes": columns(b"\xff", pa.binary()),
    "parquet_nulls": columns(None, pa.null()),
    "parquet_map": columns([("a", 1)], pa.map_(pa.string(), pa.int64())),
    "parquet_no_rows": lambda path: parquet(path, pa.table({"messages": pa.array([], pa.string())})),
    "parquet_no_columns": lambda path: parquet(path, pa.table({})),
    "parquet_two_columns_of_a_name": lambda path: parquet(
        path, pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["messages", "messages"])
    ),
    "parquet_is_arrow": lambda _: b"ARROW1" + bytes(100),
    "parquet_text_that_is_no_json": columns("hello"),
}
FILES = {**TEXTS, **PARQUETS}
"""40 files for `convert`."""

TRACE = {"trace_version": "1.0", "created_at": "2026-01-01T00:00:00Z", "prompt": "p", "final_answer": "a", "steps": []}
BODIES: dict[str, bytes] = {
    **{name: TEXTS[name] for name in sorted(TEXTS) if name not in ("gzip_name_no_gzip", "two_values_in_a_line")},
    "list_in_place_of_a_trace": json.dumps([TRACE]).encode(),
    "step_is_null": json.dumps({**TRACE, "steps": [None]}).encode(),
    "version_unknown": json.dumps({**TRACE, "trace_version": "9"}).encode(),
    "time_of_the_year_0": json.dumps({**TRACE, "created_at": "0000-00-00"}).encode(),
    "prompt_with_nul": json.dumps({**TRACE, "prompt": "\0"}).encode(),
    "meta_is_a_list": json.dumps({**TRACE, "meta": []}).encode(),
    "gzip": gzip.compress(json.dumps(TRACE).encode()),
    "xml": b"<?xml version='1.0'?><a/>",
    "form": b"prompt=p&final_answer=a",
    "trailing_comma": b'{"prompt": "p",}',
    "single_quotes": b"{'prompt': 'p'}",
    "infinity": b'{"prompt": Infinity}',
    "five_million_letters": json.dumps({**TRACE, "prompt": "p" * 5_000_000}).encode(),
    "many_keys": json.dumps({str(number): number for number in range(10_000)}).encode(),
    "key_is_a_control_character": b'{"\\u0000\\u001b[2J": 1}',
    "steps_is_an_object": json.dumps({**TRACE, "steps": {"i": 0}}).encode(),
}
ROUTES = ("/api/traces", "/api/traces/batch", "/api/datasets/build", "/api/tunix/sft/export", "/api/tunix/sft/manifest")


def test_there_are_120() -> None:
    assert (len(ENVIRONMENTS), len(FILES), len(BODIES)) == (40, 40, 40)


@pytest.fixture(scope="module")
def source(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    (folder / "chat.jsonl").write_text(f"{LINE}\n" * 4)
    done = cli("convert", folder / "chat.jsonl", "--out", folder / "source", "-y", "-q")
    assert done.returncode == 0, done.stderr
    return folder / "source"


@pytest.mark.parametrize(("variable", "kind"), [pair if pair in BY_DAY else nightly(*pair) for pair in ENVIRONMENTS])
def test_environments(cli: Cli, source: Path, tmp_path: Path, variable: str, kind: str) -> None:
    done = cli(
        *("build", "--source", source, "--out", tmp_path / "root", "--on-duplicate", "keep", "--workers", 2),
        cwd=tmp_path,
        **{variable: WRONG[kind]},
    )
    said(done.returncode, done.stdout, done.stderr)
    assert (tmp_path / "root/manifest.json").exists() == (done.returncode == 0)


PROCESSES = {
    "few open files": ("ulimit -n 20", "source", "raise the limit of open files"),
    "small files": ("ulimit -f 1", "source", "raise the limit of a file's size"),
    "a loop of links": ("ln -s loop loop", "loop/source", "a link leads to itself"),
    "a library that does not load": (
        'mkdir bad; echo "raise ImportError(1)" > bad/pyarrow.py; export PYTHONPATH=bad:$PYTHONPATH',
        "source",
        "look at PYTHONPATH",
    ),
    "a current folder that is gone": ("mkdir gone; cd gone; rmdir ../gone", "source", "change to a folder that exists"),
}
"""What a shell does before a build; its source; the remedy."""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("name", PROCESSES)
def test_what_a_shell_hands_on(source: Path, asset: Path, tmp_path: Path, name: str) -> None:
    before, place, remedy = PROCESSES[name]
    (tmp_path / "source").symlink_to(source)
    done = under(before, ["build", "--source", place, "--out", "root", "--on-duplicate", "keep"], tmp_path, asset)
    said(done.returncode, done.stdout, done.stderr)
    assert done.returncode == 1
    assert remedy in done.stderr, done.stderr


def test_a_closed_stdin_is_no_terminal(asset: Path, tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text(LINE)
    done = under("exec <&-", ["convert", "chat.jsonl", "--out", "out"], tmp_path, asset)
    assert done.returncode == 0, done.stderr


def under(before: str, words: list[str], cwd: Path, asset: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'{before}; exec "$@"', "sh", sys.executable, "-m", "spanloom", *words],
        cwd=cwd,
        env={**os.environ, "O200K_HARMONY_VOCAB_PATH": str(asset), "SPANLOOM_GIT_SHA": "0" * 40},
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(cli: Cli, tmp_path: Path, name: str) -> None:
    ends = "parquet" if name in PARQUETS else "jsonl.gz" if name.startswith("gzip") else "jsonl"
    file = tmp_path / f"chat.{ends}"
    content = FILES[name]
    file.write_bytes(content if isinstance(content, bytes) else content(tmp_path / "other.parquet"))
    done = cli("convert", file, "--out", tmp_path / "out", "-y", cwd=tmp_path)
    said(done.returncode, done.stdout, done.stderr)
    assert done.returncode != 0, "no file here has a conversation"
    assert not (tmp_path / "out/manifest.json").exists()


def said(code: int, printed: str, errors: str) -> None:
    """A traceback is what Python prints of an exception that nobody expected."""
    assert "Traceback" not in printed + errors, errors
    assert code in (0, 1, 2, 4, 75), (code, errors)
    assert code == 0 or "error:" in errors.lower(), errors


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("traces")
    store = open_store(default_url(root), create=True)
    with served(traces_application(store, root)) as running:
        yield running
    store.close()


@pytest.mark.parametrize("name", BODIES)
def test_bodies(service: Service, name: str) -> None:
    for route in ROUTES:
        answer = service.ask("POST", route, BODIES[name])
        assert 400 <= answer.status < 500, (route, answer.status, answer.body[:300])
        assert isinstance(json.loads(answer.body), dict)
    assert service.ask("GET", "/api/health").status == 200
