"""Validation: clean games are clean, and each kind of damage is found where it lies."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.dataset.manifest import MANIFEST_NAME, ManifestError
from spanloom.families.chess import manifest
from spanloom.families.chess.build import PrepareOptions, prepare
from spanloom.families.chess.encoding.fen import parse_fen
from spanloom.families.chess.encoding.python_chess import board_from_tokens, legal_move, tokens_by_python_chess
from spanloom.families.chess.encoding.vocabulary import MOVE_IDS
from spanloom.families.chess.reading.prepared import array_path
from spanloom.families.chess.verify import copies as verify_copies
from spanloom.families.chess.verify.games import (
    Checks,
    board_faults,
    validate_folder,
    validate_place,
    validate_root,
    value_faults,
)
from spanloom.provenance import sha256_json
from spanloom.storage import sha256_file
from support.chess_games import (
    BAD_FEN,
    folder_of_games,
    played_game,
    positions,
    thinking_rows,
    write_games,
    write_thinking,
)


@pytest.fixture
def games(tmp_path: Path) -> Path:
    return folder_of_games(tmp_path / "games", [4, 3], plies=8)


@pytest.fixture
def thinking(tmp_path: Path) -> Path:
    return write_thinking(tmp_path / "thinking/a.parquet", thinking_rows(5)).parent


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    games = folder_of_games(folder / "games", [4, 3], plies=8)
    thinking = write_thinking(folder / "thinking/a.parquet", thinking_rows(5)).parent
    result = prepare(PrepareOptions(root=folder / "root", games=games, thinking=thinking, valid_fraction=0.3))
    assert result.report.clean, result.report.findings
    return result.root


@pytest.fixture
def root(clean: Path, tmp_path: Path) -> Path:
    """The dataset of `games` and `thinking`, as a copy that a test may damage."""
    return Path(shutil.copytree(clean, tmp_path / "root"))


def test_clean_games_are_clean(root: Path, games: Path, thinking: Path) -> None:
    for report in (
        validate_folder(games, Checks(legal=True)),
        validate_folder(thinking, Checks(legal=True)),
        validate_root(root, Checks(games=games, thinking=thinking, deep=None, legal=True)),
        validate_place(root, Checks()),
        validate_place(games, Checks()),
        validate_place(thinking, Checks()),
    ):
        assert report.clean, report.findings
        assert report.checked["boards"] > 0
    assert validate_root(root, Checks(games=games, deep=None)).checked["source"] == 7
    assert validate_folder(games, Checks(legal=True)).checked["legal"] == 56


def test_the_given_games(chess_cases: Path) -> None:
    assert validate_folder(chess_cases / "variation", Checks(legal=True)).clean
    report = validate_folder(chess_cases / "pretrain", Checks(legal=True))
    assert {finding.check for finding in report.findings} == {"games"}
    said = [str(finding) for finding in report.findings]
    assert any("game g18_unknown_played, ply 2: unknown played_move" in one and "part_d" in one for one in said)
    assert any("game g22_bad_fen, ply 2: bad fen" in one and "part_f" in one for one in said)


@pytest.mark.parametrize(
    ("changes", "check", "said"),
    [
        ({"fen": BAD_FEN}, "games", "game g, ply 3: bad fen"),
        ({"played_move": "e9e4"}, "games", "game g, ply 3: unknown played_move"),
        ({"ply": None}, "games", "game g: no ply"),
        ({"best_move": "zz99"}, "best moves", "1 best_move values are not moves"),
        ({"win": 1.5}, "values", "game g, ply 3: win, draw and loss"),
        ({"win": -0.5, "draw": 1.0, "loss": 0.5}, "values", "game g, ply 3"),
        ({"win": 0.2, "draw": 0.2, "loss": 0.2}, "values", "game g, ply 3"),
        ({"draw": None, "loss": 2.0}, "values", "game g, ply 3"),
        ({"ply": 2}, "plies", "game g, ply 2: duplicate ply"),
        ({"game_id": None}, "game ids", "1 rows have no game_id"),
        ({"played_move": "a1a8"}, "legal", "game g, ply 3: played_move a1a8 is not legal"),
        ({"best_move": "h8a1"}, "legal", "game g, ply 3: best_move h8a1 is not legal"),
        ({"fen": positions()[20]}, "legal", "game g, ply 2: .* does not lead to the next ply's board"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_file_game_and_ply(
    tmp_path: Path, changes: dict[str, Any], check: str, said: str
) -> None:
    rows = played_game("g", 6, 0)
    rows[3] |= changes
    write_games(tmp_path / "part.parquet", [*played_game("clean", 5, 0), *rows])
    report = validate_folder(tmp_path, Checks(legal=True))
    (first, *_) = [finding for finding in report.findings if finding.check == check]
    assert first.file == "part.parquet"
    assert re.search(said, first.message), first.message
    assert report.found[check] == 1 or changes["fen"] == positions()[20], "a strange board has illegal moves, too"


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path, games: Path) -> None:
    (games / "zz.parquet").write_bytes(b"no parquet")
    report = validate_folder(games, Checks())
    assert [(finding.check, finding.file) for finding in report.findings] == [("schema", "zz.parquet")]
    assert report.checked["games"] == 7, "the others are looked at all the same"


def test_what_is_wrong_in_thinking_rows(tmp_path: Path) -> None:
    rows = list(thinking_rows(4))
    rows[0]["variations"] = "{"
    one, two = json.loads(rows[1]["variations"]), json.loads(rows[2]["variations"])
    one[0]["nodes"][0]["wdl"] = [3, 0, 0]
    two[0]["root_move"] = "a1h8"
    rows[1]["variations"], rows[2]["variations"] = json.dumps(one), json.dumps(two)
    write_thinking(tmp_path / "x.parquet", rows)
    report = validate_folder(tmp_path, Checks(legal=True))
    found = {finding.check: finding.message for finding in report.findings}
    assert found["thinking rows"].startswith("row 0: bad variations")
    assert found["values"].startswith("row 1: ")
    assert "row 2, variation 0, node 0: a1h8 is not legal" in found["legal"]


def _rewritten(root: Path, split: str, kind: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Changes an array of the first table, and the manifest so that it agrees."""
    path = array_path(root, split, kind, 0, name)
    array = np.load(path)
    np.save(path, change(array))
    said = json.loads((root / MANIFEST_NAME).read_bytes())
    for shard in said["content"]["shards"]:
        for counts in shard["splits"].values():
            for file in counts["files"]:
                if root / file["path"] == path:
                    file |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    (root / MANIFEST_NAME).write_text(json.dumps(said))


