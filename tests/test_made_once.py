"""What tests share is made by the first that asks for it, and by nobody again."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import made_once as module
from support.made_once import made_below, made_once


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_folder", [])
    made_below(tmp_path)


def test_of_two_that_ask_at_once_one_makes_it_and_the_other_waits() -> None:
    made, asked = [], threading.Barrier(2)

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "a").write_text("whole")

    def ask() -> str:
        asked.wait()
        return (made_once("it", make) / "a").read_text()

    with ThreadPoolExecutor(2) as threads:
        assert [each.result() for each in [threads.submit(ask) for _ in "ab"]] == ["whole"] * 2
    assert len(made) == 1


def test_what_could_not_be_made_is_not_taken_for_made() -> None:
    def fails(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        made_once("it", fails)
    with pytest.raises(FileExistsError):
        made_once("it", fails)
