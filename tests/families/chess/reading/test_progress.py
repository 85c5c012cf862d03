"""Progress: which shard a worker reads, and a state that another process goes on from."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.errors import DatasetError
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.reading.progress import Progress


def progress(rank: int = 0, world_size: int = 1, **options: object) -> Progress:
    return Progress(options or {"seed": 1}, epoch=0, rank=rank, world_size=world_size)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3))
def test_workers_of_all_ranks_read_each_shard_once_whoever_begins(world_size: int, workers: int, first: int) -> None:
    read = []
    for rank in range(world_size):
        for worker in range(workers):
            one = progress(rank, world_size)
            one.first = first % workers
            read.append(one.begin_pass(worker, workers).shard)
    assert sorted(read) == list(range(world_size * workers))
    assert read[0] == first % workers, "the one whose turn it is comes first"


def test_another_process_goes_on_behind_the_last_sample_with_what_was_counted() -> None:
    one = progress(rank=1, world_size=2)
    assert one.begin_pass(0, 1).place is None
    one.counts.games = 3
    one.place = {"shard": 1, "games": {"file": 2, "before": 0, "given": 1}}
    other = progress(rank=1, world_size=2)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.state_dict() == one.state_dict(), "before it begins its state is the one that it was given"
    begin = other.begin_pass(0, 1)
    assert (begin.shard, begin.shards) == (1, 2)
    assert begin.place is not None
    assert begin.place["games"] == {"file": 2, "before": 0, "given": 1}
    assert other.counts.games == 3
    assert other.begin_pass(0, 1).place is None, "the pass behind that begins at its beginning"


def test_another_epoch_forgets_the_place_and_the_same_one_does_not() -> None:
    one = progress()
    one.begin_pass(0, 1)
    state = one.state_dict()
    one.load_state_dict(state)
    one.set_epoch(0)
    assert one.begin_pass(0, 1).place is not None
    one.load_state_dict(state)
    one.set_epoch(1)
    assert one.begin_pass(0, 1).place is None
    assert one.state_dict()["epoch"] == 1


def test_a_state_of_other_options_or_shards_is_refused() -> None:
    one = progress(seed=1, max_seq_len=64)
    one.begin_pass(0, 1)
    with pytest.raises(DatasetError, match="seed was 1, now 2"):
        progress(seed=2, max_seq_len=64).load_state_dict(one.state_dict())
    other = progress(seed=1, max_seq_len=64)
    other.load_state_dict(one.state_dict())
    with pytest.raises(DatasetError, match=r"of 1 shards .*, and here are 2"):
        other.begin_pass(0, 2)


@pytest.mark.parametrize(("epoch", "rank", "world_size"), [(-1, 0, 1), (True, 0, 1), (0, 1, 1), (0, -1, 1), (0, 0, 0)])
def test_epochs_and_ranks_that_are_none_are_refused(epoch: int, rank: int, world_size: int) -> None:
    with pytest.raises(ChessError):
        Progress({}, epoch=epoch, rank=rank, world_size=world_size)
