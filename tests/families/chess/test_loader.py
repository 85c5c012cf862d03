"""The datasets: deterministic, sharded, mixed, resumed; the same from Parquet and prepared."""

import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from spanloom.errors import DatasetError, SourceError
from spanloom.families.chess.encoding.draws import pass_of
from spanloom.families.chess.encoding.games import row_offsets, valid_starts, written_boards
from spanloom.families.chess.encoding.tensors import sample
from spanloom.families.chess.encoding.vocabulary import IGNORE
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.loader import (
    ChessIterableDataset,
    ChessLoader,
    FinetuneIterableDataset,
    game_sample,
)
from support.chess_games import (
    BAD_FEN,
    folder_of_games,
    game_of,
    played_game,
    thinking_rows,
    write_games,
    write_thinking,
)
from support.held_workers import HELD, KEEP_HELD, RELEASE_AT_EXIT, holding

Sample = dict[str, torch.Tensor]
EXTRA = ("thinking_move_mask", "continue_var_mask", "new_variation_mask", "first_is_not_best", "variation_epoch")


def same(one: Sample, other: Sample) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one
    )


def prints(samples: Iterable[Sample]) -> list[bytes]:
    """What tells samples apart, whatever their order."""
    return [print_of(part) for part in samples]


def print_of(part: Mapping[str, Any]) -> bytes:
    return b"".join(np.asarray(part[name]).tobytes() for name in sorted(part))


