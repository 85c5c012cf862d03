"""What is not ours is neither removed nor changed, whatever a command is told to do with what is."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support import chat_datasets
from support.nightly import nightly
from tools.chaos.driver import Driver, Fault
from tools.chaos.enumeration import clear
from tools.chaos.scenarios import ROOT, build_arguments, must, write_foreign, write_small_source
from tools.chaos.state import changed, stamps

pytestmark = pytest.mark.slow

WEB_DATASET = (
    *(f"{ROOT}/train/shard_000000.tar", f"{ROOT}/train/shard_00_tokens.txt", f"{ROOT}/valid/shard_00.json"),
    *(f"{ROOT}/rejects/shard_99", f"{ROOT}/report.html", f"{ROOT}/report.json", f"{ROOT}/README.md"),
)
"""Names that others use, too: WebDataset calls its files `shard_…`."""


@pytest.fixture
def folder(driver: Driver) -> Path:
    """An empty folder with a small source."""
    clear(driver.folder)
    write_small_source(driver.folder / "source", "new")
    return driver.folder


def untouched(driver: Driver, names: tuple[str, ...], *arguments: str) -> list[str]:
    """Runs a command, which may succeed or refuse, and returns which of the files were touched."""
    before = stamps(driver.folder, names)
    driver.run(arguments, watch=False)
    return list(changed(driver.folder, before))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="as it is", marks=pytest.mark.nightly),
        pytest.param(("--no-resume",), id="--no-resume", marks=pytest.mark.nightly),
        pytest.param(("--overwrite",), id="--overwrite", marks=pytest.mark.nightly),
        pytest.param(("--overwrite", "--no-resume"), id="both"),
    ],
)
def test_a_build_into_somebody_elses_folder_touches_nothing(
    driver: Driver, folder: Path, more: tuple[str, ...]
) -> None:
    write_foreign(folder, WEB_DATASET)
    assert untouched(driver, WEB_DATASET, *build_arguments("source", *more)) == []


@pytest.mark.parametrize("more", [(), ("--no-resume",)])
def test_a_folder_that_holds_something_else_is_refused_in_words(
    driver: Driver, folder: Path, more: tuple[str, ...]
) -> None:
    write_foreign(folder, (f"{ROOT}/train/shard_000000.tar",))
    run = driver.run(build_arguments("source", *more), watch=False)
    assert run.code == 1
    assert "shard_000000.tar" in run.output or "train" in run.output.partition("error: ")[2]
    assert sorted(path.name for path in (folder / ROOT).rglob("*")) == ["shard_000000.tar", "train"]


@pytest.mark.parametrize("more", [(), ("--no-resume",)])
def test_what_lies_behind_a_linked_work_folder_is_not_touched(
    driver: Driver, folder: Path, more: tuple[str, ...]
) -> None:
    names = ("elsewhere/a.txt", "elsewhere/deep/b.txt")
    write_foreign(folder, names)
    (folder / ROOT).mkdir(parents=True)
    (folder / ROOT / ".work").symlink_to(folder / "elsewhere")
    assert untouched(driver, names, *build_arguments("source", *more)) == []


@pytest.mark.parametrize(
    ("more", "split"),
    [
        ((), "train"),
        (("--no-resume",), "rejects"),
        nightly((), "rejects"),
        nightly(("--no-resume",), "train"),
    ],
)
def test_what_lies_behind_a_linked_split_is_not_touched(
    driver: Driver, folder: Path, more: tuple[str, ...], split: str
) -> None:
    names = ("elsewhere/shard_00_tokens.bin", "elsewhere/shard_01.tar")
    write_foreign(folder, names)
    (folder / ROOT).mkdir(parents=True)
    (folder / ROOT / split).symlink_to(folder / "elsewhere")
    assert untouched(driver, names, *build_arguments("source", *more)) == []


def interrupted(driver: Driver, arguments: tuple[str, ...], share: float) -> None:
    """Leaves what a build leaves that is killed after this share of its changes."""
    whole = driver.run(arguments)
    assert whole.code == 0, whole.output
    shutil.rmtree(driver.folder / "place")
    assert driver.run(arguments, fault=Fault(what="kill", number=int(share * len(whole.changes)))).fired


@pytest.mark.parametrize("share", [nightly(0.2), 0.8])
def test_what_others_put_into_an_unfinished_build_is_kept_when_it_is_discarded(
    driver: Driver, folder: Path, share: float
) -> None:
    interrupted(driver, build_arguments(), share)
    write_foreign(folder, WEB_DATASET[:3])
    assert untouched(driver, WEB_DATASET[:3], *build_arguments("source", "--no-resume")) == []


def chat_pack(folder: Path) -> tuple[str, ...]:
    """A command that packs a few transcripts, which are written here."""
    chat_datasets.write_transcripts(folder / "transcripts.jsonl", chat_datasets.transcripts(4))
    chat_datasets.write_tokenizer(folder / "tokenizer.json")
    places = ("--input", "transcripts.jsonl", "--tokenizer", "tokenizer.json", "--out", ROOT)
    return ("chat", "pack", *places, "--block-size", "64", "--workers", "1")


@pytest.mark.parametrize("command", ["build", "chat pack"])
def test_the_temporaries_of_a_build_nested_below_are_its_own(driver: Driver, folder: Path, command: str) -> None:
    nested = (f"{ROOT}/other/.work/rendered_00/.part_00000.parquet.spanloom-tmp-abcdefgh",)
    write_foreign(folder, nested)
    arguments = build_arguments() if command == "build" else chat_pack(folder)
    assert untouched(driver, nested, *arguments) == []


def test_chat_pack_touches_nothing_of_others(driver: Driver, folder: Path) -> None:
    write_foreign(folder, WEB_DATASET[:4])
    assert untouched(driver, WEB_DATASET[:4], *chat_pack(folder)) == []


def _validate(place: str, option: str) -> tuple[str, ...]:
    return ("validate", ROOT, option, place, "--quiet")


WRITING: dict[str, Callable[[str], tuple[str, ...]]] = {
    "validate --html": lambda place: _validate(place, "--html"),
    "validate --report": lambda place: _validate(place, "--report"),
    "blend --out": lambda place: ("blend", ROOT, "--out", place),
    "inspect --html": lambda place: ("inspect", ROOT, "--html", place),
}
KINDS = ("FIFO", "device", "link to a device")


@pytest.mark.parametrize(
    ("name", "kind"),
    [  # each command and each kind by day, all pairs by night
        (name, kind) if number % len(KINDS) == at else nightly(name, kind)
        for number, name in enumerate(WRITING)
        for at, kind in enumerate(KINDS)
    ],
)
def test_an_output_that_is_no_regular_file_is_written_to_or_refused_not_replaced(
    driver: Driver, folder: Path, name: str, kind: str
) -> None:
    must(driver, *build_arguments())
    place = folder / "place/output"
    if kind == "FIFO":
        os.mkfifo(place)
        reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    elif kind == "device":
        try:
            os.mknod(place, 0o666 | 0o020000, os.makedev(1, 3))  # what /dev/null is
        except PermissionError:
            pytest.skip("only root makes devices")
    else:
        place.symlink_to("/dev/null")
    before = place.lstat()
    run = driver.run(WRITING[name]("place/output"), watch=False, seconds=20)
    if kind == "FIFO":
        os.close(reader)
    if not run.in_time:
        raise TimeoutError(run.output)
    assert (place.lstat().st_ino, place.lstat().st_mode) == (before.st_ino, before.st_mode)
