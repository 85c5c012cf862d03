"""Samples for torch: games, and games mixed with thinking samples, from Parquet files or from prepared games.

In: folders. Out: one sample at a time: the arrays of `tensors` (and of `thinking`) as torch tensors. Batches are made
by torch's `default_collate`.

The draws for a game (which boards are written, where the sample begins) are a hash of seed, epoch, file and game id.
So the draws do not depend on worker, rank, order, bad games in the same file, or whether the games are prepared. The
global random generators are not used.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import default_collate

from spanloom.families.chess import defaults
from spanloom.families.chess.encoding.draws import pass_of, uniforms
from spanloom.families.chess.encoding.games import Game, row_offsets, valid_starts, written_boards
from spanloom.families.chess.encoding.tensors import Tensors, cut
from spanloom.families.chess.encoding.thinking import ThinkingRules, drawn_sample
from spanloom.families.chess.options import OnError
from spanloom.families.chess.reading.epochs import Counts, Files, Place, dealt
from spanloom.families.chess.reading.folders import open_files
from spanloom.families.chess.reading.prepared import KINDS
from spanloom.families.chess.reading.progress import Progress, require
from spanloom.families.chess.reading.tables import GameTable
from spanloom.records.scalars import is_integer
from spanloom.training.runs.passes import Begin, PassLoader, Sample, ShardedDataset

Split = Literal["train", "valid"]

_MIX = 256
"""The number of draws of the mixture computed at once."""


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """The options of both datasets (see `ChessIterableDataset`). Raises ChessError for invalid options."""

    max_seq_len: int
    skip_board_prob: float
    shuffle_files: bool
    shuffle_games: bool
    seed: int
    start_on_board: bool
    literal_d_targets: bool
    on_error: OnError
    split: Split

    def __post_init__(self) -> None:
        length, skipped = self.max_seq_len, self.skip_board_prob
        require(is_integer(length) and length >= 1, f"max_seq_len is {length!r}: give 1 or more")
        require(0 <= skipped <= 1, f"skip_board_prob is {skipped!r}: give a number from 0 to 1")
        require(is_integer(self.seed), f"the seed is {self.seed!r}: give a whole number")
        require(self.on_error in ("skip", "raise"), f'on_error is {self.on_error!r}: say "skip" or "raise"')
        require(self.split in ("train", "valid"), f'split is {self.split!r}: say "train" or "valid"')


def game_sample(
    game: Game,
    key: bytes,
    of_pass: bytes,
    max_seq_len: int,
    *,
    skip_board_prob: float,
    start_on_board: bool = False,
    literal_d_targets: bool = False,
) -> Tensors:
    """The sample of a game in a pass. Its boards and its start depend only on the key and the pass."""
    numbers = uniforms(key, of_pass, len(game) + 1)
    written = written_boards(game.played, numbers[1:] >= skip_board_prob)
    offsets = row_offsets(game.played, written)
    starts = valid_starts(game.played, written, offsets, start_on_board=start_on_board)
    start = int(starts[int(numbers[0] * starts.size)])
    return cut(game, written, offsets, start, max_seq_len, literal_d_targets=literal_d_targets)


class _Counting(ShardedDataset):
    """The common part of both datasets."""

    progress: Progress
    options: SampleOptions
    _games: Files[GameTable] | None

    @property
    def counts(self) -> Counts:
        """The counts of the last pass, so far."""
        return self.progress.counts

    def _dealt(
        self, files: Files[Any], order: bytes, shard: int, shards: int, begin: Place | None, counts: Counts | None
    ) -> Iterator[tuple[Any, int, Place]]:
        """See `dealt`. `order`: the input of its draws."""
        shuffled = {name: getattr(self.options, name) for name in ("shuffle_files", "shuffle_games")}
        return dealt(files, shard=shard, shards=shards, order_of=order, begin=begin, counts=counts, **shuffled)

    def _game_samples(
        self, shard: int, shards: int, begin: Mapping[str, Any] | None = None, counts: Counts | None = None
    ) -> Iterator[tuple[Tensors, Place]]:
        """Yields the samples of a shard's games in this epoch, each with the place after it. Counts left-out games."""
        if self._games is None:
            return
        options, epoch = self.options, self.progress.epoch
        of_pass, order = (pass_of(name, options.seed, epoch) for name in ("game", "order"))
        written = {name: getattr(options, name) for name in ("skip_board_prob", "start_on_board", "literal_d_targets")}
        before = Place(**begin) if begin else None
        for table, game, place in self._dealt(self._games, order, shard, shards, before, counts):
            key = table.keys[game].tobytes()
            yield game_sample(table.game(game), key, of_pass, options.max_seq_len, **written), place