def is_thinking(part: Sample) -> bool:
    return bool(part["thinking_move_mask"].any())


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five files of four games, one of them with a bad game and a row without an id."""
    folder = folder_of_games(tmp_path_factory.mktemp("games"), [4, 4, 4, 4])
    bad = played_game("bad", 5, 0)
    bad[2]["fen"] = BAD_FEN
    rows = [row for name in "abcd" for row in played_game(name, 6, 0)]
    write_games(folder / "part_04.parquet", [*bad, *rows, {**rows[0], "game_id": None}])
    return folder


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("thinking")
    rows = list(thinking_rows(12))
    rows[3]["variations"] = "[]"
    write_thinking(folder / "a.parquet", rows[:7])
    write_thinking(folder / "b.parquet", rows[7:])
    return folder


def test_what_is_drawn_is_one_of_the_samples_that_a_game_can_give() -> None:
    game = game_of(played_game("g", 4, 0))
    possible = set()
    for include in itertools.product([True], *[[True, False]] * 3):
        written = written_boards(game.played, include)
        for start in valid_starts(game.played, written, row_offsets(game.played, written)).tolist():
            possible.add(print_of(sample(game, include, start, 150)))
    drawn = {
        print_of(game_sample(game, b"k", pass_of("game", 0, epoch), 150, skip_board_prob=0.5)) for epoch in range(400)
    }
    assert drawn == possible


@pytest.mark.parametrize(("prob", "boards"), [(0.0, 12), (1.0, 1)])
def test_boards_are_skipped_never_or_always(prob: float, boards: int) -> None:
    game = game_of(played_game("g", 12, 0))
    for epoch in range(30):
        made = game_sample(game, b"k", pass_of("game", 0, epoch), 900, skip_board_prob=prob)
        plies = int(made["d_positions"].sum())
        assert (made["input_ids"] == 1936).sum() == (plies if prob == 0.0 else (1 if plies == 12 else 0))


def test_boards_are_skipped_as_often_as_asked() -> None:
    game = game_of(played_game("g", 40, 0))
    written, plies = 0, 0
    for epoch in range(200):
        made = game_sample(game, b"k", pass_of("game", 1, epoch), 71 * 40, skip_board_prob=0.2)
        if made["d_positions"].sum() == 40:
            continue  # its first board is always there
        written += int((made["input_ids"] == 1936).sum())
        plies += int(made["d_positions"].sum())
    assert plies > 2000
    assert abs(written / plies - 0.8) < 0.04


def test_every_start_is_as_likely() -> None:
    game = game_of(played_game("g", 6, 0))
    counts = np.zeros(7, int)
    for epoch in range(3000):
        made = game_sample(game, b"k", pass_of("game", 2, epoch), 71 * 6, skip_board_prob=0.3)
        counts[int(made["d_positions"].sum())] += 1
    assert counts[0] == 0
    assert abs(counts[1:] - 500).max() < 100  # 4.9 standard deviations


def test_starts_can_be_kept_to_boards(games: Path) -> None:
    dataset = ChessIterableDataset(games, 300, 0.7, start_on_board=True)
    assert all(int(part["input_ids"][0]) == 1936 for part in dataset)
    assert any(int(part["input_ids"][0]) != 1936 for part in ChessIterableDataset(games, 300, 0.7))


def test_each_game_comes_once_and_what_is_left_out_is_told(games: Path) -> None:
    dataset = ChessIterableDataset(games, 128)
    samples = list(dataset)
    assert len(samples) == 20 == len(set(prints(samples)))
    assert (dataset.counts.games, dataset.counts.null_rows) == (20, 1)
    assert dataset.counts.left_out == {"bad fen": 1}
    (reject,) = dataset.counts.rejects
    assert (reject.file, reject.game_id, reject.ply) == ("part_04.parquet", "bad", 2)
    list(dataset)
    assert dataset.counts.games == 20, "counts are of one pass"


def test_with_raise_the_bad_game_stops_the_pass(games: Path) -> None:
    with pytest.raises(ChessError, match=r"(?s)bad fen.*part_04\.parquet, game bad, ply 2"):
        list(ChessIterableDataset(games, 128, on_error="raise"))


def test_a_file_that_cannot_be_read_stops_the_pass(tmp_path: Path) -> None:
    folder_of_games(tmp_path, [2])
    (tmp_path / "zz.parquet").write_bytes(b"no parquet")
    with pytest.raises(SourceError, match=r"zz\.parquet"):
        list(ChessIterableDataset(tmp_path, 128))


def test_the_same_arguments_give_the_same_sequence_and_another_epoch_another(games: Path) -> None:
    one, other = ChessIterableDataset(games, 128, seed=3), ChessIterableDataset(str(games), 128, seed=3)
    first = prints(one)
    assert prints(one) == first == prints(other), "also when it is iterated twice"
    other.set_epoch(1)
    assert prints(other) != first
    assert prints(ChessIterableDataset(games, 128, seed=3, epoch=1)) == prints(other)
    assert prints(ChessIterableDataset(games, 128, seed=4)) != first
    plain = ChessIterableDataset(games, 128, shuffle_files=False, shuffle_games=False, seed=3)
    assert sorted(prints(plain)) == sorted(first), "the order decides no sample"
    assert prints(plain) != first


@settings(max_examples=15)
@given(world_size=st.integers(1, 4), workers=st.integers(1, 4), epoch=st.integers(0, 3))
def test_any_ranks_and_workers_give_each_game_once_and_the_same_sample(
    games: Path, world_size: int, workers: int, epoch: int
) -> None:
    alone = sorted(prints(ChessIterableDataset(games, 128, epoch=epoch)))
    shares = []
    for rank, worker in itertools.product(range(world_size), range(workers)):
        dataset = ChessIterableDataset(games, 128, epoch=epoch, rank=rank, world_size=world_size)
        samples = dataset._samples(rank * workers + worker, world_size * workers, {}, dataset.counts)
        shares.append(prints(samples))
    assert sorted(itertools.chain(*shares)) == alone
    assert min(map(len, shares)) > 0


def test_neighbours_do_not_change_a_sample(tmp_path: Path) -> None:
    rows = [row for name in "abc" for row in played_game(name, 6, 0)]
    bad = [{**row, "fen": BAD_FEN} for row in played_game("bad", 4, 0)]
    write_games(tmp_path / "one/x.parquet", rows)
    write_games(tmp_path / "two/x.parquet", [*bad, *rows[::-1], *played_game("more", 5, 0)])
    write_games(tmp_path / "two/y.parquet", played_game("other", 5, 0))
    one = prints(ChessIterableDataset(tmp_path / "one", 128))
    two = prints(ChessIterableDataset(tmp_path / "two", 128))
    assert set(one) < set(two)
    assert [part for part in two if part in one] == one, "nor which of two games comes first"


def test_workers_of_a_dataloader_share_the_games(games: Path) -> None:
    alone = sorted(prints(ChessIterableDataset(games, 64)))
    for workers in (0, 2):
        loader = DataLoader(ChessIterableDataset(games, 64), batch_size=3, num_workers=workers)
        batches = list(loader)
        assert batches[0]["input_ids"].shape == (3, 64)
        singles = [
            {name: batch[name][at] for name in batch} for batch in batches for at in range(len(batch["block_id"]))
        ]
        assert sorted(prints(singles)) == alone


def test_batches_of_both_kinds(games: Path, thinking: Path) -> None:
    loader = DataLoader(FinetuneIterableDataset(games, thinking, 400, 0.5), batch_size=4)
    for batch in loader:
        size = len(batch["input_ids"])
        for name, value in batch.items():
            scalar = name in ("first_is_not_best", "variation_epoch")
            assert value.shape == ((size,) if scalar else (size, 400)), name
        assert batch["variation_epoch"].dtype == torch.int64
        assert batch["first_is_not_best"].dtype == torch.bool


# --- mixing ----------------------------------------------------------------------------------------------------------


def test_games_alone_when_no_thinking_is_asked_for(games: Path, thinking: Path) -> None:
    samples = list(FinetuneIterableDataset(games, thinking, 128, 0.0))
    assert not any(map(is_thinking, samples))
    plain = list(ChessIterableDataset(games, 128))
    for one, other in zip(samples, plain, strict=True):
        assert set(one) - set(other) == set(EXTRA)
        assert all(not one[name].any() for name in EXTRA)
        assert same({name: one[name] for name in other}, other), "a game gives the same sample here as there"


def test_the_pass_ends_with_the_games_and_thinking_rows_begin_anew(games: Path, thinking: Path) -> None:
    dataset = FinetuneIterableDataset(games, thinking, 800, 0.7, seed=1)
    samples = list(dataset)
    assert sum(not is_thinking(part) for part in samples) == 20 == dataset.counts.games
    assert dataset.counts.thinking == len(samples) - 20 > 22, "more than two passes over eleven rows"
    epochs = [int(part["variation_epoch"]) for part in samples]
    assert epochs == sorted(epochs)
    passes = [[part for part in samples if is_thinking(part) and int(part["variation_epoch"]) == n] for n in range(3)]
    assert len(passes[0]) == len(passes[1]) == 11
    drawn = [prints({**part, "variation_epoch": torch.tensor(0)} for part in one) for one in passes[:2]]
    assert sorted(drawn[0]) != sorted(drawn[1]), "with new draws"
    assert dataset.counts.left_out == {"bad fen": 1, "no variations": 1}


@pytest.mark.parametrize(("with_games", "ratio"), [(False, 0.2), (False, 1.0), (True, 1.0)])
def test_one_pass_over_thinking_rows_where_that_is_all(
    games: Path, thinking: Path, with_games: bool, ratio: float
) -> None:
    samples = list(FinetuneIterableDataset(games if with_games else None, thinking, 800, ratio))
    assert len(samples) == 11 == len(set(prints(samples)))
    assert all(map(is_thinking, samples))
    assert {int(part["variation_epoch"]) for part in samples} == {0}


@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("usable", [None, False])
def test_games_in_the_place_of_thinking_rows_that_are_not_there(
    games: Path, tmp_path: Path, ratio: float, usable: bool | None
) -> None:
    folder = None
    if usable is False:
        folder = write_thinking(
            tmp_path / "x.parquet", [{**row, "variations": "[]"} for row in thinking_rows(3)]
        ).parent
    samples = list(FinetuneIterableDataset(games, folder, 128, ratio))
    assert len(samples) == 20
    assert {int(part["variation_epoch"]) for part in samples} == {0}


def test_nothing_usable_at_all_ends_at_once(tmp_path: Path) -> None:
    bad = [{**row, "fen": BAD_FEN} for row in played_game("bad", 4, 0)]
    write_games(tmp_path / "games/x.parquet", bad)
    write_thinking(tmp_path / "thinking/x.parquet", [{**row, "mcts_action": None} for row in thinking_rows(3)])
    for ratio in (0.0, 0.5, 1.0):
        dataset = FinetuneIterableDataset(tmp_path / "games", tmp_path / "thinking", 128, ratio)
        assert list(dataset) == []
    with pytest.warns(UserWarning, match="empty"):
        assert list(FinetuneIterableDataset(None, tmp_path / "thinking", 128, 0.0)) == []


def test_games_that_are_all_bad_are_no_games(tmp_path: Path, thinking: Path) -> None:
    bad = [{**row, "fen": BAD_FEN} for row in played_game("bad", 4, 0)]
    write_games(tmp_path / "x.parquet", bad)
    assert len(list(FinetuneIterableDataset(tmp_path, thinking, 800, 0.5))) == 11


def test_thinking_samples_come_as_often_as_asked(tmp_path: Path, thinking: Path) -> None:
    folder_of_games(tmp_path, [300], plies=2)
    dataset = FinetuneIterableDataset(tmp_path, thinking, 150, 0.2)
    samples = list(dataset)
    share = dataset.counts.thinking / len(samples)
    assert abs(share - 0.2) < 0.08
    other = list(FinetuneIterableDataset(tmp_path, thinking, 150, 0.2, epoch=1))
    assert [is_thinking(part) for part in other] != [is_thinking(part) for part in samples]


def test_what_is_too_long_is_counted(thinking: Path) -> None:
    dataset = FinetuneIterableDataset(None, thinking, 144)
    assert list(dataset) == []
    assert dataset.counts.left_out == {"no variations": 1, "too long": 11}


def test_any_ranks_give_each_thinking_row_once(thinking: Path) -> None:
    alone = sorted(prints(FinetuneIterableDataset(None, thinking, 800)))
    for world_size in (2, 3, 5):
        shares = [
            prints(FinetuneIterableDataset(None, thinking, 800, rank=rank, world_size=world_size))
            for rank in range(world_size)
        ]
        assert sorted(itertools.chain(*shares)) == alone


# --- going on --------------------------------------------------------------------------------------------------------


def test_a_loader_has_the_counts_of_its_workers(games: Path, thinking: Path) -> None:
    """That it resumes is a law of all loaders: `training/test_loaders.py`."""
    loader = ChessLoader(FinetuneIterableDataset(games, thinking, 300, 0.3), batch_size=3)
    list(loader)
    assert loader.counts.games == 20
    assert loader.counts.left_out["bad fen"] == 1


LEAVE = f"""
import sys
from pathlib import Path
from spanloom.families.chess.loader import ChessIterableDataset, ChessLoader
if __name__ == "__main__":
{KEEP_HELD}
    batches = iter(ChessLoader(ChessIterableDataset(Path(sys.argv[1]), 64), batch_size=1, workers=4))
    print(next(batches)["input_ids"].shape[0])
{RELEASE_AT_EXIT}
"""


@pytest.mark.nightly  # the loader of packed chat does the same in `make test`
def test_leaving_while_workers_are_still_importing_prints_nothing(games: Path, tmp_path: Path) -> None:
    (tmp_path / "leave.py").write_text(holding(LEAVE, free=("SpawnProcess-1",)))
    command = [sys.executable, "-W", "ignore:This DataLoader will create", "leave.py", games]
    left = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert [line for line in left.stdout.splitlines() if line != HELD] == ["1"]
    assert (left.returncode, left.stderr) == (0, "")


INTERRUPTED = """
import sys
from pathlib import Path
from spanloom.families.chess.loader import ChessIterableDataset, ChessLoader
if __name__ == "__main__":
    list(ChessLoader(ChessIterableDataset(Path(sys.argv[1]), 64), batch_size=1, workers=2))
