"""A folder of Parquet files or a root of prepared games → the files that samples are made from.

In: a path. Out: `Files`, which reads one table at a time. Both kinds of folder give the same games with the same keys.
"""

from functools import partial
from pathlib import Path
from typing import Any

from spanloom.dataset.root.opened import ReadOnce
from spanloom.families.chess.errors import NoFilesError
from spanloom.families.chess.manifest import is_prepared, read
from spanloom.families.chess.options import OnError
from spanloom.families.chess.reading.epochs import Files
from spanloom.families.chess.reading.prepared import read_prepared
from spanloom.families.chess.reading.source import parquet_files, raise_first, read_table
from spanloom.families.chess.reading.tables import GameTable, Kind, ThinkingTable


def _prepared_content(place: Path) -> dict[str, Any] | None:
    return dict(read(place)["content"]) if is_prepared(place) else None


prepared_content = ReadOnce(_prepared_content)
"""The `content` of the manifest at a root of prepared games; None for a folder of Parquet files.

Each process reads and checks the manifest once, and again only if it changes. Do not modify the returned value.
"""


def open_files(place: Path, kind: Kind, split: str, on_error: OnError) -> Files[Any]:
    """The games or thinking rows of a folder, or of one split of a root. Raises NoFilesError if there are none."""
    if content := prepared_content(place):
        tables = [
            (shard["shard"], shard["source"])
            for shard in content["shards"]
            if shard["kind"] == kind and split in shard["splits"]
        ]
        if not tables:
            noun = "games" if kind == "games" else "thinking rows"
            raise NoFilesError(f"the prepared games hold no {noun} in {split}", where=str(place))
        return Files([source for _, source in tables], partial(_prepared, place, split, kind, tables))
    paths = parquet_files(place)
    return Files([path.name for path in paths], partial(_from_parquet, kind, paths, on_error))


def _from_parquet(kind: Kind, paths: list[Path], on_error: OnError, file: int) -> GameTable | ThinkingTable:
    table = read_table(paths[file], kind)
    if on_error == "raise":
        raise_first(table.rejects, paths[file])
    return table


def _prepared(root: Path, split: str, kind: Kind, tables: list[tuple[int, str]], file: int) -> Any:
    number, source = tables[file]
    return read_prepared(root, split, kind, number, source)
