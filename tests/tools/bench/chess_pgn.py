"""`chess convert` against python-chess, against an older checkout, and its workers against one process.

    PYTHONPATH=tests python -m tools.bench.chess_pgn [FILE.pgn] [--games 400] [--repeats 3] [--workers 2]
        [--old CHECKOUT]

In: a PGN file; without one, games of random moves with values. Out: JSON, games a second of each route, and ratios.

Routes take turns, each in a process of its own that has converted a game before, and rounds are compared one by one: a
busy machine slows both. python-chess has three routes: `parse` reads each game into its tree; `visit` plays the main
line alone, and keeps nothing; `plain` makes the rows from the tree. The workers have two numbers. `by the clock` counts
the cores only as far as other programs leave them free. `by CPU` is what an idle machine with a core for each worker
would give: the time of one process over the workers' number times their mean CPU time, or that of the process which
reads and writes where it is more. It has the workers' start in it, a second's work, so it needs a file of thousands of
games to say anything.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import chess
import chess.pgn

_PARSE = """import chess.pgn
def read(path):
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        while chess.pgn.read_game(stream):
            pass
; read(path)"""
_VISIT = """import chess.pgn
class Visitor(chess.pgn.BaseVisitor):
    def begin_variation(self):
        return chess.pgn.SKIP
    def handle_error(self, error):
        pass
    def result(self):
        return True
def visit(path):
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        while chess.pgn.read_game(stream, Visitor=Visitor):
            pass
; visit(path)"""
_PLAIN = "from support.pgn_checker import games_of; games_of(path.read_text('utf-8-sig', errors='replace'))"
_CONVERT = "from spanloom.families.chess.pgn import convert_pgn; convert_pgn([path], out)"
_WORKERS = "from spanloom.families.chess.pgn import convert_pgn; convert_pgn([path], out, workers={workers})"
_TIMED = """
import json, resource, sys, tempfile, time
from pathlib import Path
{import_line}
def call(path, out):
    {call}
def children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as folder:
        small = Path(folder) / "small.pgn"
        small.write_text('[White "?"]\\n\\n1. e4 e5 *\\n\\n')
        call(small, Path(folder) / "small")  # imports, and what is made once
        before, wall, cpu = children(), time.perf_counter(), time.process_time()
        call(Path(sys.argv[1]), Path(folder) / "out")
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(json.dumps({{"wall": wall, "cpu": cpu, "children": children() - before}}))
"""


def random_pgn(games: int) -> str:
    """Games of random legal moves of up to 120 plies, half of the moves with a value."""
    draw, texts = random.Random(1), []
    for _ in range(games):
        board, game = chess.Board(), chess.pgn.Game()
        node: Any = game
        for ply in range(draw.randint(20, 120)):
            if not (moves := list(board.legal_moves)):
                break
            node = node.add_variation(draw.choice(moves))
            if ply % 2:
                node.comment = f"[%eval {draw.uniform(-5, 5):.2f}]"
            board.push(node.move)
        texts.append(str(game))
    return "\n\n".join(texts) + "\n"


def timed(script: str, path: Path, **environment: str) -> dict[str, float]:
    """Seconds by the clock, of CPU, and of CPU of the children, of a call in a process of its own."""
    import_line, _, call = script.partition("; ")
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # a file: spawned workers import it
        file.write(_TIMED.format(import_line=import_line, call=call))
        file.flush()
        done = subprocess.run(
            [sys.executable, file.name, str(path)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--games", type=int, default=400, help="of random moves, where no file is given")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--old", type=Path, help="checkout of an older commit to compare with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as folder:
        path = options.file
        if path is None:
            path = Path(folder) / "random.pgn"
            path.write_text(random_pgn(options.games))
        print(json.dumps(measured(path, options.repeats, options.workers, options.old), indent=1))


def measured(path: Path, repeats: int, workers: int, old: Path | None) -> dict[str, Any]:
    """Games a second and ratios, medians over the rounds with the least and the most."""
    games = path.read_text("utf-8-sig", errors="replace").count("\n[White ")
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(repeats):
        seconds = {
            "parse": timed(_PARSE, path),
            "visit": timed(_VISIT, path),
            "plain": timed(_PLAIN, path),
            "convert": timed(_CONVERT, path),
            "workers": timed(_WORKERS.format(workers=workers), path),
        }
        if old is not None:
            seconds["old"] = timed(_CONVERT, path, PYTHONPATH=str(old / "src"))
        rounds.append(seconds)
    one = [each["convert"] for each in rounds]
    by = [each["workers"] for each in rounds]
    bound = [max(each["cpu"], each["children"] / workers) for each in by]
    ratios = {
        **{
            f"convert, times python-chess's {way}, by CPU": [
                each[way]["cpu"] / each["convert"]["cpu"] for each in rounds
            ]
            for way in ("parse", "visit", "plain")
        },
        "workers, share of their cores, by CPU": [
            alone["cpu"] / (workers * most) for alone, most in zip(one, bound, strict=True)
        ],
        "workers, share of their cores, by the clock": [
            alone["wall"] / (workers * each["wall"]) for alone, each in zip(one, by, strict=True)
        ],
    }
    if old is not None:
        ratios["convert, times the old checkout, by CPU"] = [
            each["old"]["cpu"] / each["convert"]["cpu"] for each in rounds
        ]
    return {
        "games": games,
        "a_second_of_cpu": {
            name: round(games / median(each[name]["cpu"] for each in rounds), 1)
            for name in rounds[0]
            if name != "workers"
        },
        "workers": workers,
        "ratios": {
            name: {"median": round(median(of), 2), "least": round(min(of), 2), "most": round(max(of), 2)}
            for name, of in ratios.items()
        },
    }


if __name__ == "__main__":
    main()
