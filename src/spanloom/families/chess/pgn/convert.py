"""PGN files → a folder of Parquet files in the pretraining schema.

In: PGN files from lichess, chess programs or tournament managers, compressed or not. Out: `games_00000.parquet`, …,
counts of the games left out, and in `OUT.skipped.jsonl` the file, line and reason for each of them.

    .spanloom-converted.json    written last: the counts, and the games left out; a second run reads it

Runs of games are read in parallel and joined in order: the same files give the same bytes for any number of workers.
"""

import itertools
import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from spanloom.building.ordered import in_order, pool_of
from spanloom.errors import SourceError
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.options import BestMove, GameFilter
from spanloom.families.chess.pgn.games import ReadGames, read_games
from spanloom.families.chess.pgn.schema import SCHEMA, write_table
from spanloom.families.chess.pgn.text import game_texts, unit_in
from spanloom.provenance import canonical_json, part_identity
from spanloom.storage import sha256_file, write_atomically
from spanloom.storage.folders.filling import Steps, filling_in_steps
from spanloom.storage.folders.repeated import MADE_JSON, OnSame, Output, made_or_same, write_record
from spanloom.storage.unchanged import FileState, check_unchanged, file_state

CONVERTED = ".spanloom-converted.json"
RECORD_NAME = ".spanloom-chess-convert-unfinished"


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
    overwrite: bool = False,
    on_same: OnSame | None = None,
) -> PgnCounts:
    """Writes the games of PGN files as `games_00000.parquet`, … in the folder `out`, which is new, empty or of an
    earlier conversion: the same one is kept and `on_same` called, another is replaced if `overwrite` is set.

    `best_move`: with "played" the played move is the best move (a model learns to imitate the players); with "none"
    there is no best move (a model learns only boards and values). Raises SourceError for a file that cannot be read or
    has no game; ChessError for invalid options, or if no game could be converted; ConflictError for other content.
    """
    files, wanted = list(files), wanted or GameFilter()
    if games_per_file < 1:
        raise ChessError(f"{games_per_file} games a file: give 1 or more")
    states = [_state(file) for file in files]
    identity = {
        "input": [[str(file), sha256_file(file)] for file in files],
        "options": {"best_move": best_move, "games_per_file": games_per_file, **asdict(wanted)},
        "code": part_identity("chess", "pyarrow"),
    }
    output = Output(identity=identity, last=CONVERTED, record_name=RECORD_NAME)

    def make(folder: Path) -> None:
        with filling_in_steps(folder, record_name=RECORD_NAME, identity=identity, last=CONVERTED) as steps:
            if not steps.finished:
                converted = _write_games(files, folder, steps, best_move, games_per_file, wanted, workers)
                for file, state in zip(files, states, strict=True):
                    check_unchanged(file, state)
                steps.begin([MADE_JSON])
                write_record(folder, output)
                write_atomically(folder / CONVERTED, canonical_json(converted))

    made_or_same(out, output, make, overwrite=overwrite, on_same=on_same)
    return _converted(out)


def _state(file: Path) -> FileState:
    try:
        return file_state(file)
    except FileNotFoundError:
        raise SourceError("there is no such file", where=str(file), remedy="give PGN files") from None


def _write_games(
    files: list[Path],
    folder: Path,
    steps: Steps,
    best_move: BestMove,
    games_per_file: int,
    wanted: GameFilter,
    workers: int,
) -> dict[str, Any]:
    """Writes all games. Returns the content of `CONVERTED`."""
    counts = PgnCounts()
    skipped: list[dict[str, Any]] = []
    with closing(_all_games(files, best_move, wanted, workers, counts, skipped)) as games:
        for number in itertools.count():
            if not (batch := list(itertools.islice(games, games_per_file))):
                break
            table = pa.Table.from_batches(batch, schema=SCHEMA).combine_chunks()
            counts.games += len(batch)
            counts.rows += table.num_rows
            counts.rows_with_values += table.num_rows - table.column("win").null_count
            name = f"games_{number:05d}.parquet"
            steps.begin([name])
            write_table(table, folder / name)
    if not counts.games:
        left_out = ", ".join(f"{number} {reason}" for reason, number in counts.skipped.items()) or "there are none"
        first = next((entry for entry in skipped if "game" in entry), None)
        where = f"{first['file']}, line {first['line']}" if first else ", ".join(map(str, files))
        of_first = f"; the first: {first['reason']}, {first['detail']}" if first and "detail" in first else ""
        raise ChessError(f"no game could be converted ({left_out}{of_first})", where=where, remedy="give other games")
    return {"counts": vars(counts), "skipped": skipped}


def _converted(out: Path) -> PgnCounts:
    """The counts of a finished conversion; writes the list of the games left out, unless it is there already."""
    converted = json.loads((out / CONVERTED).read_bytes())
    lines = b"".join(json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in converted["skipped"])
    listed = skipped_file(out)
    if not lines:
        listed.unlink(missing_ok=True)  # left by an earlier conversion
    elif not listed.is_file() or listed.read_bytes() != lines:
        write_atomically(listed, lines)
    counts = converted["counts"]
    return PgnCounts(**{**counts, **{name: Counter(counts[name]) for name in ("skipped", "foreign")}})


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