def _set(index: Any, value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("kind", "name", "change", "check"),
    [
        ("games", "boards", _set((3, 0), 5), "boards"),
        ("games", "boards", _set((3, 10), 12), "boards"),
        ("games", "boards", _set((3, 66), 16), "boards"),
        ("games", "boards", _set((3, 67), 0), "boards"),
        ("games", "played", _set(2, 1924), "moves"),
        ("games", "best", _set(2, -2), "moves"),
        ("games", "values", _set((1, 0), 2.0), "values"),
        ("games", "plies", _set(1, 0), "plies"),
        ("games", "keys", _set((0, 0), 0), "keys"),
        ("games", "offsets", _set(1, 0), "arrays"),
        ("games", "offsets", lambda array: array[:-1], "arrays"),
        ("games", "boards", lambda array: array[:-1], "arrays"),
        ("games", "played", lambda array: array.astype(np.int32), "arrays"),
        ("thinking", "node_boards", _set((0, 65), 0), "boards"),
        ("thinking", "root_moves", _set(0, 1967), "moves"),
        ("thinking", "node_offsets", _set(1, 99), "arrays"),
        ("thinking", "keys", _set((0, 3), 1), "keys"),
    ],
)
def test_damage_that_the_manifest_agrees_with_is_found(
    root: Path, kind: str, name: str, change: Callable[[Any], Any], check: str
) -> None:
    _rewritten(root, "train", kind, name, change)
    report = validate_root(root, Checks())
    assert set(report.found) == {check}, report.findings
    assert all(finding.file for finding in report.findings)


