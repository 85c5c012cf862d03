"""Laws of all loaders whose passes resume: games of chess, games mixed with thinking rows, packed chat."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spanloom.errors import DatasetError
from spanloom.families.chat.loader import PackedChatDataset, PackedChatLoader
from spanloom.families.chess.loader import ChessIterableDataset, ChessLoader, FinetuneIterableDataset
from support.chat_transcripts import MARKERS, token_records
from support.chess_games import BAD_FEN, folder_of_games, played_game, thinking_rows, write_games, write_thinking
from support.nightly import drawn, nightly

RECORDS = token_records(300)

Sample = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Passes:
    """`dataset` and `loader` take options of the family; `others` are such that a place of one is not one of the other,
    each with what the refusal says."""

    dataset: Callable[..., Any]
    loader: Callable[..., Any]
    others: dict[str, Any]
    workers: dict[str, Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Five files of four games, one of them with a bad game; thinking rows, one of them without variations."""
    games, thinking = folder_of_games(tmp_path_factory.mktemp("games"), [4, 4, 4, 4]), tmp_path_factory.mktemp("rows")
    bad = [{**row, "fen": BAD_FEN} for row in played_game("bad", 5, 0)]
    write_games(games / "part_04.parquet", [*bad, *(row for name in "abcd" for row in played_game(name, 6, 0))])
    rows = list(thinking_rows(12))
    rows[3]["variations"] = "[]"
    write_thinking(thinking / "a.parquet", rows[:7])
    write_thinking(thinking / "b.parquet", rows[7:])
    return games, thinking


@pytest.fixture(params=["games", "mixture 0.2", "mixture 0.7", "mixture 1.0", "thinking 0.5", "chat"])
def passes(request: pytest.FixtureRequest, folders: tuple[Path, Path]) -> Passes:
    def chess(**options: Any) -> Any:
        if request.param == "games":
            return ChessIterableDataset(folders[0], **{"max_seq_len": 128, **options})
        kind, ratio = request.param.split()
        games = folders[0] if kind == "mixture" else None
        shape = {"max_seq_len": 400, "variation_ratio": float(ratio)}
        return FinetuneIterableDataset(games, folders[1], **{**shape, **options})

    def chat(**options: Any) -> Any:
        return PackedChatDataset(
            RECORDS, **{"block_size": 24, "post_training": True, "markers": MARKERS, "shuffle": 50, **options}
        )

    if request.param == "chat":  # packed by numpy alone: a fork need not import torch
        others = {"block_size": 32, "post_training": False, "seed": 5, "shuffle": 7, "strict_user": False}
        return Passes(chat, PackedChatLoader, others, {"multiprocessing_context": "fork"})
    return Passes(chess, ChessLoader, {"max_seq_len": 65, "seed": 5, "skip_board_prob": 0.125}, {})


def same(left: list[Sample], right: list[Sample]) -> bool:
    return len(left) == len(right) and all(
        one.keys() == other.keys()
        and all(torch.equal(one[key], other[key]) and one[key].dtype == other[key].dtype for key in one)
        for one, other in zip(left, right, strict=True)
    )


def resumed(make: Callable[[], Any], *cuts: int) -> tuple[list[Sample], Any]:
    """The samples of a pass that is stopped after so many samples, each time taken up by another object."""
    reader, given = make(), []
    for cut in cuts:
        given += islice(iter(reader), cut)
        state = json.loads(json.dumps(reader.state_dict()))
        reader = make()
        reader.load_state_dict(state)
        assert json.loads(json.dumps(reader.state_dict())) == state, "as long as nothing was read, it is the same place"
    return [*given, *reader], reader


@pytest.mark.parametrize("world_size", [1, 3, 7])
def test_a_pass_goes_on_from_anywhere(passes: Passes, world_size: int) -> None:
    def make() -> Any:
        return passes.dataset(rank=world_size - 1, world_size=world_size)

    whole = make()
    samples = list(whole)
    for cut in {*range(0, len(samples), drawn(1, max(1, len(samples) // 8))), len(samples)}:
        found, second = resumed(make, cut)
        assert same(found, samples), cut
        if hasattr(whole, "counts"):
            assert second.counts.as_dict() == whole.counts.as_dict(), cut
    assert same(resumed(make, 2, 0, 3)[0], samples), "also if it is stopped again"


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, nightly(2)])
@pytest.mark.parametrize("drop_last", [nightly(False), True])
def test_a_loader_goes_on_though_its_workers_read_ahead(passes: Passes, workers: int, drop_last: bool) -> None:
    def make() -> Any:
        more = passes.workers if workers else {}
        return passes.loader(passes.dataset(), batch_size=3, workers=workers, drop_last=drop_last, **more)

    whole = make()
    batches = list(whole)
    spawned = workers and not passes.workers  # starting them takes seconds
    for cut in (3,) if spawned else (0, 1, 3, len(batches)):
        found, second = resumed(make, cut)
        assert same(found, batches), cut
        if hasattr(whole, "counts"):
            assert second.counts.as_dict() == whole.counts.as_dict(), cut
    if not spawned:
        assert same(resumed(make, 1, 0, 1)[0], batches)


def test_a_pass_that_was_left_is_begun_anew_and_so_is_the_one_behind_a_resumed_one(passes: Passes) -> None:
    loader = passes.loader(passes.dataset(), batch_size=3, workers=2 if passes.workers else 0, **passes.workers)
    unbroken = list(loader)
    next(iter(loader))
    assert same(list(loader), unbroken)
    next(iter(loader))
    state = loader.state_dict()
    assert [place["shard"] for place in state["places"]] == [0], "of the pass under way alone"
    loader.load_state_dict(state)
    assert same(list(loader), unbroken[1:])
    assert same(list(loader), unbroken)


def test_the_epoch_travels_with_the_place_and_another_begins_at_its_beginning(passes: Passes) -> None:
    begun = passes.dataset()
    first = list(begun)
    begun.set_epoch(3)
    unbroken = list(begun)
    assert not same(unbroken, first)
    head = list(islice(iter(begun), 5))
    other = passes.dataset()
    other.load_state_dict(begun.state_dict())
    assert same(head + list(other), unbroken)
    other.load_state_dict(begun.state_dict())
    other.set_epoch(4)
    assert (other.state_dict()["epoch"], other.state_dict()["places"]) == (4, [])
    loader = passes.loader(begun, batch_size=3)
    list(loader)
    assert len(loader.state_dict()["places"]) == 1
    begun.set_epoch(5)
    assert loader.state_dict()["places"] == []


def test_a_place_of_other_options_or_shards_is_refused(passes: Passes) -> None:
    begun = passes.dataset()
    next(iter(begun))
    state = begun.state_dict()
    for name, value in passes.others.items():
        with pytest.raises(DatasetError, match=f"{name} was .*, now {value}"):
            passes.dataset(**{name: value}).load_state_dict(state)
    other = passes.dataset(rank=0, world_size=2)
    other.load_state_dict(state)
    with pytest.raises(DatasetError, match="of 1 shards"):
        iter(other)
    with pytest.raises(DatasetError, match="of 1 shards"):
        passes.loader(passes.dataset(), batch_size=2, workers=2, **passes.workers).load_state_dict(state)


def test_no_global_generator_is_used_or_changed(passes: Passes) -> None:
    def states() -> Any:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()  # type: ignore[union-attr]

    found = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = states()
        found.append(list(passes.loader(passes.dataset(), batch_size=3)))
        assert states() == before
    assert same(*found)
