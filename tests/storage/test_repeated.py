"""A folder that is filled again: the same is kept, another is replaced whole, and no kill loses both."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spanloom.errors import ConflictError, OptionError
from spanloom.storage import write_atomically
from spanloom.storage.folders.filling import filling
from spanloom.storage.folders.repeated import MADE_JSON, Output, check_overwritable, finish, made_or_same
from support.folders import files_of

RECORD = ".unfinished"
OUTSIDE = '{"identity": {}, "last": "last.json", "files": {"../x": ""}}'
OLD = {"a.bin": b"old a", "both/b.bin": b"old b", "gone/c.bin": b"old c"}
NEW = {"both/b.bin": b"new b", "d.bin": b"new d"}


def output(name: str) -> Output:
    return Output(identity={"input": name, "options": {"x": 1}}, last="last.json", record_name=RECORD)


def fill(out: Path, name: str, files: dict[str, bytes], **options: bool) -> bool:
    def make(folder: Path) -> None:
        names = [*files, MADE_JSON, "last.json"]
        with filling(folder, record_name=RECORD, identity=name, files=names) as finished:
            if not finished:
                for path, data in files.items():
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(folder / path, data)
                finish(folder, output(name), name.encode())

    return made_or_same(out, output(name), make, **options)


def data(out: Path) -> dict[str, bytes]:
    return {name: value for name, value in files_of(out).items() if name != MADE_JSON}


def test_the_same_is_there_already_and_no_file_or_folder_is_touched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert fill(out, "old", OLD) is False
    before = {path: path.stat().st_mtime_ns for path in (out, *out.rglob("*"))}
    assert fill(out, "old", OLD) is True
    assert fill(out, "old", OLD, overwrite=True) is True
    assert {path: path.stat().st_mtime_ns for path in (out, *out.rglob("*"))} == before


def test_another_needs_overwrite_and_the_refusal_names_what_differs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(out, "old", OLD)
    before = files_of(out)
    with pytest.raises(ConflictError, match="another result of this command: other input") as refusal:
        fill(out, "new", NEW)
    assert "--overwrite" in str(refusal.value.remedy)
    assert files_of(out) == before
    assert fill(out, "new", NEW, overwrite=True) is False
    assert data(out) == {**NEW, "last.json": b"new"}
    assert not (out / "gone").exists()
    assert fill(out, "new", NEW) is True


@pytest.mark.parametrize("name", ["a.bin", "gone/c.bin"])
@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"xld a")], ids=["missing", "changed"])
def test_a_damaged_result_is_not_the_same_and_is_made_again_on_request(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    fill(out, "old", OLD)
    before = files_of(out)
    change(out / name)
    with pytest.raises(ConflictError, match=f"{name} is missing or was changed"):
        fill(out, "old", OLD)
    assert fill(out, "old", OLD, overwrite=True) is False
    assert files_of(out) == before


@pytest.mark.parametrize("foreign", ["notes.txt", "both/notes.txt", ".hidden"])
def test_files_of_others_stop_a_replacement_before_anything_is_written(tmp_path: Path, foreign: str) -> None:
    out = tmp_path / "out"
    fill(out, "old", OLD)
    (out / foreign).write_text("mine")
    before = files_of(out)
    with pytest.raises(ConflictError, match="the command did not write"):
        fill(out, "new", NEW, overwrite=True)
    assert files_of(out) == before


def test_what_no_record_describes_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(out, "old", OLD)
    (out / MADE_JSON).unlink()
    before = files_of(out)
    with pytest.raises(ConflictError, match="is not empty"):
        fill(out, "new", NEW, overwrite=True)
    assert files_of(out) == before


@pytest.mark.parametrize("text", ["{}", "[1]", "no JSON", OUTSIDE])
def test_a_record_of_others_removes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text("mine")
    out = tmp_path / "out"
    fill(out, "old", OLD)
    (out / MADE_JSON).write_text(text)
    with pytest.raises(ConflictError):
        fill(out, "new", NEW, overwrite=True)
    assert (tmp_path / "x").read_text() == "mine"
    assert (out / "a.bin").read_bytes() == b"old a"


class KilledError(BaseException):
    """In the place of a kill: no code of the package catches it."""


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """From change `number` on, every change of the file system fails. Returns a function: how many were asked for."""
    asked = 0
    for name in ("rename", "replace", "link", "unlink", "rmdir", "mkdir"):
        original = getattr(os, name)

        def change(*given: object, _original: Callable[..., None] = original, **options: object) -> None:
            nonlocal asked
            asked += 1
            if asked > number:
                raise KilledError
            _original(*given, **options)

        monkeypatch.setattr(os, name, change)
    return lambda: asked


def changes_of_a_replacement(tmp_path: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        fill(tmp_path / "counted", "old", OLD)
        asked = killed_at(1 << 30, patch)
        fill(tmp_path / "counted", "new", NEW, overwrite=True)
        return asked()


def test_killed_before_any_change_one_of_the_two_stands_and_each_command_finishes(tmp_path: Path) -> None:
    total = changes_of_a_replacement(tmp_path)
    assert total > 15
    for number in range(total):
        for then in ("old", "new"):
            out = tmp_path / f"{number}-{then}"
            fill(out, "old", OLD)
            with pytest.MonkeyPatch.context() as patch:
                killed_at(number, patch)
                with pytest.raises(KilledError):
                    fill(out, "new", NEW, overwrite=True)
            if (out / "last.json").exists():
                wanted = OLD if (out / "last.json").read_bytes() == b"old" else NEW
                assert {name: (out / name).read_bytes() for name in wanted} == wanted, number
            fill(out, then, {"old": OLD, "new": NEW}[then], overwrite=True)
            assert {name: value for name, value in data(out).items() if ".spanloom-" not in name} == {
                **{"old": OLD, "new": NEW}[then],
                "last.json": then.encode(),
            }, number
            assert fill(out, then, {"old": OLD, "new": NEW}[then]) is True


def test_a_uri_is_not_overwritten() -> None:
    check_overwritable("gs://bucket/out", False)
    with pytest.raises(OptionError, match="replaces folders on this machine"):
        check_overwritable("gs://bucket/out", True)