@pytest.mark.parametrize("by_chess", [True, False])
@pytest.mark.parametrize(("name", "value"), [("boards", 1), ("values", 0.0), ("best", 7)])
def test_games_that_are_not_those_of_the_source_are_found(
    root: Path, games: Path, name: str, value: Any, by_chess: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_chess:
        monkeypatch.setattr(verify_copies, "python_chess", lambda: None)
    assert validate_root(root, Checks(games=games, deep=None)).clean
    index: Any = (0, 12) if name == "boards" else (0, 1) if name == "values" else 0

    def change(array: Any) -> Any:
        array[index] = value
        if name == "values":
            array[0] = (1.0, 0.0, 0.0)
        return array

    _rewritten(root, "train", "games", name, change)
    assert validate_root(root, Checks()).clean, "by itself it looks right"
    report = validate_root(root, Checks(games=games, deep=None))
    assert set(report.found) == {"source"}
    assert "differs from the source" in report.findings[0].message


def test_thinking_rows_that_are_not_those_of_the_source_are_found(root: Path, thinking: Path) -> None:
    _rewritten(root, "train", "thinking", "fractions", _set(0, 0.125))
    assert validate_root(root, Checks()).clean
    report = validate_root(root, Checks(thinking=thinking, deep=None))
    assert report.found == {"source": 1}
    assert report.findings[0].message.endswith("differs from the source")
    assert report.findings[0].file == "a.parquet"


def test_a_source_that_changed_since_is_found_and_not_read(root: Path, games: Path, thinking: Path) -> None:
    rows = pq.read_table(games / "part_00.parquet").to_pylist()
    rows[0]["fen"], rows[1]["ply"] = BAD_FEN, None  # nothing that could be compared row by row
    write_games(games / "part_00.parquet", rows)
    (thinking / "a.parquet").write_bytes(b"no parquet")
    report = validate_root(root, Checks(games=games, thinking=thinking, deep=None))
    assert {finding.file for finding in report.findings} == {"part_00.parquet", "a.parquet"}
    assert set(report.found) == {"source"}
    report = validate_root(root, Checks(thinking=thinking, deep=None))
    assert [(finding.file, finding.message) for finding in report.findings] == [
        ("a.parquet", "the source's file is another than the one that was prepared")
    ]


@pytest.mark.parametrize("deep", [None, 0, 1, 2, 100])
def test_as_many_items_of_each_table_are_compared_as_asked(root: Path, thinking: Path, deep: int | None) -> None:
    items = [
        counts["items"]
        for shard in manifest.read(root)["content"]["shards"]
        if shard["kind"] == "thinking"
        for counts in shard["splits"].values()
    ]
    assert sum(items) == 5
    report = validate_root(root, Checks(thinking=thinking, deep=deep))
    assert report.clean
    if deep in (None, 100, 0, 1):
        assert report.checked["source"] == {None: 5, 100: 5, 0: 0, 1: len(items)}[deep]
    else:
        assert len(items) < report.checked["source"] <= 2 * len(items)


def test_files_that_are_missing_changed_or_nobodys_are_found(root: Path) -> None:
    array_path(root, "train", "games", 0, "best").unlink()
    path = array_path(root, "train", "games", 0, "values")
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    (root / "train/extra.npy").write_bytes(b"")
    report = validate_root(root, Checks())
    messages = " | ".join(str(finding) for finding in report.findings)
    for said in ("is missing", "sha256", "does not list this file"):
        assert said in messages
    assert report.found == {"inventory": 3}


def test_a_game_in_the_wrong_split_is_found(root: Path) -> None:
    said = json.loads((root / MANIFEST_NAME).read_bytes())
    content = said["content"]
    content["split"] |= {"valid_fraction": 0.0, "threshold": "0"}
    content["config"]["valid_fraction"] = 0.0
    content["config_sha256"] = sha256_json(content["config"])
    (root / MANIFEST_NAME).write_text(json.dumps(said))
    report = validate_root(root, Checks())
    assert set(report.found) == {"split"}


def test_a_manifest_that_contradicts_itself_is_found(root: Path) -> None:
    said = json.loads((root / MANIFEST_NAME).read_bytes())
    said["content"]["config"]["valid_fraction"] = 0.5
    said["content"]["totals"]["games"]["rows_read"] += 1
    said["content"]["totals"]["games"]["splits"]["train"]["items"] += 1
    said["content"]["vocabulary"]["sha256"] = "0" * 64
    (root / MANIFEST_NAME).write_text(json.dumps(said))
    report = validate_root(root, Checks())
    assert report.found == {"manifest": 5}, report.findings


def test_a_root_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError):
        validate_root(tmp_path, Checks())


# --- parts -----------------------------------------------------------------------------------------------------------


@given(st.sampled_from(positions()))
def test_boards_go_to_python_chess_and_back(fen: str) -> None:
    board = parse_fen(fen)
    made = board_from_tokens(chess, board)
    assert tokens_by_python_chess(chess, made) == board.tolist()
    assert made.board_fen() == chess.Board(fen).board_fen()
    assert made.turn == chess.Board(fen).turn
    assert not board_faults(board[None]).any()


@pytest.mark.parametrize(
    ("fen", "move", "legal"),
    [
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1h1", "e1g1"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1a1", "e1c1"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b kq - 0 1", "e8a8", "e8c8"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w kq - 0 1", "e1h1", None),
        ("4k3/8/8/8/8/8/8/4KR1R w - - 0 1", "e1h1", None),
        ("8/P3k3/8/8/8/8/8/4K3 w - - 0 1", "a7a8", "a7a8n"),
        ("8/P3k3/8/8/8/8/8/4K3 w - - 0 1", "a7a8q", "a7a8q"),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", "e5d6", "e5d6"),
        ("4k3/8/8/4P3/8/8/8/4K3 w - - 0 2", "e5d6", None),
        ("4k3/8/8/3nP3/8/8/8/4K3 w - - 0 2", "e5d6", None),
        ("4k3/8/8/8/8/8/8/4K3 w - - 0 2", "a1a2", None),
        ("4k3/8/8/8/8/8/4r3/4K3 w - - 0 2", "e1d2", None),
    ],
)
def test_which_moves_are_legal(fen: str, move: str, legal: str | None) -> None:
    made = legal_move(chess, board_from_tokens(chess, parse_fen(fen)), MOVE_IDS[move])
    assert (None if made is None else made.uci()) == legal


def test_values_that_are_no_probabilities() -> None:
    nan = float("nan")
    values = np.array(
        [[0.5, 0.3, 0.2], [0.5, 0.3, 0.3], [nan, 0.9, 0.9], [1.2, nan, nan], [-0.1, 0.6, 0.5], [nan, nan, nan]]
    )
    assert value_faults(values, 0.01).tolist() == [False, True, False, True, True, False]
    assert value_faults(values, 0.25).tolist() == [False] * 6
    assert board_faults(np.empty((0, 68), np.uint8)).tolist() == []
