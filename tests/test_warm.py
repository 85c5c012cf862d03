"""A command that was forked does what a fresh process does: exit code, output, files, and what its workers inherit."""

import os
import signal
from pathlib import Path

import pytest

from spanloom import workers
from support import sources, warm
from support.cases import REPOSITORY

FROZEN = REPOSITORY / "tests/frozen/synth_kd"


def both(monkeypatch: pytest.MonkeyPatch, *arguments: object, **options: object) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of the command, forked and in a fresh process."""
    outcomes = []
    for cold in (False, True):
        monkeypatch.setattr(warm, "COLD", cold)
        done = warm.run("spanloom", *arguments, **{"env": os.environ, **options})  # type: ignore[arg-type]
        outcomes.append((done.returncode, done.stdout, done.stderr))
    return outcomes


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["inspect", FROZEN, "--count", 2, "--labels"], 0),
        (["validate", FROZEN, "--quiet"], 0),
        (["validate", "none"], 1),
        (["build", "--shards", "many"], 2),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else None,
)
def test_exit_code_and_output(
    arguments: list[object], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked, fresh = both(monkeypatch, *arguments, cwd=tmp_path)
    assert forked == fresh
    assert fresh[0] == code


@pytest.mark.nightly  # `make test` has a build in fresh processes, and many forked ones
def test_a_build_with_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.write_source(tmp_path / "source", [sources.rows(6), sources.rows(5, "more")])
    for name, cold in (("forked", False), ("fresh", True)):
        monkeypatch.setattr(warm, "COLD", cold)
        root = tmp_path / name
        done = warm.run(
            "spanloom",
            *("build", "--source", source, "--out", root, "--shards", 2, "--valid-fraction", 0.5, "--workers", 2),
            env=os.environ,
        )
        assert done.returncode == 0, done.stderr
    assert sources.data_files(tmp_path / "forked") == sources.data_files(tmp_path / "fresh")
    assert sources.content(tmp_path / "forked") == sources.content(tmp_path / "fresh")


def test_streams_that_are_closed_or_full(monkeypatch: pytest.MonkeyPatch) -> None:
    for closed in ((0,), (1,), (2,)):
        forked, fresh = both(monkeypatch, "manifest", "show", FROZEN, closed=closed)
        assert forked == fresh
    full = os.open("/dev/full", os.O_WRONLY)
    forked, fresh = both(monkeypatch, "--version", stdout=full)
    os.close(full)
    assert forked == fresh


def test_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = tmp_path / "line.jsonl"
    line.write_text('{"question": "1 + 1?", "answer": "One and one.\\n#### 2"}\n')
    outcomes = []
    for root in (tmp_path / "a", tmp_path / "b"):
        with line.open() as stdin:  # `both` would begin the second where the first has ended
            monkeypatch.setattr(warm, "COLD", root.name == "b")
            words = ("traces", "ingest", "-", "--source-name", "s", "--root", root)
            done = warm.run("spanloom", *words, env=os.environ, stdin=stdin.fileno())
        outcomes.append((done.returncode, done.stdout))
    assert outcomes == [(0, "1 traces stored, 0 were there already, 0 lines skipped\n")] * 2


def test_a_variable_that_is_read_at_the_start_gets_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_Forked", None)  # a fork would be an error
    done = warm.run("spanloom", "--version", env={**os.environ, "PYTHONHASHSEED": "7"})
    assert (done.returncode, done.stderr) == (0, "")


def _inherited(_: int) -> tuple[str | None, bool]:
    return os.environ.get("SPANLOOM_INHERITED"), signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_workers_inherit_the_environment_of_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first", "second"):
        monkeypatch.setenv("SPANLOOM_INHERITED", value)
        with workers.process_pool(2) as pool:
            seen = [pool.result(pool.submit(_inherited, number), "a look") for number in range(3)]
        assert seen == [(value, True)] * 3
