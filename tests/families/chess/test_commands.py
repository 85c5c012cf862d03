"""`spanloom chess …`: each command does its thing, says it, and exits as it should."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spanloom.cli import app
from spanloom.cli.chess import chess_app
from spanloom.dataset.manifest import ManifestError
from spanloom.errors import EXIT_FINDINGS, DatasetError
from spanloom.families.chess.errors import ChessError, NoFilesError
from spanloom.training.shard import read_content
from support.chess_games import BAD_FEN, folder_of_games, played_game, thinking_rows, write_games, write_thinking


def run(*arguments: object) -> Result:
    return CliRunner().invoke(chess_app, [str(argument) for argument in arguments])


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    games = folder_of_games(tmp_path / "games", [3, 3])
    return games, write_thinking(tmp_path / "thinking/x.parquet", thinking_rows(4)).parent


def test_from_a_sample_to_samples(tmp_path: Path) -> None:
    made = run("sample", "--out", tmp_path, "--games", 4, "--thinking", 3, "--json")
    assert json.loads(made.stdout)["games"] == 4
    root = tmp_path / "root"
    prepared = run(
        *("prepare", "--source", tmp_path / "games", "--thinking", tmp_path / "thinking", "--out", root),
        *("--valid-fraction", 0.3, "--legal", "--json", "-q"),
    )
    assert prepared.exit_code == 0, prepared.output
    assert json.loads(prepared.stdout)["report"]["clean"]
    assert run("validate", root, "--source", tmp_path / "games", "--legal").stdout.startswith("clean: ")
    shown = run("inspect", root, "--max-seq-len", 200)
    assert shown.stdout.startswith("sample 1 of seed 0: ")
    assert "start_think" in run("inspect", root, "--samples", "thinking", "--max-seq-len", 600).stdout
    page = tmp_path / "page.html"
    assert run("inspect", root, "--html", page).exit_code == 0
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(run("report", root).stdout)["games"] == 4
    assert run("report", root, "--html", page).exit_code == 0


def test_findings_are_told_and_exit_with_their_code(tmp_path: Path) -> None:
    rows = played_game("bad", 4, 0)
    rows[2]["fen"] = BAD_FEN
    write_games(tmp_path / "x.parquet", [*rows, *played_game("good", 4, 0)])
    found = run("validate", tmp_path)
    assert found.exit_code == EXIT_FINDINGS
    assert "game bad, ply 2: bad fen" in found.stdout
    assert "(x.parquet)" in found.stdout


def test_preparing_tells_what_was_left_out(tmp_path: Path) -> None:
    rows = [{**row, "played_move": "zz99"} for row in played_game("bad", 4, 0)]
    write_games(tmp_path / "games/x.parquet", [*rows, *played_game("good", 4, 0)])
    done = run("prepare", "--source", tmp_path / "games", "--out", tmp_path / "root", "-q")
    assert done.exit_code == 0
    assert "games: train 1; left out: 1 unknown played_move" in done.stdout


def test_preparing_names_what_it_does_not_read(tmp_path: Path) -> None:
    games = folder_of_games(tmp_path / "games", [2])
    (games / "notes.txt").touch()
    (games / "link.parquet").symlink_to(tmp_path / "nowhere")
    (games / "more").mkdir()
    (games / "more/b.parquet").touch()
    done = run("prepare", "--source", games, "--out", tmp_path / "root", "-q")
    assert "games: not read: 3 files" in done.stdout
    assert "link.parquet (a link to nothing), more/b.parquet, notes.txt" in done.stdout
    told = json.loads(run("prepare", "--source", games, "--out", tmp_path / "root", "-q", "--json").stdout)
    assert told["not_read"] == {"games": ["link.parquet (a link to nothing)", "more/b.parquet", "notes.txt"]}
    for path in games.glob("*.parquet"):
        path.unlink()
    refused = run("prepare", "--source", games, "--out", tmp_path / "other", "-q")
    assert isinstance(refused.exception, NoFilesError)


def test_pgn_to_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.pgn").write_text("1. e4 e5 2. Nf3 *\n")
    done = run("convert", "--pgn", tmp_path / "a.pgn", "--out", tmp_path / "games")
    assert "1 games in" in done.stdout
    assert "(3 plies, 0 with values)" in done.stdout
    assert json.loads(run("report", tmp_path / "games").stdout)["plies"] == 3


def test_converting_tells_what_it_could_not_use(tmp_path: Path) -> None:
    (tmp_path / "a.pgn").write_text('1. Sf3 {[%eval 1]} d5 {[%eval 2]} 2. g3 *\n\nThe end\n[A "b"]\n1. e4 foo *\n')
    done = run("convert", "--pgn", tmp_path / "a.pgn", "--out", tmp_path / "games")
    assert "left out: 1 moves that cannot be read" in done.stdout
    assert "values left out: 2" in done.stdout
    assert "read with other piece letters: 1 German" in done.stdout
    assert "text between the games: 1 times" in done.stdout


def shared(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_shared_commands_do_the_right_thing_on_prepared_games(folders: tuple[Path, Path], tmp_path: Path) -> None:
    games, thinking = folders
    roots = [tmp_path / "one", tmp_path / "other"]
    for root, fraction in zip(roots, (0.0, 0.5), strict=True):
        done = run(
            "prepare", "--source", games, "--thinking", thinking, "--out", root, "--valid-fraction", fraction, "-q"
        )
        assert done.exit_code == 0, done.output
    root = roots[0]
    page, said = tmp_path / "page.html", tmp_path / "report.json"
    clean = shared("validate", root, "--source", games, "--deep", 2, "--html", page, "--report", said, "-q")
    assert clean.exit_code == 0, clean.output
    assert "clean" in clean.stdout
    assert json.loads(said.read_text())["checked"]["source"] == 4  # two games of each of two files
    assert "Games by plies" in page.read_text()
    assert json.loads(shared("validate", root, "--source", thinking, "--json", "-q").stdout)["clean"]
    both = shared("validate", root, "--source", thinking, "--source", games, "--deep", 2, "--json", "-q")
    assert json.loads(both.stdout)["checked"]["source"] == 4 + 2, "two thinking rows of one file"

    assert "board at 0" in shared("inspect", root, "--count", 2).stdout
    assert shared("inspect", root, "--html", page).exit_code == 0
    assert "<svg" in page.read_text()
    refused = shared("inspect", root, "--language", "de")
    assert refused.exit_code == 2
    assert "--language" in refused.output

    assert json.loads(shared("manifest", "show", root, "--json").stdout)["schema_version"] == "spanloom_chess_v1"
    assert "games" in shared("manifest", "show", root).stdout
    assert shared("manifest", "diff", root, root).exit_code == 0
    differing = shared("manifest", "diff", *roots)
    assert differing.exit_code == 1
    assert "content.config.valid_fraction" in differing.stdout

    array = next((root / "train").glob("*_played.npy"))
    array.write_bytes(array.read_bytes() + b"0")
    found = shared("validate", root, "-q")
    assert found.exit_code == EXIT_FINDINGS
    assert array.name in found.stdout


@pytest.fixture
def games_root(folders: tuple[Path, Path], tmp_path: Path) -> Path:
    root = tmp_path / "games_root"
    done = run("prepare", "--source", folders[0], "--out", root, "--valid-fraction", 0, "-q")
    assert done.exit_code == 0, done.output
    return root


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("stats", "spanloom chess report"),
        ("export", "Parquet files"),
        ("blend", "ChessIterableDataset"),
        ("plan --sequence-length 8", "ChessIterableDataset"),
    ],
)
def test_commands_for_token_datasets_say_what_prepared_games_are(games_root: Path, command: str, instead: str) -> None:
    refused = shared(*command.split(), games_root).exception
    assert isinstance(refused, DatasetError)
    assert "prepared games of chess, no token dataset" in refused.what
    assert instead in str(refused.remedy)


def test_what_trains_on_token_datasets_says_that_these_are_none(games_root: Path) -> None:
    with pytest.raises(ManifestError, match=r"not a token dataset .*family is 'chess', its schema 'spanloom_chess_v1'"):
        read_content(games_root)


def test_sources_that_prepared_games_cannot_be_held_against_are_refused(
    games_root: Path, folders: tuple[Path, Path]
) -> None:
    games, thinking = folders
    for arguments, said in (
        (("validate", games_root, "--source", games, "--source", games), "two folders of games"),
        (("validate", games_root, "--source", games, "--source", thinking), "prepared without thinking rows"),
        (("chess", "validate", games_root, "--thinking", thinking), "prepared without thinking rows"),
        (("chess", "validate", games, "--source", games), "only prepared games"),
    ):
        refused = shared(*arguments).exception
        assert isinstance(refused, ChessError), arguments
        assert said in refused.what
