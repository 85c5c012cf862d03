"""Dealing: every game once, over any number of shards, and going on from anywhere."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spanloom.families.chess.encoding.draws import keys_of, pass_of
from spanloom.families.chess.reading.epochs import Counts, Files, Place, dealt
from spanloom.families.chess.reading.tables import Reject


class _Games:
    """A file of so many games and one bad one."""

    def __init__(self, file: str, games: int) -> None:
        self.file, self.keys = file, keys_of(file, map(str, range(games)))
        self.rejects = (Reject(file=file, game_id="bad", ply=1, reason="bad fen", detail=""),)

    def __len__(self) -> int:
        return len(self.keys)


def _files(sizes: list[int]) -> Files[_Games]:
    names = [f"part_{number}" for number in range(len(sizes))]
    return Files(names, lambda file: _Games(names[file], sizes[file]))


def _dealt(files: Files[_Games], shard: int, shards: int, **more: Any) -> list[tuple[str, int, Place]]:
    options: dict[str, Any] = {"order_of": pass_of("order", 0), "shuffle_files": True, "shuffle_games": True}
    return [
        (table.file, game, place) for table, game, place in dealt(files, shard=shard, shards=shards, **(options | more))
    ]


sizes = st.lists(st.integers(0, 7), min_size=1, max_size=7)


@given(sizes, st.integers(1, 9), st.booleans(), st.booleans())
def test_all_shards_together_give_every_game_once(
    given_sizes: list[int], shards: int, shuffle_files: bool, shuffle_games: bool
) -> None:
    shuffle = {"shuffle_files": shuffle_files, "shuffle_games": shuffle_games}
    shares = [_dealt(_files(given_sizes), shard, shards, **shuffle) for shard in range(shards)]
    found = sorted((file, game) for share in shares for file, game, _ in share)
    assert found == sorted((f"part_{file}", game) for file, size in enumerate(given_sizes) for game in range(size))
    if len(given_sizes) >= shards:
        if min(given_sizes) > 0:
            assert min(map(len, shares)) > 0
    else:
        sizes_of = [len(share) for share in shares]
        assert max(sizes_of) - min(sizes_of) <= 1, "games are dealt one by one: no shard is left without"


@given(sizes, st.integers(1, 5), st.data())
def test_a_shard_goes_on_from_any_of_its_games(given_sizes: list[int], shards: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    whole = _dealt(_files(given_sizes), shard, shards)
    if not whole:
        return
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert _dealt(_files(given_sizes), shard, shards, begin=whole[cut][2]) == whole[cut + 1 :]


@given(sizes, st.integers(1, 9))
def test_each_bad_game_is_counted_by_one_shard(given_sizes: list[int], shards: int) -> None:
    counts = [Counts() for _ in range(shards)]
    for shard in range(shards):
        _dealt(_files(given_sizes), shard, shards, counts=counts[shard])
    total = Counts()
    for count in counts:
        total.include(count)
    assert total.left_out == {"bad fen": len(given_sizes)}
    assert sorted(reject.file for reject in total.rejects) == [f"part_{file}" for file in range(len(given_sizes))]


def test_files_are_dealt_by_turns(chess_cases: Path) -> None:
    checked = 0
    for case in json.loads((chess_cases / "sharding.json").read_bytes()):
        shards = case["world_size"] * case["num_workers"]
        if isinstance(case["intended"], str):
            assert case["n_files"] < shards
            continue
        files = _files([1] * case["n_files"])
        for rank, workers in enumerate(case["intended"]):
            for worker, expected in enumerate(workers):
                shard = rank * case["num_workers"] + worker
                found = [file for file, _, _ in _dealt(files, shard, shards, shuffle_files=False)]
                assert found == [f"part_{file}" for file in expected]
                checked += 1
    assert checked


def test_another_epoch_is_another_order_and_no_shuffling_is_that_of_the_files() -> None:
    files = _files([5, 5, 5])
    plain = [(file, game) for file, game, _ in _dealt(files, 0, 1, shuffle_files=False, shuffle_games=False)]
    assert plain == [(f"part_{file}", game) for file in range(3) for game in range(5)]
    orders = {
        tuple((file, game) for file, game, _ in _dealt(files, 0, 1, order_of=pass_of("order", epoch)))
        for epoch in range(8)
    }
    assert len(orders) == 8


def test_counts_survive_json() -> None:
    counts = Counts(games=3)
    counts.take(_Games("f", 2))
    assert Counts.from_dict(json.loads(json.dumps(counts.as_dict()))) == counts


def test_the_table_read_last_is_kept() -> None:
    read: list[int] = []

    def table(file: int) -> _Games:
        read.append(file)
        return _Games("f", 3)

    files: Files[_Games] = Files(["a", "b"], table)
    assert files.table(0) is files.table(0)
    files.table(1)
    files.table(0)
    assert read == [0, 1, 0]
    assert np.array_equal(files.keys, keys_of("", ["a", "b"]))
