"""Passes over samples that are read in shards: the progress of each shard, and a state from which to resume.

In: the options, the epoch, the rank and the worker of a process. Out: the shard to read and the place to start from;
batches; a state of JSON values.

The number of shards is ranks · workers: worker w of W in rank r reads shard r · W + w. Workers take turns; a pass that
resumes between two turns begins with the worker whose turn it is (`first`).
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from spanloom.errors import DatasetError
from spanloom.workers import end_at_once, passing

Sample = dict[str, torch.Tensor]
ShardPlace = dict[str, Any]
"""The progress of a shard, as JSON values: `shard`, its number, and what its samples need to resume."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """What a process must read: its shard, the number of shards, and the place after which to resume, or None."""

    shard: int
    shards: int
    place: ShardPlace | None


class Progress:
    """The epoch and the place of one rank. `options`: those of the run; a state must have been taken with the same.

    `place`   after the last sample of the latest pass
    `begin`   the places from which the next pass resumes, by shard  `first`  the shard of the rank whose turn it is
    """

    def __init__(self, options: Mapping[str, Any], *, epoch: int, rank: int, world_size: int) -> None:
        self.options, self.epoch, self.rank, self.world_size = dict(options), epoch, rank, world_size
        self.place: ShardPlace | None = None
        self.begin: dict[int, ShardPlace] = {}
        self.first = 0
        self._begin_shards: int | None = None  # number of shards in the state of `begin`
        self._shards = world_size  # of the latest pass

    def set_epoch(self, epoch: int) -> None:
        """The next pass reads another epoch, from its beginning."""
        if epoch != self.epoch:
            self.epoch, self.place = epoch, None
            self.forget()

    def begin_pass(self, worker: int, workers: int) -> Begin:
        """Starts a pass as worker `worker` of `workers`: at its beginning, or at the place of the loaded state."""
        self._shards = self.world_size * workers
        if self._begin_shards is not None:
            check_shards(self._begin_shards, self._shards)
        shard = self.rank * workers + (worker + self.first) % workers
        place = self.begin.get(shard)
        self.forget()
        self.place = place or {"shard": shard}
        return Begin(shard=shard, shards=self._shards, place=place)

    def here(self) -> ShardPlace | None:
        """The place after the last sample."""
        return self.place

    def state_dict(self) -> dict[str, Any]:
        """The place after the last sample of this process, or, before the next pass, the state that was loaded last."""
        if self._begin_shards is not None:
            return self.state_of(self._begin_shards, self.first, list(self.begin.values()))
        position = self.here()
        return self.state_of(self._shards, 0, [] if position is None else [position])

    def state_of(self, shards: int, first: int, places: list[ShardPlace]) -> dict[str, Any]:
        """The state of a rank, with these places of its shards."""
        return {"options": self.options, "epoch": self.epoch, "shards": shards, "first": first, "places": places}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass resumes after that place. Raises DatasetError if the state was taken with other options."""
        if different := differences(state["options"], self.options):
            raise DatasetError(
                f"the state to resume from was taken with other options: {different}",
                remedy="give the options that it was taken with",
            )
        self.begin = {place["shard"]: dict(place) for place in state["places"]}
        self.epoch, self.first = state["epoch"], state["first"]
        self._begin_shards = state["shards"] if self.begin else None  # without places it fits any number of shards

    def forget(self) -> None:
        """The next pass starts at its beginning."""
        self.begin, self._begin_shards, self.first = {}, None, 0


