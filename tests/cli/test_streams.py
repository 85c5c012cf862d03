"""A result that stdout does not take has an exit code and a message of its own; the work stands all the same."""

import os
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from conftest import REPOSITORY
from spanloom.errors import EXIT_FAILURE, EXIT_FINDINGS, EXIT_OUTPUT, EXIT_READER_GONE
from support import sources, warm

FROZEN = REPOSITORY / "tests/frozen"


def spanloom(
    *arguments: object,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    closed: Collection[int] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> "subprocess.CompletedProcess[str]":
    """The command with streams of its own; `closed` are the numbers of those that are closed."""
    return warm.run(
        "spanloom", *arguments, env={**os.environ, **environment}, stdout=stdout, stderr=stderr, closed=closed
    )


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def left() -> int:
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


COMMANDS: tuple[tuple[object, ...], ...] = (
    ("manifest", "show", FROZEN / "synth_kd"),
    ("manifest", "show", FROZEN / "synth_kd", "--json"),
    ("stats", FROZEN / "synth_kd", "--csv"),
    ("inspect", FROZEN / "synth_kd", "--count", 99, "--labels"),
    ("validate", FROZEN / "synth_kd"),
    ("--version",),
    ("--help",),
)


def name_of(command: tuple[object, ...]) -> str:
    return f"{command[0]}-{command[-1]}"


@pytest.mark.parametrize(
    ("command", "opened"),
    [
        pytest.param(command, opened, id=f"{name_of(command)}-{opened.__name__}")
        for command in COMMANDS
        for opened in (full, left)
        if (command[0], opened) != ("inspect", left)
    ],
)
def test_the_exit_code_tells_that_it_is_the_output(command: tuple[object, ...], opened: object) -> None:
    descriptor = opened()  # type: ignore[operator]
    try:
        done = spanloom(*command, stdout=descriptor)
    finally:
        os.close(descriptor)
    assert done.returncode == EXIT_OUTPUT, done.stderr
    assert "error: the result could not be written" in done.stderr
    assert "where: stdout" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_reader_of_inspect_may_leave() -> None:
    """As `head` does once it has its lines: that is no error."""
    descriptor = left()
    try:
        done = spanloom("inspect", FROZEN / "synth_kd", "--count", 99, "--labels", stdout=descriptor)
    finally:
        os.close(descriptor)
    assert (done.returncode, done.stderr) == (EXIT_READER_GONE, "")


def test_a_build_stands_though_its_result_is_lost(tmp_path: Path) -> None:
    source = sources.write_source(tmp_path / "source", [sources.rows(6)])
    command = ("build", "--source", source, "--out", tmp_path / "out", "--shards", 1, "--valid-fraction", 0.5)
    descriptor = full()
    try:
        done = spanloom(*command, "--workers", 1, "-q", stdout=descriptor)
    finally:
        os.close(descriptor)
    assert done.returncode == EXIT_OUTPUT, done.stderr
    assert spanloom("validate", tmp_path / "out", "-q").returncode == 0


def test_findings_count_for_more_than_a_lost_result(tmp_path: Path) -> None:
    """Whoever asks by the exit code alone must not take a damaged dataset for a full disk."""
    (tmp_path / "root").symlink_to(FROZEN / "synth_kd")
    root = tmp_path / "copy"
    subprocess.run(["cp", "-r", f"{FROZEN / 'synth_kd'}", root], check=True)
    (root / "train/shard_00_tokens.bin").write_bytes(b"")
    descriptor = full()
    try:
        for json_too in ((), ("--json",)):
            assert spanloom("validate", root, "-q", *json_too, stdout=descriptor).returncode == EXIT_FINDINGS
    finally:
        os.close(descriptor)


def test_errors_keep_their_code_where_nothing_takes_them(tmp_path: Path) -> None:
    for opened in (full, left):
        descriptor = opened()
        try:
            command = ("validate", tmp_path / "none")
            assert spanloom(*command, stdout=descriptor, stderr=descriptor).returncode == EXIT_FAILURE
            # What only tells of the work may be lost.
            command = ("validate", FROZEN / "synth_kd")
            assert spanloom(*command, stderr=descriptor).returncode == 0
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_no_file_gets_the_number_of_a_stream_that_is_closed(tmp_path: Path, closed: tuple[int, ...]) -> None:
    source = sources.write_source(tmp_path / "source", [sources.rows(6)])
    out = tmp_path / "out"
    command = ("build", "--source", source, "--out", out, "--shards", 1, "--valid-fraction", 0.5, "--workers", 1)
    done = spanloom(*command, closed=closed)
    assert done.returncode == 0, done.stderr
    assert spanloom("validate", out, "--source", source, "-q").returncode == 0


def test_a_terminal_of_another_encoding_gets_escapes() -> None:
    done = spanloom("inspect", FROZEN / "synth_kd", "--count", 9, environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "\\u2503" in done.stdout


def test_a_report_goes_to_stdout_or_a_device(tmp_path: Path) -> None:
    (tmp_path / "stdout").symlink_to("/dev/stdout")  # through links: a failure must harm nobody
    (tmp_path / "null").symlink_to("/dev/null")
    root = FROZEN / "synth_kd"
    done = spanloom("validate", root, "-q", "--html", tmp_path / "stdout")
    assert done.returncode == 0, done.stderr
    assert done.stdout.lstrip().lower().startswith("<!doctype html>")
    done = spanloom("validate", root, "-q", "--report", tmp_path / "null")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("clean: ")
    assert (tmp_path / "null").is_symlink()
    assert (tmp_path / "stdout").is_symlink()
