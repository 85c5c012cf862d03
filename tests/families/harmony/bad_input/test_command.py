"""The same faults through the real command: an error with place and remedy, and no traceback."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import sources
from support.bad_builds import BAD_ROWS, assert_nothing_looks_finished, files_of, source_of

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
EXIT_FAILURE = 1


def assert_said(done: "subprocess.CompletedProcess[str]", message: str) -> None:
    assert done.returncode == EXIT_FAILURE
    assert re.match(f"error: {message}", done.stderr), done.stderr
    assert "  where: " in done.stderr
    assert "  remedy: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def run_build(cli: Cli, source: Path, out: Path, *options: object, **environment: str) -> Any:
    return cli(
        *("build", "--source", source, "--out", out, "--workers", 1, "--deep", 0, "--quiet"), *options, **environment
    )


def test_the_command_says_that_the_tokenizer_is_wrong(cli: Cli, good: Path, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    done = run_build(cli, good, tmp_path / "out", O200K_HARMONY_VOCAB_PATH=nowhere)
    assert_said(done, r"the tokenizer asset o200k_base\.tiktoken is missing\n  where: .*/nowhere\n")
    assert not (tmp_path / "out").exists()


def test_the_command_says_that_the_source_is_wrong(cli: Cli, broken: Path, tmp_path: Path) -> None:
    (broken / sources.shard_name(3)).unlink()
    sources.write_manifest(broken, 3)
    done = run_build(cli, broken, tmp_path / "out")
    assert_said(done, "the manifest lists 3 shards, 4 are expected\n")
    assert not (tmp_path / "out").exists()


def test_the_command_says_which_row_is_bad(cli: Cli, tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", [sources.row("a"), BAD_ROWS["role tool"].row()])
    done = run_build(cli, source, tmp_path / "out", "--shards", 1)
    assert_said(done, r"role_unknown: message 1 has role 'tool'.*\n  where: shard 00, .*, row 1, synth_id 'bad'\n")
    assert_nothing_looks_finished(tmp_path / "out")


def test_the_command_says_which_id_stands_twice(cli: Cli, with_copies: Path, tmp_path: Path) -> None:
    done = run_build(cli, with_copies, tmp_path / "out", "--shards", 2)
    assert_said(done, r"duplicate synth_id 'id-1'\n  where: shard 00, row 1 and shard 01, row 2\n")
    assert_nothing_looks_finished(tmp_path / "out")


def test_the_command_says_that_another_dataset_is_in_the_way(cli: Cli, standing: Path, other: Path) -> None:
    before = files_of(standing)
    done = run_build(cli, other, standing, "--shards", 1)
    assert_said(done, "the output root already holds another dataset: it was made with other options")
    assert files_of(standing) == before


def test_the_command_says_that_the_output_cannot_be_written(cli: Cli, good: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run_build(cli, good, tmp_path / "file/out")
    assert_said(done, "the output root cannot be written: Not a directory\n")


def test_the_command_refuses_a_bad_limit_of_rejects(cli: Cli, good: Path, tmp_path: Path) -> None:
    done = run_build(cli, good, tmp_path / "out", "--max-rejects", "101%")
    assert done.returncode == EXIT_FAILURE
    assert done.stderr.startswith("error: --max-rejects takes a whole number of rows per shard or a percentage")
    assert not (tmp_path / "out").exists()


def test_a_dataset_that_other_code_built_is_another_one(cli: Cli, standing: Path, small: Path) -> None:
    done = run_build(cli, small, standing, "--shards", 1, "--valid-fraction", 0.5, SPANLOOM_GIT_SHA="1" * 40)
    assert done.returncode == 1
    assert "another dataset: it was made by other code (" in done.stderr
