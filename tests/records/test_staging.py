"""Records at a URI are read as the same files here: one of them, or all of a kind below it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from spanloom.errors import StorageError
from spanloom.records.files import find_files, name_below
from spanloom.records.staging import staged_records
from spanloom.storage.publishing import publish_file
from spanloom.storage.scratch import scratch_for
from support.object_stores import Place

SUFFIXES = (".jsonl", ".parquet")
OBJECTS = {"b.jsonl": b"b", "sub/a.jsonl": b"a", "sub/c.parquet": b"c", "notes.txt": b"", "sub.jsonl.md": b""}


def put(place: Place, objects: Mapping[str, bytes], tmp_path: Path) -> None:
    for name, data in objects.items():
        (tmp_path / "object").write_bytes(data)
        publish_file(tmp_path / "object", place.uri / name)


def test_a_local_place_is_itself_and_nothing_is_copied(tmp_path: Path) -> None:
    with scratch_for("test", [str(tmp_path)], tmp_path / "scratch") as here:
        assert staged_records(here, str(tmp_path), SUFFIXES) == tmp_path
        assert staged_records(here, str(tmp_path / "x.jsonl"), SUFFIXES) == tmp_path / "x.jsonl"
    assert not (tmp_path / "scratch").exists()


def test_a_folder_in_a_bucket_has_its_files_of_a_kind_under_their_names(gs_place: Place, tmp_path: Path) -> None:
    put(gs_place, OBJECTS, tmp_path)
    place = str(gs_place.uri)
    with scratch_for("test", [place], tmp_path / "scratch") as here:
        folder = staged_records(here, place, SUFFIXES)
        found = {name_below(file, folder): file.read_bytes() for file in find_files(folder, SUFFIXES)}
        assert found == {"b.jsonl": b"b", "sub/a.jsonl": b"a", "sub/c.parquet": b"c"}
        assert not [path for path in folder.rglob("*") if path.suffix in (".txt", ".md")]


def test_an_object_is_a_file_with_its_own_name(gs_place: Place, tmp_path: Path) -> None:
    put(gs_place, OBJECTS, tmp_path)
    place = str(gs_place.uri / "sub/a.jsonl")
    with scratch_for("test", [place], tmp_path / "scratch") as here:
        (file,) = find_files(staged_records(here, place, SUFFIXES), SUFFIXES)
        assert (file.name, file.read_bytes()) == ("a.jsonl", b"a")


@pytest.mark.parametrize("name", ["", "missing", "missing.jsonl", "notes.txt"])
def test_where_no_object_is_of_a_kind_the_uri_and_the_kinds_are_named(
    gs_place: Place, tmp_path: Path, name: str
) -> None:
    put(gs_place, {"notes.txt": b""}, tmp_path)
    uri = gs_place.uri / name if name else gs_place.uri
    with (
        pytest.raises(StorageError, match=r"there is no \*\.jsonl or \*\.parquet object") as refused,
        scratch_for("test", [str(uri)], tmp_path / "scratch") as here,
    ):
        staged_records(here, str(uri), SUFFIXES)
    assert refused.value.where == str(uri)
