"""Prepared games: the same samples, the same bytes, whole or not at all."""

import errno
import json
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spanloom.dataset.manifest import MANIFEST_NAME, PENDING_NAME, ManifestError, promote
from spanloom.dataset.manifest import files_of as listed_files
from spanloom.errors import ConflictError, RejectedRowError, SourceError, SpanloomError
from spanloom.families.chess import build, manifest
from spanloom.families.chess.build import PrepareOptions, assemble, hashed_file, prepare, prepare_shard
from spanloom.families.chess.encoding import python_chess
from spanloom.families.chess.errors import ChessError, NoFilesError
from spanloom.families.chess.loader import ChessIterableDataset, FinetuneIterableDataset
from spanloom.families.chess.options import PrepareRules
from spanloom.families.chess.reading import folders
from spanloom.families.chess.reading.folders import open_files
from spanloom.families.chess.reading.prepared import write_table
from spanloom.families.chess.reading.source import read_games, read_table
from spanloom.families.chess.reading.tables import Kind
from spanloom.split import id_digests, is_valid
from support.chess_games import BAD_FEN, folder_of_games, played_game, thinking_rows, write_games, write_thinking
from support.opened_files import opens_of


@pytest.fixture
def games(tmp_path: Path) -> Path:
    folder = folder_of_games(tmp_path / "games", [5, 5, 5])
    bad = played_game("bad", 5, 0)
    bad[1]["played_move"] = "zz99"
    rows = played_game("good", 6, 0)
    rows[3]["best_move"] = None
    write_games(folder / "part_03.parquet", [*bad, *rows, {**rows[0], "game_id": None}])
    return folder


@pytest.fixture
def thinking(tmp_path: Path) -> Path:
    folder = tmp_path / "thinking"
    rows = list(thinking_rows(9))
    rows[4]["variations"] = "{"
    write_thinking(folder / "a.parquet", rows[:5])
    write_thinking(folder / "b.parquet", rows[5:])
    return folder


def options(tmp_path: Path, **more: Any) -> PrepareOptions:
    return PrepareOptions(**{"root": tmp_path / "root", "valid_fraction": 0.3, "deep": None, **more})


def files_of(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != MANIFEST_NAME
    }


def assert_same(one: Any, other: Any) -> None:
    first, second = list(one), list(other)
    assert len(first) == len(second) > 0
    for left, right in zip(first, second, strict=True):
        assert left.keys() == right.keys()
        for name in left:
            assert torch.equal(left[name], right[name]), name


def test_the_same_sequence_from_parquet_and_prepared(games: Path, thinking: Path, tmp_path: Path) -> None:
    result = prepare(options(tmp_path, games=games, thinking=thinking, valid_fraction=0.0))
    assert result.report.clean, result.report.findings
    for epoch in range(2):
        assert_same(ChessIterableDataset(games, 200, epoch=epoch), ChessIterableDataset(result.root, 200, epoch=epoch))
        assert_same(
            FinetuneIterableDataset(games, thinking, 500, 0.5, epoch=epoch),
            FinetuneIterableDataset(result.root, result.root, 500, 0.5, epoch=epoch),
        )
    shares = [ChessIterableDataset(place, 200, rank=1, world_size=3) for place in (games, result.root)]
    assert_same(*shares)


