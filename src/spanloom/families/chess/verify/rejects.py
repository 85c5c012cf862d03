"""Checks the games and rows left out: compares the lines of a rejects file with the manifest and the tables.

In: a shard of the manifest, its tables. Out: `Reject`s, and findings. The source files are not needed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.errors import SourceError
from spanloom.families.chess.reading.prepared import rejects_path
from spanloom.families.chess.reading.source import NO_PLY, thinking_id
from spanloom.families.chess.reading.tables import GameTable, Kind, Reject, ThinkingTable
from spanloom.findings import Finding
from spanloom.provenance import canonical_json
from spanloom.storage import parse_json

_TYPES: dict[str, type | tuple[type, ...]] = {
    "file": str,
    "game_id": str,
    "ply": (int, type(None)),
    "reason": str,
    "detail": str,
}


def read_rejects(root: Path, shard: Mapping[str, Any]) -> list[Reject]:
    """Reads a shard's rejects file. Raises SourceError for an invalid line."""
    if shard["rejects_file"] is None:
        return []
    path = rejects_path(root, shard["kind"], shard["shard"])
    rejects = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        entry = parse_json(line, SourceError, "the line", f"line {number}", "")
        if not isinstance(entry, dict) or entry.keys() != _TYPES.keys() or canonical_json(entry) + b"\n" != line:
            raise SourceError(f"line {number} is not of one game left out")
        if wrong := [name for name, kind in _TYPES.items() if not isinstance(entry[name], kind)]:
            raise SourceError(f"line {number}: {', '.join(wrong)} is of another type")
        rejects.append(Reject(**entry))
    return rejects


def check_left_out(root: Path, shard: dict[str, Any], tables: Sequence[GameTable | ThinkingTable]) -> Iterator[Finding]:
    """Checks a shard's rejects against the manifest, and against the games or rows in its tables."""
    kind: Kind = shard["kind"]
    file = rejects_path(root, kind, shard["shard"]).relative_to(root).as_posix()

    def fault(message: str) -> Finding:
        return Finding(check="rejects", message=message, file=file)

    try:
        rejects = read_rejects(root, shard)
    except SourceError as unreadable:
        yield fault(unreadable.what)
        return
    if (reasons := dict(Counter(each.reason for each in rejects))) != shard["rejected"]:
        yield fault(f"the reasons are {reasons}, the manifest says {shard['rejected']}")
    for each in rejects:
        if each.file != shard["source"]:
            yield fault(f"{each.item} names the file {each.file!r}")
        if (each.ply is None) != (kind == "thinking" or each.reason == NO_PLY):
            yield fault(f"{each.item}: {each.reason} has the ply {each.ply}")
    if kind == "thinking":
        yield from map(fault, _wrong_numbers(shard, tables, rejects))
        return
    names = Counter(each.game_id for each in rejects)
    names.update(name for table in tables for name in table.ids)
    for name, times in names.items():
        if times > 1:
            yield fault(f"game {name} was left out, and is here or was left out again")
    games = (table for table in tables if isinstance(table, GameTable))
    lost = sum(int(np.count_nonzero((table.played >= 0) & (table.best < 0))) for table in games)
    if lost != (counted := shard["best_missing"] + shard["best_unknown"]):
        message = f"{lost} plies have a move and no best move, best_missing and best_unknown add up to {counted}"
        yield Finding(check="manifest", message=message, file=shard["source"])


def _wrong_numbers(
    shard: dict[str, Any], tables: Sequence[GameTable | ThinkingTable], rejects: Sequence[Reject]
) -> Iterator[str]:
    """Checks that each thinking row of a file was either converted or left out, in order. Yields the faults."""
    held = [table.numbers.tolist() for table in tables if isinstance(table, ThinkingTable)]
    numbers = sorted(number for each in held for number in each)
    if any(each != sorted(each) for each in held):
        yield "the rows are not in the order of their numbers"
    rest = sorted(set(range(shard["rows_read"])) - set(numbers))
    if len(set(numbers)) != len(numbers) or (numbers and not 0 <= numbers[0] <= numbers[-1] < shard["rows_read"]):
        yield "numbers of rows are duplicate, or are not of the file"
    elif [each.game_id for each in rejects] != [thinking_id(number) for number in rest]:
        yield "the rejects are not the rows whose numbers are missing"