class ChessIterableDataset(_Counting):
    """One pass over this rank's share of the games. Each game gives one sample of at most `max_seq_len` tokens.

    `parquet_dir`      a folder of Parquet files, or the root of prepared games (then `split` selects the split)
    `skip_board_prob`  the probability of leaving out a board; the first is always written
    `seed`, `epoch`    determine all draws; call `set_epoch` before each pass
    `rank`, `world_size`   of this process; the workers of a DataLoader share the rank's games
    `start_on_board`   samples start only at a written board
    `literal_d_targets`    gives a ply's draw value one ply early, to reproduce runs that did so (see `tensors`)
    `on_error`         "skip" leaves out games with a bad FEN or an unknown move, and counts them; "raise" raises
                       ChessError for the first such game

    Raises ChessError (a ValueError) for invalid options, NoFilesError (a FileNotFoundError) for a folder without
    Parquet files; while reading, SourceError for a file that cannot be read.

    After a pass, `counts` has the numbers of samples and of games left out. `state_dict()` is the place after the last
    sample; after `load_state_dict()` the next pass continues there. With workers, use `ChessLoader` for both.
    """

    def __init__(
        self,
        parquet_dir: Path | str,
        max_seq_len: int = defaults.MAX_SEQ_LEN,
        skip_board_prob: float = defaults.SKIP_BOARD_PROB,
        shuffle_files: bool = True,
        shuffle_games: bool = True,
        *,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
        start_on_board: bool = False,
        literal_d_targets: bool = False,
        on_error: OnError = defaults.ON_ERROR,
        split: Split = "train",
    ) -> None:
        self.options = SampleOptions(
            max_seq_len=max_seq_len,
            skip_board_prob=skip_board_prob,
            shuffle_files=shuffle_files,
            shuffle_games=shuffle_games,
            seed=seed,
            start_on_board=start_on_board,
            literal_d_targets=literal_d_targets,
            on_error=on_error,
            split=split,
        )
        self._games = open_files(Path(parquet_dir), "games", split, on_error)
        self.progress = Progress(
            {**vars(self.options), "games": self._games.fingerprint}, epoch=epoch, rank=rank, world_size=world_size
        )

    def samples(self, begin: Begin) -> Iterator[Sample]:
        """See `ShardedDataset`."""
        return self._samples(begin.shard, begin.shards, begin.place or {}, self.progress.counts)

    def _samples(self, shard: int, shards: int, begin: Mapping[str, Any], counts: Counts) -> Iterator[Sample]:
        for made, place in self._game_samples(shard, shards, begin.get("games"), counts):
            counts.games += 1
            self.progress.place = {"shard": shard, "games": vars(place)}
            yield as_torch(made)