def test_the_manifest_of_a_root_of_both_is_checked_once_a_process(
    games: Path, thinking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = prepare(options(tmp_path, games=games, thinking=thinking)).root
    other = shutil.copytree(root, tmp_path / "other")
    read: list[Path] = []

    def reading(place: Path) -> Any:
        read.append(place)
        return manifest.read(place)

    monkeypatch.setattr(folders, "read", reading)
    FinetuneIterableDataset(str(root), root, 500, 0.5)
    assert read == [root]
    FinetuneIterableDataset(root, other, 500, 0.5)
    assert read == [root, other]


def test_train_and_valid_are_what_the_ids_say(games: Path, thinking: Path, tmp_path: Path) -> None:
    root = prepare(options(tmp_path, games=games, thinking=thinking)).root
    whole = {part["input_ids"].numpy().tobytes() for part in ChessIterableDataset(games, 200)}
    splits = [
        {part["input_ids"].numpy().tobytes() for part in ChessIterableDataset(root, 200, split=split)}  # type: ignore[arg-type]
        for split in ("train", "valid")
    ]
    assert splits[0] | splits[1] == whole
    assert not splits[0] & splits[1]
    ids = [name for path in sorted(games.glob("*.parquet")) for name in read_games(path).ids]
    assert len(splits[1]) == is_valid(id_digests(ids), 0.3).sum() > 0


def test_what_the_manifest_says(games: Path, thinking: Path, tmp_path: Path) -> None:
    result = prepare(options(tmp_path, games=games, thinking=thinking))
    content = manifest.read(result.root)["content"]
    assert content == result.manifest["content"]
    totals = content["totals"]
    assert totals["games"]["rejected"] == {"unknown played_move": 1}
    assert totals["games"]["null_rows"] == 1
    assert totals["games"]["best_missing"] == 1
    assert totals["thinking"]["rejected"] == {"bad variations": 1}
    assert sum(counts["items"] for counts in totals["games"]["splits"].values()) == 16
    assert sum(counts["items"] for counts in totals["thinking"]["splits"].values()) == 8
    assert totals["games"]["rows_read"] == 15 * 6 + 5 + 6 + 1
    rejects = [json.loads(line) for line in (result.root / "rejects/games_00003.jsonl").read_text().splitlines()]
    assert [(reject["game_id"], reject["ply"]) for reject in rejects] == [("bad", 1)]
    assert not (result.root / ".work").exists()
    assert not (result.root / PENDING_NAME).exists()


def test_the_bytes_hang_on_neither_workers_nor_the_day(games: Path, thinking: Path, tmp_path: Path) -> None:
    one = prepare(options(tmp_path, games=games, thinking=thinking))
    other = prepare(options(tmp_path, root=tmp_path / "other", games=games, thinking=thinking, workers=2))
    assert files_of(one.root) == files_of(other.root)
    assert one.manifest["content"] == other.manifest["content"]


def test_a_run_that_was_stopped_goes_on(games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare(options(tmp_path, root=tmp_path / "whole", games=games))
    done: list[str] = []
    real = prepare_shard

    def stopping(path: Path, *arguments: Any, **named: Any) -> dict[str, Any]:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(path.name)
        return real(path, *arguments, **named)

    monkeypatch.setattr(build, "prepare_shard", stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare(options(tmp_path, games=games))
    assert not (tmp_path / "root" / MANIFEST_NAME).exists()
    with pytest.raises(ManifestError):
        manifest.read(tmp_path / "root")
    # What a killed process leaves besides: a temporary file, an array that was cut off.
    (tmp_path / "root/train/.games_00002_boards.npy.spanloom-tmp-1").write_bytes(b"")
    again: list[str] = []

    def counting(path: Path, *arguments: Any, **named: Any) -> dict[str, Any]:
        again.append(path.name)
        return real(path, *arguments, **named)

    monkeypatch.setattr(build, "prepare_shard", counting)
    result = prepare(options(tmp_path, games=games))
    assert result.report.clean
    assert again == ["part_02.parquet", "part_03.parquet"], "finished files are kept"
    assert files_of(result.root) == files_of(whole.root)


def test_prepared_games_are_not_prepared_again(games: Path, tmp_path: Path) -> None:
    first = prepare(options(tmp_path, games=games))
    times = {path: path.stat().st_mtime_ns for path in first.root.rglob("*") if path.is_file()}
    second = prepare(options(tmp_path, games=games))
    assert second.already_built
    assert second.report.clean
    assert times == {path: path.stat().st_mtime_ns for path in first.root.rglob("*") if path.is_file()}


def test_another_run_does_not_take_the_root(games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(options(tmp_path, games=games))
    with pytest.raises(ConflictError, match="other options"):
        prepare(options(tmp_path, games=games, valid_fraction=0.4))
    write_games(games / "part_09.parquet", played_game("new", 4, 0))
    with pytest.raises(ConflictError, match="another source"):
        prepare(options(tmp_path, games=games))
    (games / "part_09.parquet").unlink()
    monkeypatch.setenv("SPANLOOM_GIT_SHA", "1" * 40)
    build.git_sha.cache_clear()
    try:
        with pytest.raises(ConflictError, match="other code"):
            prepare(options(tmp_path, games=games))
    finally:
        build.git_sha.cache_clear()


@pytest.mark.parametrize("name", ["train/games_00000_boards.npy", "notes.txt", ".work/notes.txt"])
def test_a_root_of_somebody_else_is_refused_and_stays_as_it_is(games: Path, tmp_path: Path, name: str) -> None:
    foreign = tmp_path / "root" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    with pytest.raises(ConflictError, match="the output root holds what no build of Spanloom made"):
        prepare(options(tmp_path, games=games))
    assert files_of(tmp_path / "root") == {name: b"mine"}


@pytest.fixture
def _unfinished(games: Path, tmp_path: Path) -> None:
    """A run that ended before it wrote the manifest."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build, "assemble", lambda *_arguments, **_named: (_ for _ in ()).throw(KeyboardInterrupt))
        prepare(options(tmp_path, games=games))


@pytest.mark.usefixtures("_unfinished")
def test_unfinished_games_of_another_run_are_not_mixed_in(games: Path, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="unfinished"):
        prepare(options(tmp_path, games=games, valid_fraction=0.5))
    assert prepare(options(tmp_path, games=games)).report.clean


@pytest.mark.parametrize(
    ("when", "workers"),
    [("before it is read", 1), ("before it is read", 2), ("while it is read", 1), ("after it was read", 1)],
)
def test_a_source_that_changes_during_the_run_stops_it(
    games: Path, tmp_path: Path, when: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = folder_of_games(tmp_path / "other", [5], seed=1) / "part_00.parquet"
    changing = sorted(games.glob("*.parquet"))[1]

    def hashing(path: Path) -> Any:
        state = hashed_file(path)
        if path == changing and when == "before it is read":
            shutil.copy(other, path)
        return state

    def reading(path: Path, kind: Kind) -> Any:
        if path == changing and when == "while it is read":
            path.write_bytes(b"PAR1")
        table = read_table(path, kind)
        if path == changing and when == "after it was read":
            shutil.copy(other, path)
        return table

    monkeypatch.setattr(build, "hashed_file", hashing)
    monkeypatch.setattr(build, "read_table", reading)
    with pytest.raises(SourceError, match="was changed, replaced or touched while it was read") as stopped:
        prepare(options(tmp_path, games=games, deep=0, workers=workers))
    assert stopped.value.where == str(changing)
    monkeypatch.undo()
    shutil.copy(other, changing)
    assert not (tmp_path / "root" / MANIFEST_NAME).exists()
    with pytest.raises(ConflictError, match="discard it with --no-resume"):
        prepare(options(tmp_path, games=games))
    assert prepare(options(tmp_path, games=games, resume=False)).report.clean
    whole = prepare(options(tmp_path, root=tmp_path / "whole", games=games))
    assert files_of(tmp_path / "root") == files_of(whole.root), "nothing is left of the other state"


@pytest.mark.usefixtures("_unfinished")
def test_no_resume_discards_what_the_unfinished_run_made_and_nothing_else(games: Path, tmp_path: Path) -> None:
    (tmp_path / "root/notes.txt").write_bytes(b"mine")
    (games / "part_03.parquet").unlink()
    result = prepare(options(tmp_path, games=games, valid_fraction=0.0, resume=False))
    assert result.report.clean
    assert (result.root / "notes.txt").read_bytes() == b"mine"
    assert not (result.root / "rejects").exists()
    listed = {file.path for file in listed_files(result.manifest["content"])}
    assert files_of(result.root).keys() == listed | {"notes.txt"}


def test_findings_keep_the_manifest_pending(tmp_path: Path) -> None:
    rows = played_game("g", 6, 0)
    rows[2]["win"] = 7.0
    write_games(tmp_path / "games/x.parquet", rows)
    result = prepare(options(tmp_path, games=tmp_path / "games"))
    assert not result.report.clean
    assert not (result.root / MANIFEST_NAME).exists()
    assert (result.root / PENDING_NAME).exists()
    with pytest.raises(ManifestError, match="finished"):
        ChessIterableDataset(result.root)
    fixed = prepare(options(tmp_path, root=tmp_path / "other", games=tmp_path / "games", tolerance=7.0))
    assert fixed.report.clean


def test_with_raise_the_first_bad_game_stops(games: Path, tmp_path: Path) -> None:
    with pytest.raises(ChessError, match=r"(?s)zz99.*part_03\.parquet, game bad, ply 1"):
        prepare(options(tmp_path, games=games, on_error="raise"))
    assert not (tmp_path / "root" / MANIFEST_NAME).exists()


def test_folders_and_fractions_that_will_not_do(games: Path, tmp_path: Path) -> None:
    with pytest.raises(NoFilesError):
        prepare(options(tmp_path))
    with pytest.raises(NoFilesError):
        prepare(options(tmp_path, games=tmp_path / "nowhere"))
    with pytest.raises(ConflictError, match="in one another"):
        prepare(options(tmp_path, games=games, root=games / "out"))
    with pytest.raises(ValueError, match="valid_fraction"):
        prepare(options(tmp_path, games=games, valid_fraction=1.5))
    with pytest.raises(SpanloomError, match="workers"):
        prepare(options(tmp_path, games=games, workers=0))


def test_legal_moves_are_not_asked_for_after_hours_without_python_chess(
    games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_chess, "python_chess", lambda: None)
    with pytest.raises(SpanloomError, match=r"(?s)--legal needs python-chess.*pip install 'spanloom\[chess\]'"):
        prepare(options(tmp_path, games=games, legal=True))
    assert not (tmp_path / "root").exists()


def test_a_file_without_a_usable_game_writes_nothing(tmp_path: Path) -> None:
    folder = folder_of_games(tmp_path / "games", [3])
    write_games(folder / "zz.parquet", [{**row, "fen": BAD_FEN} for row in played_game("bad", 3, 0)])
    result = prepare(options(tmp_path, games=folder, valid_fraction=0.0))
    assert result.report.clean
    assert [shard["splits"] == {} for shard in result.manifest["content"]["shards"]] == [False, True]
    assert len(list(ChessIterableDataset(result.root, 100))) == 3
    with pytest.raises(FileNotFoundError, match="valid"):
        ChessIterableDataset(result.root, split="valid")
    with pytest.raises(FileNotFoundError, match="thinking rows"):
        FinetuneIterableDataset(result.root, result.root)


def test_steps_apart_make_what_one_run_makes(games: Path, thinking: Path, tmp_path: Path) -> None:
    """As on a cluster: each file by itself, in any order, then the manifest of all."""
    whole = prepare(options(tmp_path, games=games, thinking=thinking))
    root = tmp_path / "steps"
    inventories = []
    for kind, folder in (("thinking", thinking), ("games", games)):
        for number, path in reversed(list(enumerate(sorted(folder.glob("*.parquet"))))):
            made = prepare_shard(path, kind, number, root, PrepareRules(valid_fraction=0.3))  # type: ignore[arg-type]
            inventories.append(json.loads(json.dumps(made)))
    assembled = assemble(root, inventories, valid_fraction=0.3)
    assert assembled["content"] == whole.manifest["content"]
    promote(root, manifest.check)
    assert files_of(root) == files_of(whole.root)
    with pytest.raises(ChessError, match=r"\[0, 1, 3\]"):
        assemble(tmp_path / "less", inventories[:3] + inventories[4:], valid_fraction=0.3)


def test_publishing_twice_changes_nothing_and_other_bytes_are_a_conflict(games: Path, tmp_path: Path) -> None:
    path = sorted(games.glob("*.parquet"))[0]
    first = prepare_shard(path, "games", 0, tmp_path / "root", PrepareRules(valid_fraction=0.3))
    assert prepare_shard(path, "games", 0, tmp_path / "root", PrepareRules(valid_fraction=0.3)) == first
    with pytest.raises(ConflictError, match="other bytes"):
        prepare_shard(
            sorted(games.glob("*.parquet"))[1], "games", 0, tmp_path / "root", PrepareRules(valid_fraction=0.3)
        )


def test_a_write_that_fails_half_way_says_why(games: Path, tmp_path: Path) -> None:
    """As on a full disk, which has the same way out: an OSError whose errno the command knows what to say of."""
    table = read_games(sorted(games.glob("*.parquet"))[0])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as failed:
            write_table(tmp_path / "root", "train", "games", 0, table)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert failed.value.errno == errno.EFBIG


def test_arrays_are_small_stay_on_the_disk_and_may_be_moved(games: Path, tmp_path: Path) -> None:
    root = prepare(options(tmp_path, games=games, valid_fraction=0.0)).root
    boards = np.load(root / "train/games_00000_boards.npy")
    assert (boards.dtype, boards.shape) == (np.uint8, (30, 68))
    assert np.load(root / "train/games_00000_played.npy").dtype == np.int16
    table = open_files(root, "games", "train", "skip").table(0)
    assert isinstance(table.boards.base, np.memmap)
    samples = list(ChessIterableDataset(root, 100))
    assert_same(ChessIterableDataset(shutil.copytree(root, tmp_path / "copy"), 100), samples)


def test_the_manifest_is_read_once_a_process_and_again_where_it_changed(
    games: Path, thinking: Path, tmp_path: Path
) -> None:
    root = prepare(options(tmp_path, games=games, thinking=thinking, valid_fraction=0.0)).root
    opened = [ChessIterableDataset(root, 100)]

    def open_again() -> None:
        opened.append(ChessIterableDataset(root, 100))
        FinetuneIterableDataset(root, root, 100)

    assert opens_of(root / MANIFEST_NAME, open_again) == 0
    (root / MANIFEST_NAME).write_text((root / MANIFEST_NAME).read_text() + " ")
    assert opens_of(root / MANIFEST_NAME, open_again) == 2  # is it prepared games at all, and its content


def test_a_manifest_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="not a finished dataset"):
        manifest.read(tmp_path)
    (tmp_path / MANIFEST_NAME).write_text("{")
    with pytest.raises(ManifestError, match="not JSON"):
        manifest.read(tmp_path)
    (tmp_path / MANIFEST_NAME).write_text('{"schema_version": "spanloom_dataset_v1"}')
    assert not manifest.is_prepared(tmp_path)
    with pytest.raises(ManifestError, match="spanloom_chess_v1"):
        manifest.read(tmp_path)


def test_parquet_files_beside_a_manifest_of_something_else_are_parquet_files(tmp_path: Path) -> None:
    folder = folder_of_games(tmp_path, [2])
    (folder / MANIFEST_NAME).write_text('{"schema_version": "synth_harmony_v1"}')
    assert len(list(ChessIterableDataset(folder, 100))) == 2


def test_bad_games_are_set_aside_up_to_a_limit(games: Path, tmp_path: Path) -> None:
    with pytest.raises(RejectedRowError, match=r"part_03(?s:.*)game bad(?s:.*)--max-rejects"):
        prepare(options(tmp_path, games=games, max_rejects="0"))
    made = prepare(options(tmp_path, games=games, max_rejects="1"))
    assert made.report.clean
    assert sum(made.manifest["content"]["totals"]["games"]["rejected"].values()) == 1
    assert len(list((made.root / "rejects").iterdir())) == 1
    with pytest.raises(ConflictError, match="--max-rejects"):
        prepare(options(tmp_path, games=games, max_rejects="0"))
