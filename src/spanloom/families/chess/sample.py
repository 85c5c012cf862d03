"""Games and thinking rows of our own, for trying the family without any data.

In: numbers of both. Out: files of both schemas, from `sample_games.parquet` and `sample_thinking.parquet` beside this
module. The first games are famous games of the nineteenth century. In the others, a small program played against
itself: it compared material one move ahead, and sometimes played a random good move. Win, draw and loss are its
estimates.
"""

from importlib.resources import files as packaged
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.families.chess import defaults
from spanloom.families.chess.pgn import Row
from spanloom.families.chess.pgn.schema import write_table
from spanloom.storage.publishing import Upload, publish_files
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri

FILES = 4


def write_sample(
    out: Path, *, games: int = defaults.SAMPLE_GAMES, thinking: int = defaults.SAMPLE_THINKING_ROWS
) -> dict[str, int]:
    """Writes `out/games/*.parquet` and `out/thinking/*.parquet`. Returns counts of games, plies and thinking rows."""
    played, rows = sample_games(games), sample_thinking(thinking)
    for number in range(FILES):
        plies = list(chain.from_iterable(played[number::FILES]))
        for kind, some in (("games", plies), ("thinking", rows[number::FILES])):
            if some:
                table = pa.Table.from_pylist(some, schema=_packaged(kind).schema)
                write_table(table, out / kind / f"{kind}_{number:05d}.parquet")
    return {"games": len(played), "plies": sum(map(len, played)), "thinking_rows": len(rows)}


def run(*, out: str, games: int, thinking: int, scratch: Path | None = None) -> dict[str, int]:
    """Runs `write_sample` with a path or URI."""
    with scratch_for("chess-sample", [out], scratch) as staging:
        made = staging.path(out)
        counts = write_sample(made, games=games, thinking=thinking)
        if is_uri(out):
            files = sorted(made.rglob("*.parquet"))
            publish_files([Upload(path=file, uri=parse_uri(out) / file.relative_to(made).as_posix()) for file in files])
    return counts


def sample_games(count: int = defaults.SAMPLE_GAMES) -> list[list[Row]]:
    """The first games, each as rows of the pretraining schema."""
    by_game: dict[str, list[Row]] = {}
    for row in _packaged("games").to_pylist():
        by_game.setdefault(row["game_id"], []).append(row)
    return list(by_game.values())[:count]


def sample_thinking(count: int = defaults.SAMPLE_THINKING_ROWS) -> list[Row]:
    """The first rows of the thinking schema."""
    rows: list[Row] = _packaged("thinking").slice(0, count).to_pylist()
    return rows


def _packaged(kind: str) -> pa.Table:
    data = packaged("spanloom.families.chess").joinpath(f"sample_{kind}.parquet").read_bytes()
    return pq.read_table(pa.BufferReader(data))
