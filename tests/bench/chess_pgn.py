"""`chess convert` against python-chess's game tree, and its workers against one process.

    PYTHONPATH=tests python -m bench.chess_pgn FILE.pgn [--repeats 3] [--workers 2]

The plain way reads each game into python-chess's tree and walks it, which is what the first version did. Routes take
turns; CPU seconds of one process, wall seconds of the workers, the best round of each.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from spanloom.families.chess.pgn import convert_pgn
from support.pgn_checker import games_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    text = options.file.read_text("utf-8-sig", errors="replace")
    games = len(games_of(text))

    def convert(workers: int) -> None:
        with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as folder:
            convert_pgn([options.file], Path(folder) / "out", workers=workers)

    routes: dict[str, tuple[Callable[[], float], Callable[[], object]]] = {
        "plain, CPU": (time.process_time, lambda: games_of(text)),
        "convert, CPU": (time.process_time, lambda: convert(1)),
        "convert, wall": (time.perf_counter, lambda: convert(1)),
        f"convert by {options.workers}, wall": (time.perf_counter, lambda: convert(options.workers)),
    }
    seconds = dict.fromkeys(routes, float("inf"))
    for _ in range(options.repeats):
        for name, (clock, route) in routes.items():
            began = clock()
            route()
            seconds[name] = min(seconds[name], clock() - began)
    print(json.dumps({"games": games, "a_second": {name: round(games / taken, 1) for name, taken in seconds.items()}}))


if __name__ == "__main__":
    main()
