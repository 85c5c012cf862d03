"""Where commands write: never over a file of a dataset or a source. What is said of full disks, names and Ctrl-C."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY, Cli
from spanloom.errors import SpanloomError
from support.folders import files_of

FROZEN = REPOSITORY / "tests/frozen"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A dataset and its source."""
    shutil.copytree(FROZEN / "synth_kd", tmp_path / "root")
    shutil.copytree(FROZEN / "synth_harmony", tmp_path / "source")
    return tmp_path


@pytest.mark.parametrize("name", ["manifest.json", "README.md", "train/shard_00_tokens.bin", "../source/manifest.json"])
@pytest.mark.parametrize(
    "command",
    [("validate", "root", "-q", "--report"), ("inspect", "root", "--html"), ("blend", "root", "--out")],
    ids=lambda command: str(command[0]),
)
def test_no_file_of_a_dataset_or_its_source_is_written_over(
    place: Path, cli: Cli, command: tuple[str, ...], name: str
) -> None:
    before = files_of(place)
    done = cli(*(place / "root" if word == "root" else word for word in command), place / "root" / name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is not written over" in done.stderr
    assert files_of(place) == before


@pytest.mark.parametrize("name", ["root/report.html", "mine.html"])
def test_a_report_of_a_dataset_and_other_files_are_replaced(place: Path, cli: Cli, name: str) -> None:
    (place / name).write_text("before")
    done = cli("validate", place / "root", "-q", "--html", place / name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<!doctype html>" in (place / name).read_text()


def test_a_full_device_is_named(place: Path, cli: Cli) -> None:
    done = cli("inspect", place / "root", "--html", "/dev/full")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "where: /dev/full" in done.stderr


def test_a_wrong_choice_is_answered_with_the_choices_and_no_prefix_of_a_library(tmp_path: Path, cli: Cli) -> None:
    done = cli("export", tmp_path, "--to", "megatron", COLUMNS="200")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Invalid value for '--to': 'megatron' is not one of" in done.stderr, done.stderr
    assert "'megatron-bridge'" in done.stderr


@pytest.mark.parametrize("command", [("export", "--out"), ("validate", "-q", "--report"), ("blend", "--out")])
def test_a_uri_is_no_path_to_write_to(place: Path, cli: Cli, command: tuple[str, ...]) -> None:
    done = cli(command[0], place / "root", *command[1:], "s3://bucket/there", cwd=place)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not (place / "s3:").exists()


def test_an_argument_that_is_not_utf8_is_refused(place: Path, cli: Cli) -> None:
    (place / "root").rename(place / "nu\udcff")
    done = cli("validate", place / "nu\udcff")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: this argument is not UTF-8"
    assert done.stderr.splitlines()[2].strip() == "remedy: rename the file or folder"


def test_a_quoted_value_makes_no_line_of_its_own() -> None:
    said = str(SpanloomError("it says 'x\nclean: all good'", where="a\nb", remedy="c\nd"))
    assert said.splitlines() == ["it says 'x↵clean: all good'", "  where: a↵b", "  remedy: c↵d"]


def test_ctrl_c_while_all_is_imported_ends_in_a_word() -> None:
    code = """
import runpy, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "spanloom.cli.dataset.look":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
runpy.run_module("spanloom", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("scheme", ["s3", "gs", "minio"])
def test_a_uri_where_a_path_is_meant_is_refused_and_no_folder_is_named_after_it(
    cli: Cli, tmp_path: Path, scheme: str
) -> None:
    done = cli("build", "--source", tmp_path, "--out", f"{scheme}://bucket/root", cwd=tmp_path)
    assert done.returncode == 1
    assert "--out takes a path on this machine, not a URI" in done.stderr
    assert f"{scheme}://bucket/root" in done.stderr
    assert "minio:// is s3:// there, with the store's address in AWS_ENDPOINT_URL" in done.stderr
    assert list(tmp_path.iterdir()) == []