"""


def test_ctrl_c_while_workers_are_still_importing_says_so_once(games: Path, tmp_path: Path) -> None:
    """It goes to the whole group, as from a terminal."""
    (tmp_path / "loop.py").write_text(holding(INTERRUPTED))
    with (tmp_path / "gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        command = [sys.executable, "loop.py", games]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path
        ) as running:
            assert running.stdout is not None
            begun = [running.stdout.readline() for _ in range(2)]
            os.killpg(running.pid, signal.SIGINT)
            fcntl.flock(gate, fcntl.LOCK_UN)
            _, said = running.communicate()
    assert begun == [f"{HELD}\n"] * 2
    assert running.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1, said
    assert said.endswith("KeyboardInterrupt\n"), said


def test_a_state_of_other_files_is_refused(games: Path, thinking: Path, tmp_path: Path) -> None:
    more = shutil.copytree(games, tmp_path / "more")
    state, mixed = (
        ChessIterableDataset(games, 64).state_dict(),
        FinetuneIterableDataset(games, thinking, 64).state_dict(),
    )
    ChessIterableDataset(more, 64).load_state_dict(state)  # the same names, wherever they lie
    write_games(more / "part_99.parquet", played_game("new", 4, 0))
    with pytest.raises(DatasetError, match=r"games was 5 files \(.*\), now 6 files"):
        ChessIterableDataset(more, 64).load_state_dict(state)
    with pytest.raises(DatasetError, match=r"thinking was 2 files .*, now None"):
        FinetuneIterableDataset(games, None, 64).load_state_dict(mixed)


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"max_seq_len": 0},
        {"max_seq_len": 12.5},
        {"skip_board_prob": -0.1},
        {"skip_board_prob": 1.1},
        {"skip_board_prob": float("nan")},
        {"rank": 1},
        {"rank": -1},
        {"world_size": 0},
        {"seed": "one"},
        {"epoch": -1},
        {"on_error": "ignore"},
        {"split": "test"},
        {"variation_ratio": 1.5},
        {"variation_ratio": -0.1},
        {"max_variations": 0},
        {"max_depth": 0},
        {"max_depth": True},
        {"tau_base": 0.0},
        {"tau_base": float("inf")},
        {"tau_alpha": -1.0},
    ],
)
def test_options_out_of_range_are_refused_when_the_dataset_is_made(
    games: Path, thinking: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError):
        FinetuneIterableDataset(games, thinking, **options)
    if not {"variation_ratio", "max_variations", "max_depth", "tau_base", "tau_alpha"} & set(options):
        with pytest.raises(ValueError):
            ChessIterableDataset(games, **options)


def test_folders_without_games_are_refused_when_the_dataset_is_made(games: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ChessIterableDataset(tmp_path)
    with pytest.raises(FileNotFoundError):
        ChessIterableDataset(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        FinetuneIterableDataset(games, tmp_path)
    with pytest.raises(ValueError, match="neither"):
        FinetuneIterableDataset(None, None)


def test_the_defaults_are_those_of_the_original_but_for_skipping(games: Path, thinking: Path, facts: Any) -> None:
    one, two = ChessIterableDataset(games), FinetuneIterableDataset(games, thinking)
    assert (one.options.max_seq_len, two.options.max_seq_len) == (2048, 1024)
    assert (one.options.skip_board_prob, two.options.skip_board_prob) == (0.2, 0.2)
    config = facts["defaults"]["finetune_config"]
    assert two.variation_ratio == config["variation_ratio"]
    assert vars(two.rules) == {name: config[name] for name in ("max_variations", "max_depth", "tau_base", "tau_alpha")}


def test_the_given_files_give_the_given_games(chess_cases: Path) -> None:
    dataset = FinetuneIterableDataset(chess_cases / "pretrain", chess_cases / "variation", 1024)
    samples = list(dataset)
    assert dataset.counts.left_out["bad fen"] >= 1
    assert dataset.counts.left_out["unknown played_move"] >= 1
    assert dataset.counts.games == sum(not is_thinking(part) for part in samples) >= 22
    assert all((part["board_target_ids"] >= IGNORE).all() for part in samples)


def test_cot_values_and_the_literal_copy_reach_the_samples(games: Path, thinking: Path) -> None:
    plain, cot = (list(FinetuneIterableDataset(None, thinking, 800, cot_values=on)) for on in (False, True))
    for one, other in zip(plain, cot, strict=True):
        at = one["thinking_move_mask"]
        assert not one["wdl_valid"][at].any()
        assert other["wdl_valid"][at].all()
    kept, literal = (list(ChessIterableDataset(games, 200, 0.6, literal_d_targets=on)) for on in (False, True))
    assert any(not torch.equal(one["d_targets"], other["d_targets"]) for one, other in zip(kept, literal, strict=True))
