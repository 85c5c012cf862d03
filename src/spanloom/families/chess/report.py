"""Numbers of games for people: lengths, results, values, openings, and what was left out.

In: a folder of Parquet files or a root of prepared games. Out: values that JSON can carry, and a page of them.
"""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.families.chess import manifest
from spanloom.families.chess.encoding.fen import parse_fen
from spanloom.families.chess.encoding.vocabulary import BOARD_LENGTH, MOVES, PLY_LENGTH, WHITE_TO_MOVE
from spanloom.families.chess.reading.epochs import Files
from spanloom.families.chess.reading.folders import open_games
from spanloom.families.chess.reading.source import GameTable
from spanloom.findings import Report
from spanloom.report.pages import html

VALUE_EDGES = np.linspace(-1, 1, 21)
LENGTH_EDGES = (0, 20, 40, 60, 80, 100, 150, 200, 300)
OPENING_PLIES = 4
EYEBROW = "Spanloom report · chess"
_FIRST_BOARD = parse_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")
_SHOWN = 12


def game_facts(place: Path, split: str | None = None) -> dict[str, Any]:
    """What the games of a folder are like; of a root, all its splits together, or one.

    games, plies, tokens (every board written); null_rows; without_value, without_best_move: plies; lengths: games by
    plies; values: plies by win - loss in 20 equal steps; ends: how the last value of a game stands for white (the
    schema has no results); openings: the first moves of games from the usual position; left_out: games, by reason.
    """
    splits = [split] if split else _splits(place)
    totals: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    values = np.zeros(len(VALUE_EDGES) - 1, np.int64)
    openings: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for name in splits:
        files = open_games(place, name, "skip")
        for number in range(len(files.names)):
            _count(files, number, totals, lengths, values, openings, ends, left_out)
    if manifest.is_prepared(place):
        content = manifest.read(place, pending=True)["content"]
        left_out.update(content["totals"]["games"]["rejected"])
        totals["null_rows"] = content["totals"]["games"]["null_rows"]
    edges = [*LENGTH_EDGES, None]
    return {
        **dict(totals),
        "splits": splits,
        "lengths": [
            {"from": low, "below": high, "games": sum(n for plies, n in lengths.items() if _inside(plies, low, high))}
            for low, high in pairwise(edges)
        ],
        "values": [
            {"from": round(low, 2), "to": round(high, 2), "plies": number}
            for (low, high), number in zip(pairwise(VALUE_EDGES.tolist()), values.tolist(), strict=True)
        ],
        "ends": dict(sorted(ends.items())),
        "openings": [{"moves": moves, "games": number} for moves, number in openings.most_common(_SHOWN)],
        "left_out": dict(sorted(left_out.items())),
    }


def _splits(place: Path) -> list[str]:
    if not manifest.is_prepared(place):
        return ["train"]
    return [
        split
        for split in ("train", "valid")
        if any(
            split in shard["splits"] and shard["kind"] == "games"
            for shard in manifest.read(place, pending=True)["content"]["shards"]
        )
    ]


def _inside(plies: int, low: int | None, high: int | None) -> bool:
    return (low is None or plies >= low) and (high is None or plies < high)


def _count(
    files: Files[GameTable],
    number: int,
    totals: Counter[str],
    lengths: Counter[int],
    values: Any,
    openings: Counter[str],
    ends: Counter[str],
    left_out: Counter[str],
) -> None:
    table = files.table(number)
    with_move = table.played >= 0
    missing = np.asarray(np.isnan(table.values).any(axis=1))
    wl = table.values[:, 0] - table.values[:, 2]
    totals["games"] += len(table)
    totals["plies"] += int(with_move.sum())
    totals["tokens"] += BOARD_LENGTH * len(with_move) + PLY_LENGTH * int(with_move.sum())
    totals["null_rows"] += table.null_rows
    totals["without_value"] += int((missing & with_move).sum())
    totals["without_best_move"] += int(((table.best < 0) & with_move).sum())
    values += np.histogram(np.clip(wl[~missing & with_move], -1, 1), VALUE_EDGES)[0]
    for reject in table.rejects:
        left_out[reject.reason] += 1
    begins = table.offsets[:-1]
    usual = np.all(table.boards[begins] == _FIRST_BOARD, axis=1).tolist()
    for game in range(len(table)):
        rows = slice(int(table.offsets[game]), int(table.offsets[game + 1]))
        played = table.played[rows][with_move[rows]]
        lengths[len(played)] += 1
        if usual[game] and len(played) >= OPENING_PLIES:
            openings[" ".join(MOVES[move] for move in played[:OPENING_PLIES])] += 1
        known = np.flatnonzero(~missing[rows])
        if known.size:
            last = rows.start + int(known[-1])
            for_white = wl[last] if table.boards[last, 67] == WHITE_TO_MOVE else -wl[last]
            ends["white ahead" if for_white > 0.5 else "black ahead" if for_white < -0.5 else "level"] += 1


def page(facts: dict[str, Any], title: str, report: Report | None = None) -> str:
    """The facts as a page that needs nothing from outside, and what validation found where it has been asked."""
    names = ("games", "plies", "tokens", "without_value", "without_best_move", "null_rows")
    lengths = [(_range(line["from"], line["below"]), line["games"]) for line in facts["lengths"]]
    values = [(f"{line['from']:+.1f} … {line['to']:+.1f}", line["plies"]) for line in facts["values"]]
    return html.page(
        "tables.html.j2",
        style="report.css",
        title=title,
        eyebrow=EYEBROW,
        report=None if report is None else report.as_dict(),
        figures=[(name.replace("_", " "), facts.get(name, 0)) for name in names],
        tables=[
            ("Games by plies", lengths),
            ("Plies by win − loss", values),
            ("How games stand at their last value", list(facts["ends"].items())),
            ("Openings", [(line["moves"], line["games"]) for line in facts["openings"]]),
            ("Games left out", list(facts["left_out"].items())),
        ],
    )


def findings_page(root: Path, report: Report, called: str) -> str:
    """What validation found in prepared games as a page; with the facts where it found nothing."""
    if report.clean:
        return page(game_facts(root), f"Games of {called}", report)
    return html.page(
        "tables.html.j2",
        style="report.css",
        title=f"Games of {called}",
        eyebrow=EYEBROW,
        report=report.as_dict(),
        figures=[],
        tables=[],
    )


def _range(low: int, high: int | None) -> str:
    return f"{low} or more" if high is None else f"{low} … {high - 1}"