def check_shards(taken: int, shards: int) -> None:
    """Raises DatasetError if a state was taken with another number of shards."""
    if taken != shards:
        raise DatasetError(
            f"the state to resume from is of {taken} shards (ranks · workers), and here are {shards}",
            remedy="resume with as many ranks and workers as it was taken with",
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences between two sets of options, as text; empty if there are none."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(f"{name} was {before.get(name)}, now {now.get(name)}" for name in names)


class ShardedDataset(IterableDataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Consecutive passes over this rank's shards, each read by one worker. `progress` has epoch and place."""

    progress: Progress

    @abstractmethod
    def samples(self, begin: Begin) -> Iterator[Sample]:
        """The samples of a shard after a place; each sets `progress.place` before it is returned."""

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        if worker:
            end_at_once()
        # `begin_pass` runs now, not at the first sample: it takes the loaded state.
        return self.samples(self.progress.begin_pass(*((worker.id, worker.num_workers) if worker else (0, 1))))

    def set_epoch(self, epoch: int) -> None:
        """The next pass starts at its beginning, with another order and other random draws."""
        self.progress.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The place after the last sample that this object returned, as JSON values."""
        return self.progress.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass resumes after that place. Raises DatasetError if the state was taken with other options."""
        self.progress.load_state_dict(state)


class PassLoader:
    """torch's DataLoader over a `ShardedDataset`. It can resume in the middle of a pass, although workers read ahead.

    Workers take turns with their batches. `state_dict()` is the place after the last batch that was returned; what
    workers have read ahead does not matter. Workers are spawned again for each pass. `options` are DataLoader's.
    """

    def __init__(
        self,
        dataset: ShardedDataset,
        collate: Callable[[list[Sample]], Sample],
        *,
        batch_size: int,
        workers: int,
        drop_last: bool,
        **options: Any,
    ) -> None:
        self.dataset, self._workers = dataset, max(1, workers)
        self._shards = dataset.progress.world_size * self._workers
        options = {"generator": torch.Generator(), **options}  # not torch's own, which the model may use
        if workers:  # tokenizers and pyarrow run threads, and a fork of a threaded process can deadlock
            options = {"multiprocessing_context": "spawn", **options}
        self._loader = DataLoader(
            _Batches(dataset, collate, batch_size, drop_last), batch_size=None, num_workers=workers, **options
        )
        self._take_over()

    def __iter__(self) -> Iterator[Sample]:
        self._take_over()
        batches = passing(self._loader)  # from here on the workers, or the iterator, know where to resume
        self.dataset.progress.forget()
        for batch, shard, place in batches:
            self._places[shard] = place
            if batch is not None:
                self._first = (shard + 1) % self._workers
                yield batch

    def state_dict(self) -> dict[str, Any]:
        """The place of this rank, as JSON values."""
        if self._epoch != self.dataset.progress.epoch:  # its next pass has not begun
            self._take_over()
        return self.dataset.progress.state_of(self._shards, self._first, self._shard_places())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the place. Raises DatasetError if it was taken with other options or another number of shards."""
        check_shards(state["shards"], self._shards)
        self.dataset.load_state_dict(state)
        self._take_over()

    def _shard_places(self) -> list[ShardPlace]:
        return [json.loads(self._places[shard]) for shard in sorted(self._places)]

    def _take_over(self) -> None:
        progress = self.dataset.progress
        self._places = {shard: json.dumps(place) for shard, place in progress.begin.items()}
        self._first, self._epoch = progress.first, progress.epoch


class _Batches(IterableDataset[tuple[Sample | None, int, str]]):  # type: ignore[misc]  # as above
    """Batches, each with its shard and the place after it; the last item is the place without a batch."""

    def __init__(
        self, dataset: ShardedDataset, collate: Callable[[list[Sample]], Sample], batch_size: int, drop_last: bool
    ) -> None:
        self._dataset, self._collate, self._size, self._drop_last = dataset, collate, batch_size, drop_last

    def __iter__(self) -> Iterator[tuple[Sample | None, int, str]]:
        samples = iter(self._dataset)  # now, not at the first batch
        return self._batches(samples)

    def _batches(self, samples: Iterator[Sample]) -> Iterator[tuple[Sample | None, int, str]]:
        batch: list[Sample] = []
        for sample in samples:
            batch.append(sample)
            if len(batch) == self._size:
                yield self._collate(batch), *self._place()
                batch = []
        if batch and not self._drop_last:
            yield self._collate(batch), *self._place()
        yield None, *self._place()

    def _place(self) -> tuple[int, str]:
        place = self._dataset.progress.here()
        assert place is not None  # a pass has begun
        return place["shard"], json.dumps(place)
