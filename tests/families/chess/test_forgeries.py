"""Prepared games whose manifest or data were changed, with all that follows: validation finds each change."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.dataset.manifest import MANIFEST_NAME, ManifestError
from spanloom.families.chess.build import PrepareOptions, prepare, totals_of
from spanloom.families.chess.verify.games import Checks, validate_root
from spanloom.provenance import canonical_json, sha256_json
from spanloom.split import id_digests, is_valid
from spanloom.storage import sha256_file
from support.chess_games import (
    BAD_FEN,
    folder_of_games,
    played_game,
    thinking_rows,
    write_games,
    write_thinking,
)
from support.nightly import drawn


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    _write(folder)
    return folder


@pytest.fixture
def with_rejects(clean: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """The root, the games and the thinking rows: some of both were left out, and some best moves are missing."""
    folder = Path(shutil.copytree(clean, tmp_path / "made"))
    return folder / "root", folder / "games", folder / "thinking"


def _write(folder: Path) -> None:
    games = folder_of_games(folder / "games", [4, 3, 3], plies=6)
    rows = [row for name in ("bad fen", "bad move", "no ply", "good", "other") for row in played_game(name, 5, 0)]
    rows[1]["fen"], rows[7]["played_move"], rows[12]["ply"] = BAD_FEN, "zz99", None
    rows[16]["best_move"], rows[17]["best_move"], rows[22]["best_move"] = None, "zz99", ""
    write_games(games / "part_03.parquet", [*rows, {**rows[18], "game_id": None}])
    bad = list(thinking_rows(14))
    bad[4]["variations"], bad[7]["fen"], bad[9]["variations"] = "{", BAD_FEN, '[{"visit_count": "many"}]'
    write_thinking(folder / "thinking/a.parquet", bad)
    write_thinking(folder / "thinking/b.parquet", thinking_rows(4))
    result = prepare(
        PrepareOptions(root=folder / "root", games=games, thinking=folder / "thinking", valid_fraction=0.3, deep=None)
    )
    assert result.report.clean, result.report.findings


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, (*place, key))
    else:
        yield place, value


def _other(value: Any) -> Any:
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value + 1e-7
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return {"x": 1} if value == {} else ["x"] if value == [] else "x"


def test_every_value_of_the_manifest_that_is_changed_is_found(with_rejects: tuple[Path, Path, Path]) -> None:
    root, games, thinking = with_rejects
    before = (root / MANIFEST_NAME).read_bytes()
    unseen = []
    leaves = list(_leaves(json.loads(before)["content"]))
    assert len(leaves) > 60
    for place, value in leaves[:: drawn(1, 4)]:
        if place[0] == "git_sha" or ("files" in place and place[place.index("files") + 1] > 0):
            continue
        said = json.loads(before)
        inner = said["content"]
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = _other(value)
        (root / MANIFEST_NAME).write_text(json.dumps(said))
        try:
            if validate_root(root, Checks(games=games, thinking=thinking, deep=0)).clean:
                unseen.append(place)
        except ManifestError:
            continue
    assert unseen == []


def _relisted(root: Path, said: dict[str, Any]) -> None:
    """The manifest with sizes and hashes of the files as they are now, and totals that are the sums of its shards."""
    content = said["content"]
    for shard in content["shards"]:
        files = [file for counts in shard["splits"].values() for file in counts["files"]]
        for file in [*files, *filter(None, [shard["rejects_file"]])]:
            path = root / file["path"]
            file |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    content["totals"] = {
        kind: totals_of([shard for shard in content["shards"] if shard["kind"] == kind])
        for kind in ("games", "thinking")
    }
    content["config_sha256"] = sha256_json(content["config"])
    (root / MANIFEST_NAME).write_text(json.dumps(said))


def _shard(said: dict[str, Any], kind: str, number: int) -> Any:
    return next(one for one in said["content"]["shards"] if (one["kind"], one["shard"]) == (kind, number))


def _array(root: Path, name: str, change: Callable[[Any], Any], split: str = "train") -> None:
    path = root / split / f"{name}.npy"
    np.save(path, change(np.load(path)))


def _counted(kind: str, **more: int) -> Callable[[Path, Any], None]:
    def change(root: Path, said: Any) -> None:
        shard = _shard(said, kind, 3 if kind == "games" else 0)
        for name, number in more.items():
            shard[name] += number
        if "rows_read" in more:
            said["content"]["input"][kind][shard["shard"]]["rows"] = shard["rows_read"]

    return change


def _last_game_dropped(root: Path, said: Any) -> None:
    counts = _shard(said, "games", 0)["splits"]["train"]
    offsets = np.load(root / "train/games_00000_offsets.npy")
    end = int(offsets[-2])
    for name in ("boards", "played", "best", "values", "plies"):
        _array(root, f"games_00000_{name}", lambda array: array[:end])
    for name in ("offsets", "keys"):
        _array(root, f"games_00000_{name}", lambda array: array[:-1])
    path = root / "train/games_00000_ids.parquet"
    pq.write_table(pq.read_table(path).slice(0, counts["items"] - 1), path)
    counts["items"] -= 1
    counts["positions"] -= int(offsets[-1]) - end
    shard = _shard(said, "games", 0)
    shard["null_rows"] += int(offsets[-1]) - end


def _last_row_dropped(root: Path, said: Any) -> None:
    shard = _shard(said, "thinking", 1)
    counts = shard["splits"]["train"]
    rows, nodes = (np.load(root / f"train/thinking_00001_{name}_offsets.npy") for name in ("row", "node"))
    first, at = int(rows[-2]), int(nodes[rows[-2]])
    for name in ("row_offsets", "keys", "numbers", "boards", "finals", "values"):
        _array(root, f"thinking_00001_{name}", lambda array: array[:-1])
    for name, end in (("root_moves", first), ("visits", first), ("fractions", first), ("node_offsets", first + 1)):
        _array(root, f"thinking_00001_{name}", lambda array, end=end: array[:end])
    for name in ("node_boards", "node_moves", "node_values"):
        _array(root, f"thinking_00001_{name}", lambda array: array[:at])
    path = root / "train/thinking_00001_ids.parquet"
    pq.write_table(pq.read_table(path).slice(0, counts["items"] - 1), path)
    counts["items"] -= 1
    counts["positions"] -= 1 + int(nodes[-1]) - at


def _file_left_out(root: Path, said: Any) -> None:
    said["content"]["shards"].remove(_shard(said, "games", 3))
    said["content"]["input"]["games"].pop()
    for path in root.glob("*/games_00003*"):
        path.unlink()


def _rejects(change: Callable[[list[dict[str, Any]]], Any], kind: str = "games_00003") -> Callable[[Path, Any], None]:
    def changed(root: Path, said: Any) -> None:
        path = root / f"rejects/{kind}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(lines)
        path.write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))

    return changed


def _nonsense(root: Path, said: Any) -> None:
    (root / "rejects/games_00003.jsonl").write_text("nonsense\n")


def _invented(root: Path, said: Any) -> None:
    _shard(said, "games", 0)["rejected"] = {"bad fen": 1}


def _good_game_left_out(root: Path, said: Any) -> None:
    shard = _shard(said, "games", 0)
    name = pq.read_table(root / "train/games_00000_ids.parquet").column(0).to_pylist()[-1]
    _last_game_dropped(root, said)
    shard["null_rows"] = 0
    reject = {"file": shard["source"], "game_id": name, "ply": 1, "reason": "bad fen", "detail": "x"}
    (root / "rejects/games_00000.jsonl").write_bytes(canonical_json(reject) + b"\n")
    shard["rejected"], shard["rejects_file"] = {"bad fen": 1}, {"path": "rejects/games_00000.jsonl"}


def _plies(change: Callable[[Any], Any]) -> Callable[[Path, Any], None]:
    return lambda root, _: _array(root, "games_00000_plies", change)


def _fraction(root: Path, said: Any) -> None:
    said["content"]["split"]["valid_fraction"] = said["content"]["config"]["valid_fraction"] = 0.2999


def _bytes_behind(root: Path, said: Any) -> None:
    path = root / "train/games_00000_played.npy"
    path.write_bytes(path.read_bytes() + b"more" * 100)


def _ids(change: Callable[[Any], Any], kind: str = "games") -> Callable[[Path, Any], None]:
    def changed(root: Path, said: Any) -> None:
        path = root / f"train/{kind}_00000_ids.parquet"
        pq.write_table(change(pq.read_table(path)), path)

    return changed


def _other_fen(table: Any) -> Any:
    """The fen of the same split and board, whose counters are others."""
    first, *rest = table.column("fen").to_pylist()
    board = " ".join(first.split()[:4])
    made = next(
        fen
        for fen in (f"{board} {moves} {moves + 1}" for moves in range(20, 99))
        if not is_valid(id_digests([fen]), 0.3)[0]
    )
    return pa.table({"fen": [made, *rest]})


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (_counted("thinking", rows_read=1), "manifest"),
        (_counted("thinking", null_rows=1), "manifest"),
        (_counted("games", best_missing=1), "manifest"),
        (_counted("games", best_unknown=1), "manifest"),
        (_invented, "manifest"),
        (_fraction, "manifest"),
        (_nonsense, "rejects"),
        (_rejects(lambda lines: lines.pop()), "rejects"),
        (_rejects(lambda lines: lines[0].update(file="part_00.parquet")), "rejects"),
        (_rejects(lambda lines: lines[0].update(game_id="good")), "rejects"),
        (_rejects(lambda lines: lines[0].update(game_id="row 5"), "thinking_00000"), "rejects"),
        (_bytes_behind, "arrays"),
        (_ids(lambda table: table.append_column("more", table.column(0))), "arrays"),
        (_ids(lambda table: table.slice(1)), "arrays"),
        (_ids(lambda table: pa.table({"fen": table.column(0).to_pylist()[::-1]}), "thinking"), "fens"),
    ],
)
def test_forgeries_are_found_without_a_source(
    with_rejects: tuple[Path, Path, Path], change: Callable[[Path, Any], None], check: str
) -> None:
    root, _, _ = with_rejects
    said = json.loads((root / MANIFEST_NAME).read_bytes())
    change(root, said)
    _relisted(root, said)
    assert check in validate_root(root, Checks()).found


@pytest.mark.parametrize(
    ("change", "said_of"),
    [
        (_counted("games", rows_read=1), "input: rows is"),
        (_counted("games", null_rows=1), "null_rows is 2, by the source 1"),
        (_counted("games", best_missing=-1, best_unknown=1), "best_missing is 1, by the source 2"),
        (_last_game_dropped, "is in the source, but neither in the prepared games nor in the rejects"),
        (_file_left_out, "the folder holds this file, which was not prepared"),
        (_good_game_left_out, "has a reject that differs"),
        (_rejects(lambda lines: lines[0].update(detail="x")), "has a reject that differs"),
        (_rejects(lambda lines: lines[0].update(ply=3)), "has a reject that differs"),
        (_rejects(lambda lines: lines.reverse()), "not in the order of the source"),
        (_rejects(lambda lines: lines[0].update(detail="x"), "thinking_00000"), "row 4 has a reject that differs"),
        (_plies(lambda array: array + 7), "differs from the source"),
        (_plies(lambda array: array * 2), "differs from the source"),
        (_ids(_other_fen, "thinking"), "has another fen in the source"),
    ],
)
def test_forgeries_that_look_right_are_found_by_the_source(
    with_rejects: tuple[Path, Path, Path], change: Callable[[Path, Any], None], said_of: str
) -> None:
    root, games, thinking = with_rejects
    said = json.loads((root / MANIFEST_NAME).read_bytes())
    change(root, said)
    _relisted(root, said)
    by_itself = validate_root(root, Checks())
    assert by_itself.clean, by_itself.findings
    deep = None if "differs" in said_of else 0
    report = validate_root(root, Checks(games=games, thinking=thinking, deep=deep))
    assert set(report.found) == {"source"}, report.findings
    assert any(said_of in finding.message for finding in report.findings), report.findings


def test_a_thinking_row_that_is_not_there_is_found_without_a_source(with_rejects: tuple[Path, Path, Path]) -> None:
    root, _, _ = with_rejects
    said = json.loads((root / MANIFEST_NAME).read_bytes())
    _last_row_dropped(root, said)
    _relisted(root, said)
    assert set(validate_root(root, Checks()).found) == {"manifest"}
    # With the number of rows forged to fit, their numbers have a gap; or the source has one row more.
    _shard(said, "thinking", 1)["rows_read"] -= 1
    said["content"]["input"]["thinking"][1]["rows"] -= 1
    _relisted(root, said)
    report = validate_root(root, Checks(thinking=with_rejects[2], deep=0))
    assert set(report.found) <= {"rejects", "source"}
    assert not report.clean


def test_ids_that_are_floats_or_missing_are_compared_all_the_same(tmp_path: Path) -> None:
    rows = [row for name in (1, 2, 3) for row in played_game(name, 4, 0)]
    for row in rows:
        row["game_id"] = float(row["game_id"])
    write_games(tmp_path / "games/a.parquet", [*rows, {**rows[0], "game_id": float("nan")}], None)
    result = prepare(PrepareOptions(root=tmp_path / "root", games=tmp_path / "games", deep=None))
    assert result.report.clean, result.report.findings
    assert result.report.checked["source games"] == 3
    assert result.manifest["content"]["totals"]["games"]["null_rows"] == 1
