"""Statistics of games: lengths, results, values, openings, and the games left out.

In: a folder of Parquet files or a root of prepared games. Out: JSON values, and an HTML page of them.
"""

from collections import Counter, defaultdict
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.families.chess import manifest
from spanloom.families.chess.encoding.fen import parse_fen
from spanloom.families.chess.encoding.vocabulary import BOARD_LENGTH, MOVES, PLY_LENGTH, WHITE_TO_MOVE
from spanloom.families.chess.reading.folders import open_files
from spanloom.families.chess.reading.source import reasons
from spanloom.families.chess.reading.tables import GameTable
from spanloom.findings import Report
from spanloom.report.pages import html
from spanloom.split import SPLITS

VALUE_EDGES = np.linspace(-1, 1, 21)
LENGTH_EDGES = (0, 20, 40, 60, 80, 100, 150, 200, 300)
OPENING_PLIES = 4
_FIRST_BOARD = parse_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")
_SHOWN = 12


def game_facts(place: Path) -> dict[str, Any]:
    """The statistics of the games of a folder, or of all splits of a root together.

    games, plies, tokens   totals; tokens are counted as if every board were written
    null_rows              rows without a game_id
    without_value, without_best_move   plies without a value, or without a best move
    lengths                number of games by number of plies
    values                 number of plies by win - loss, in 20 equal steps
    ends                   number of games by their last value for white (the schema has no results)
    openings               the first moves of games that start at the usual position
    left_out               number of games left out, by reason
    """
    content = manifest.read(place, pending=True)["content"] if manifest.is_prepared(place) else None
    splits = _splits(content)
    counts: dict[str, Counter[Any]] = defaultdict(Counter)
    for name in splits:
        files = open_files(place, "games", name, "skip")
        for number in range(len(files.names)):
            _count(files.table(number), counts)
    if content is not None:
        counts["left_out"].update(content["totals"]["games"]["rejected"])
        counts["totals"]["null_rows"] = content["totals"]["games"]["null_rows"]
    lengths, values = counts["lengths"], counts["values"]
    return {
        **counts["totals"],
        "splits": splits,
        "lengths": [
            {
                "from": low,
                "below": high,
                "games": sum(n for plies, n in lengths.items() if low <= plies < (high or np.inf)),
            }
            for low, high in zip_longest(LENGTH_EDGES, LENGTH_EDGES[1:])
        ],
        "values": [
            {"from": round(low, 2), "to": round(high, 2), "plies": values[number]}
            for number, (low, high) in enumerate(pairwise(VALUE_EDGES.tolist()))
        ],
        "ends": dict(sorted(counts["ends"].items())),
        "openings": [{"moves": moves, "games": number} for moves, number in counts["openings"].most_common(_SHOWN)],
        "left_out": dict(sorted(counts["left_out"].items())),
    }


def _splits(content: dict[str, Any] | None) -> list[str]:
    if content is None:
        return ["train"]
    of_games = [shard["splits"] for shard in content["shards"] if shard["kind"] == "games"]
    return [split for split in SPLITS if any(split in splits for splits in of_games)]


def _count(table: GameTable, counts: dict[str, Counter[Any]]) -> None:
    """Adds a file's games to the counts: totals, lengths, values, openings, ends, left_out.

    `values` counts plies by the number of the step.
    """
    with_move = table.played >= 0
    missing = np.asarray(np.isnan(table.values).any(axis=1))
    wl = table.values[:, 0] - table.values[:, 2]
    counts["totals"].update(
        games=len(table),
        plies=int(with_move.sum()),
        tokens=BOARD_LENGTH * len(with_move) + PLY_LENGTH * int(with_move.sum()),
        null_rows=table.null_rows,
        without_value=int((missing & with_move).sum()),
        without_best_move=int(((table.best < 0) & with_move).sum()),
    )
    steps = np.histogram(np.clip(wl[~missing & with_move], -1, 1), VALUE_EDGES)[0]
    counts["values"].update(dict(enumerate(steps.tolist())))
    counts["left_out"].update(reasons(table.rejects))
    begins = table.offsets[:-1]
    usual = np.all(table.boards[begins] == _FIRST_BOARD, axis=1).tolist()
    for game in range(len(table)):
        rows = slice(int(table.offsets[game]), int(table.offsets[game + 1]))
        played = table.played[rows][with_move[rows]]
        counts["lengths"][len(played)] += 1
        if usual[game] and len(played) >= OPENING_PLIES:
            counts["openings"][" ".join(MOVES[move] for move in played[:OPENING_PLIES])] += 1
        known = np.flatnonzero(~missing[rows])
        if known.size:
            last = rows.start + int(known[-1])
            for_white = wl[last] if table.boards[last, 67] == WHITE_TO_MOVE else -wl[last]
            counts["ends"]["white ahead" if for_white > 0.5 else "black ahead" if for_white < -0.5 else "level"] += 1


def page(facts: dict[str, Any], title: str, report: Report | None = None) -> str:
    """The statistics as a self-contained HTML page, with the findings of `report` if it is given."""
    names = ("games", "plies", "tokens", "without_value", "without_best_move", "null_rows")
    lengths = [(_range(line["from"], line["below"]), line["games"]) for line in facts["lengths"]]
    values = [(f"{line['from']:+.1f} … {line['to']:+.1f}", line["plies"]) for line in facts["values"]]
    figures = [(name.replace("_", " "), facts.get(name, 0)) for name in names]
    tables = [
        ("Games by plies", lengths),
        ("Plies by win − loss", values),
        ("Values at the end of games", list(facts["ends"].items())),
        ("Openings", [(line["moves"], line["games"]) for line in facts["openings"]]),
        ("Games left out", list(facts["left_out"].items())),
    ]
    return _page(title, report, figures, tables)


def findings_page(root: Path, report: Report, called: str) -> str:
    """The validation of prepared games as an HTML page. It has the statistics only if there are no findings."""
    if report.clean:
        return page(game_facts(root), f"Games of {called}", report)
    return _page(f"Games of {called}", report, [], [])


def _page(title: str, report: Report | None, figures: list[Any], tables: list[Any]) -> str:
    return html.page(
        "tables.html.j2",
        style="report.css",
        title=title,
        eyebrow="Spanloom report · chess",
        report=None if report is None else report.as_dict(),
        figures=figures,
        tables=tables,
    )


def _range(low: int, high: int | None) -> str:
    return f"{low} or more" if high is None else f"{low} … {high - 1}"