class FinetuneIterableDataset(_Counting):
    """Games and thinking samples, mixed: each sample is a thinking sample with probability `variation_ratio`.

    The pass ends with the games. Thinking rows start over with new draws when they are used up; `variation_epoch`
    (int64, in every sample) counts these passes. With a ratio of 1, or without games, it is one pass over the thinking
    rows; without usable thinking rows all samples are games.

    `pretrain_parquet_dir`, `variation_parquet_dir`   folders of Parquet files, or roots of prepared games; or None
    `max_variations`, `max_depth`   limits of a thinking sample; reduced if the sample is longer than `max_seq_len`
    `tau_base`, `tau_alpha`         temperature of the variations' random order: a higher one follows the visits less
    `cot_values`                    value targets also where thinking moves are predicted, not only at end_think
    The other options, the errors and the state are those of `ChessIterableDataset`.
    """

    def __init__(
        self,
        pretrain_parquet_dir: Path | str | None = None,
        variation_parquet_dir: Path | str | None = None,
        max_seq_len: int = defaults.FINETUNE_MAX_SEQ_LEN,
        variation_ratio: float = defaults.VARIATION_RATIO,
        max_variations: int = defaults.MAX_VARIATIONS,
        max_depth: int = defaults.MAX_DEPTH,
        shuffle_files: bool = True,
        shuffle_games: bool = True,
        skip_board_prob: float = defaults.SKIP_BOARD_PROB,
        tau_base: float = defaults.TAU_BASE,
        tau_alpha: float = defaults.TAU_ALPHA,
        *,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
        start_on_board: bool = False,
        literal_d_targets: bool = False,
        cot_values: bool = False,
        on_error: OnError = defaults.ON_ERROR,
        split: Split = "train",
    ) -> None:
        require(0 <= variation_ratio <= 1, f"variation_ratio is {variation_ratio!r}: give a number from 0 to 1")
        for name, value in (("max_variations", max_variations), ("max_depth", max_depth)):
            require(is_integer(value) and value >= 1, f"{name} is {value!r}: give 1 or more")
        require(0 < tau_base < np.inf, f"tau_base is {tau_base!r}: give more than 0")
        require(0 <= tau_alpha < np.inf, f"tau_alpha is {tau_alpha!r}: give 0 or more")
        require(
            pretrain_parquet_dir is not None or variation_parquet_dir is not None,
            "neither a folder of games nor one of thinking rows was given",
        )
        if pretrain_parquet_dir is None and variation_ratio == 0:
            warnings.warn("variation_ratio is 0 and there are no games: the pass is empty", stacklevel=2)
        self.options = SampleOptions(
            max_seq_len=max_seq_len,
            skip_board_prob=skip_board_prob,
            shuffle_files=shuffle_files,
            shuffle_games=shuffle_games,
            seed=seed,
            start_on_board=start_on_board,
            literal_d_targets=literal_d_targets,
            on_error=on_error,
            split=split,
        )
        self.variation_ratio, self.cot_values = variation_ratio, cot_values
        self.rules = ThinkingRules(
            max_variations=max_variations, max_depth=max_depth, tau_base=tau_base, tau_alpha=tau_alpha
        )
        self._games, self._thinking = (
            None if place is None else open_files(Path(place), kind, split, on_error)
            for kind, place in zip(KINDS, (pretrain_parquet_dir, variation_parquet_dir), strict=True)
        )
        mixed = {
            "variation_ratio": variation_ratio,
            "cot_values": cot_values,
            **vars(self.rules),
            "games": self._games and self._games.fingerprint,
            "thinking": self._thinking and self._thinking.fingerprint,
        }
        self.progress = Progress({**vars(self.options), **mixed}, epoch=epoch, rank=rank, world_size=world_size)

    def samples(self, begin: Begin) -> Iterator[Sample]:
        """See `ShardedDataset`."""
        return self._samples(begin.shard, begin.shards, begin.place or {}, self.progress.counts)

    def _samples(self, shard: int, shards: int, begin: Mapping[str, Any], counts: Counts) -> Iterator[Sample]:
        behind = begin.get("games")
        games = self._game_samples(shard, shards, behind, counts)
        rows = partial(self._thinking_rows, shard, shards)
        thinking = _Passes(rows, self._thinking is not None, begin.get("thinking"), counts)
        # Without games this is a single pass over the thinking rows.
        alone = self.variation_ratio == 1 or (
            self.variation_ratio > 0 and behind is None and next(self._game_samples(shard, shards), None) is None
        )
        step = int(begin.get("step", 0))
        for number, think in enumerate(self._mixture(shard, step), start=step + 1):
            made = None
            if thinking.usable and (think or alone):
                made = thinking.next(once=alone)
                if made is None and thinking.usable:
                    return  # the single pass is finished
            if made is not None:
                counts.thinking += 1
            elif (following := next(games, None)) is not None:
                made, behind = as_torch(following[0]), vars(following[1])
                _add_extra(made, self.options.max_seq_len)
                counts.games += 1
            else:
                return
            made["variation_epoch"] = torch.tensor(thinking.passes)
            self.progress.place = {"shard": shard, "step": number, "games": behind, "thinking": thinking.place()}
            yield made

    def _mixture(self, shard: int, step: int) -> Iterator[bool]:
        """Yields for each sample of a shard, from number `step` on, whether it is drawn as a thinking sample."""
        for block in itertools.count(step // _MIX):
            of_block = pass_of("mix", self.options.seed, self.progress.epoch, shard, block)
            drawn = uniforms(b"", of_block, _MIX) < self.variation_ratio
            yield from drawn[max(step - block * _MIX, 0) :].tolist()

    def _thinking_rows(
        self, shard: int, shards: int, number: int, begin: Place | None, counts: Counts | None
    ) -> Iterator[tuple[Tensors | str, Place]]:
        """Yields, for each of a shard's thinking rows, the sample and the place after the row, in pass `number`.

        A row without a sample gives the reason instead.
        """
        if self._thinking is None:
            return
        options, epoch = self.options, self.progress.epoch
        of_pass = pass_of("thinking", options.seed, epoch, number)
        order = pass_of("thinking order", options.seed, epoch, number)
        for table, row, place in self._dealt(self._thinking, order, shard, shards, begin, counts):
            key, length = table.keys[row].tobytes(), options.max_seq_len
            yield drawn_sample(table.row(row), self.rules, key, of_pass, length, cot_values=self.cot_values), place


class _Passes:
    """The thinking samples of a shard, pass after pass, and the current place.

    `rows` starts a pass: (its number, the place to continue from, the counts to add left-out rows to) → samples.
    """

    def __init__(
        self,
        rows: Callable[[int, Place | None, Counts | None], Iterator[tuple[Tensors | str, Place]]],
        usable: bool,
        begin: Mapping[str, Any] | None,
        counts: Counts,
    ) -> None:
        self._begin_pass, self._counts = rows, counts
        begin = begin or {}
        self.passes = int(begin.get("passes", 0))
        """The number of completed passes: variation_epoch."""
        self.usable = bool(begin.get("usable", usable))
        """False if there are no rows, or a whole pass gave no sample."""
        self._given = int(begin.get("given", 0))  # samples of this pass
        self._place = Place(**begin["place"]) if begin.get("place") else None
        self._rows = self._pass()

    def place(self) -> dict[str, Any]:
        position = None if self._place is None else vars(self._place)
        return {"passes": self.passes, "usable": self.usable, "given": self._given, "place": position}

    def next(self, *, once: bool) -> Sample | None:
        """The next sample, of this pass or the next one.

        None if a whole pass gives no sample, or if the pass has ended and `once` is set.
        """
        while True:
            for made, place in self._rows:
                self._place = place
                if isinstance(made, str):
                    if self.passes == 0:
                        self._counts.left_out[made] += 1
                    continue
                self._given += 1
                return as_torch(made)
            if not self._given:
                self.usable = False
                return None
            if once:
                return None
            self.passes, self._given, self._place = self.passes + 1, 0, None
            self._rows = self._pass()

    def _pass(self) -> Iterator[tuple[Tensors | str, Place]]:
        return self._begin_pass(self.passes, self._place, self._counts if self.passes == 0 else None)


def as_torch(made: Tensors) -> Sample:
    """The arrays of a sample as tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in made.items()}


def _add_extra(sample: Sample, length: int) -> None:
    """Adds the fields of thinking samples, all zero or False, so that both kinds can be in one batch."""
    for name in ("thinking_move_mask", "continue_var_mask", "new_variation_mask"):
        sample[name] = torch.zeros(length, dtype=torch.bool)
    sample["first_is_not_best"] = torch.tensor(False)


ChessDataset = ChessIterableDataset | FinetuneIterableDataset


class ChessLoader(PassLoader):
    """`PassLoader` over one of the datasets. After a pass, `counts` is the sum over the workers."""

    def __init__(
        self, dataset: ChessDataset, *, batch_size: int, workers: int = 0, drop_last: bool = False, **options: Any
    ) -> None:
        require(is_integer(batch_size) and batch_size >= 1, f"batch_size is {batch_size!r}: give 1 or more")
        require(not options.get("persistent_workers"), "workers that outlive a pass would not learn where to resume")
        super().__init__(
            dataset, default_collate, batch_size=batch_size, workers=workers, drop_last=drop_last, **options
        )
        self.counts = Counts()

    def __iter__(self) -> Iterator[Sample]:
        self.counts = Counts()
        yield from super().__iter__()
        for place in self._shard_places():
            self.counts.include(Counts.from_dict(place["counts"]))
