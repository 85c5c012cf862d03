"""PGN files → a folder of Parquet files in the pretraining schema.

In: PGN files from lichess, chess programs or tournament managers, compressed or not. Out: `games_00000.parquet`, …,
counts of the games left out, and in `OUT.skipped.jsonl` the file, line and reason for each of them.

Runs of games are read in parallel and joined in order: the same files give the same bytes for any number of workers.
"""

import itertools
import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from spanloom.building.ordered import in_order, pool_of
from spanloom.errors import SourceError
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.pgn.filters import BestMove, GameFilter
from spanloom.families.chess.pgn.games import ReadGames, read_games
from spanloom.families.chess.pgn.schema import SCHEMA, write_table
from spanloom.families.chess.pgn.text import game_texts, unit_in
from spanloom.storage import write_atomically


@dataclass(kw_only=True)
class PgnCounts:
    """The counts of a conversion: games and rows written, rows with values, games left out by reason (`skipped`).

    `unclear_values`: evaluations left out of written games, as their unit or form is unclear; `foreign`: written games
    with other piece letters, by language; `texts`: texts between the games.
    """

    games: int = 0
    rows: int = 0
    rows_with_values: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    unclear_values: int = 0
    foreign: Counter[str] = field(default_factory=Counter)
    texts: int = 0


def convert_pgn(
    files: Iterable[Path],
    out: Path,
    *,
    best_move: BestMove = "played",
    games_per_file: int = 10_000,
    wanted: GameFilter | None = None,
    workers: int = 1,
) -> PgnCounts:
    """Writes the games of PGN files as `games_00000.parquet`, … in the folder `out`, which must have no Parquet files.

    `best_move`: with "played" the played move is the best move (a model learns to imitate the players); with "none"
    there is no best move (a model learns only boards and values). Raises SourceError for a file that cannot be read or
    has no game; ChessError for invalid options, existing output, or if no game could be converted.
    """
    files = list(files)
    if games_per_file < 1:
        raise ChessError(f"{games_per_file} games a file: give 1 or more")
    if present := sorted(out.glob("*.parquet")):
        raise ChessError("the folder holds Parquet files already", where=str(present[0]), remedy="give a new --out")
    counts = PgnCounts()
    skipped: list[dict[str, Any]] = []
    with closing(_all_games(files, best_move, wanted or GameFilter(), workers, counts, skipped)) as games:
        for number in itertools.count():
            if not (batch := list(itertools.islice(games, games_per_file))):
                break
            table = pa.Table.from_batches(batch, schema=SCHEMA).combine_chunks()
            counts.games += len(batch)
            counts.rows += table.num_rows
            counts.rows_with_values += table.num_rows - table.column("win").null_count
            write_table(table, out / f"games_{number:05d}.parquet")
    if skipped:
        lines = b"".join(json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in skipped)
        write_atomically(skipped_file(out), lines)
    else:
        skipped_file(out).unlink(missing_ok=True)  # left by an earlier conversion whose games were removed
    if not counts.games:
        left_out = ", ".join(f"{number} {reason}" for reason, number in counts.skipped.items()) or "there are none"
        raise ChessError(f"no game could be converted ({left_out})", where=", ".join(map(str, files)))
    return counts


def skipped_file(out: Path) -> Path:
    """The path of the file next to `out` that lists the games left out."""
    return out.with_name(f"{out.name}.skipped.jsonl")


def _all_games(
    files: list[Path],
    best_move: BestMove,
    wanted: GameFilter,
    workers: int,
    counts: PgnCounts,
    skipped: list[dict[str, Any]],
) -> Generator[pa.RecordBatch]:
    """Yields the rows of each game, in order. Meanwhile adds the games left out to `counts.skipped` and `skipped`."""
    with pool_of(workers) as pool:
        for path in files:
            read = partial(read_games, best_move=best_move, wanted=wanted, unit=unit_in(path))
            runs = in_order(game_texts(path), read, pool, what=lambda _, path=path: path.name)  # type: ignore[misc]
            yield from _games_of(path, (games for _, games in runs), counts, skipped)


def _games_of(
    path: Path, runs: Iterator[ReadGames], counts: PgnCounts, skipped: list[dict[str, Any]]
) -> Iterator[pa.RecordBatch]:
    first = 0
    for run in runs:
        for game in run.skipped:
            named = {} if game.game is None else {"game": first + game.game}
            entry = {"file": str(path), "line": game.line, **named, "reason": game.reason}
            skipped.append({**entry, **({"detail": game.detail} if game.detail else {})})
            if game.game is None:
                counts.texts += 1
            else:
                counts.skipped[game.reason] += 1
        counts.unclear_values += run.unclear
        counts.foreign.update(run.foreign)
        row = 0
        assert run.rows is not None, "of each run that was read"
        for number, plies in zip(run.kept, run.plies, strict=True):
            rows = run.rows.slice(row, plies)
            row += plies
            ids = pa.array([f"{path_name(path)}_{first + number}"] * plies, pa.string())
            yield pa.RecordBatch.from_arrays([ids, *rows.columns], schema=SCHEMA)
        first += run.games
    if not first:
        raise SourceError(
            "the file holds no game of chess", where=str(path), remedy="give PGN: .pgn, also .gz, .bz2 or .zst"
        )


def path_name(path: Path) -> str:
    """The name of a PGN file without suffixes, the prefix of its games' ids: `club` for `club.pgn.zst`."""
    name = path.name.removesuffix(path.suffix) if path.suffix.lower() in (".gz", ".bz2", ".zst") else path.name
    return Path(name).stem
