"""`python -m bench`: measures this checkout on this machine and prints tables."""

import argparse
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import memory, speed, tables
from bench.corpus import conversations_source, tiny_source
from bench.processes import METHOD, run
from spanloom.harmony.tokenizer import load_encoding, locate_asset, verify_asset
from spanloom.provenance import git_sha, library_versions, machine

TIMES = 4
"""The big size is so many times the small one."""
EQUAL_ROWS = 400
PARTS = ("speed", "memory", "stages")

TEACH = """
what is measured
  speed    The plain route (openai-harmony's wrapper message by message, lists, one add_item a row; bench/plain.py)
           and `spanloom build` with 1 and 2 workers, over conversations of about 900 tokens made of text from this
           machine, no paragraph of it twice. Before that both routes build a few hundred rows, and their files must be
           equal byte for byte. Rates are marginal between N and 4N rows, so start-up does not count; ratios are taken
           within one repeat. "Whole" includes validation, which the plain route does not have.
  memory   `spanloom build --workers 2` over very many rows of 15 tokens, at two sizes: bytes that one more row costs.
  stages   Reading, parsing, rendering and writing alone; writing against a plain tofile and fsync into --work.

how to get numbers that mean something
  An idle machine; --runs 5; a --work folder on the disk that matters (or in memory, to see the code and not the disk).
  A corpus kept in --work is used again, which saves half a minute. Compare two checkouts on one machine, never a number
  with a number from another machine.

examples
  PYTHONPATH=tests python -m bench --quick
  PYTHONPATH=tests python -m bench --work /data/bench --runs 5 --json bench.json
  PYTHONPATH=tests python -m bench --only memory --memory-rows 1000000
"""


def main() -> None:
    given = _arguments()
    console, errors = Console(), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        results = _measure(given, work, lambda line: errors.print(line, highlight=False, soft_wrap=True))
    console.print()
    if "speed" in results:
        lines = results["speed"]["summary"]
        console.print(tables.speed_table(lines, given.runs), "", tables.process_table(lines), "", sep="\n")
    if "memory" in results:
        rows = [size["rows"] for size in results["memory"]["sizes"]]
        console.print(tables.memory_table(results["memory"]["growth"], rows, METHOD), "", sep="\n")
    if "stages" in results:
        console.print(tables.stage_table(results["stages"]))
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


def _measure(given: argparse.Namespace, work: Path, say: Any) -> dict[str, Any]:
    asset = verify_asset(locate_asset(given.tokenizer)).resolve()
    results: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_sha": git_sha(),
        "machine": machine(),
        "libraries": library_versions(),
    }
    sources: list[tuple[Path, int]] = []
    if {"speed", "stages"} & set(given.only):
        say(f"corpus of {given.rows:,} and {TIMES * given.rows:,} rows …")
        encoding = load_encoding(asset)
        big, rows = conversations_source(work, TIMES * given.rows, encoding)
        if rows < TIMES * given.rows:
            say(f"this machine has text for {rows:,} rows without repeats, so that many are used")
        sources = [conversations_source(work, rows // TIMES, encoding), (big, rows)]
        if "speed" in given.only:
            few, _ = conversations_source(work, min(EQUAL_ROWS, rows), encoding)
            say(f"equal byte for byte: {speed.check_equal(few, work, asset)} files of both routes")
            trials = speed.measure(sources, work, asset, given.runs, say)
            results["speed"] = speed.as_json(trials)
        if "stages" in given.only:
            say("stages alone …")
            command = [sys.executable, "-m", "bench.stages", str(big), str(work), "--tokenizer", str(asset)]
            results["stages"] = json.loads(run(command, speed.environment()).stdout)
    if "memory" in given.only:
        sizes = memory.measure(
            [(tiny_source(work, rows), rows) for rows in (given.memory_rows, TIMES * given.memory_rows)],
            *(work, asset, say),
        )
        results["memory"] = {"method": METHOD, "sizes": sizes, "growth": memory.growth(sizes)}
    return results


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures how fast spanloom builds, against the plain route, and whether its memory follows the "
        "rows.",
        epilog=TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, help=f"rows of the small corpus; the big one has {TIMES}× (default 5000)")
    parser.add_argument("--runs", type=int, help="how often the speed runs are repeated (default 3)")
    parser.add_argument(
        "--memory-rows", type=int, help=f"tiny rows of the small memory run; the big one has {TIMES}× (default 100000)"
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="measure only these")
    parser.add_argument("--work", type=Path, help="folder for corpora and outputs (default: a temporary one)")
    parser.add_argument("--tokenizer", type=Path, help="o200k_base.tiktoken or its folder (default: as spanloom finds)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results here, trial by trial")
    parser.add_argument("--quick", action="store_true", help="try it out in under two minutes; numbers mean little")
    given = parser.parse_args()
    small = {"rows": 300, "runs": 1, "memory_rows": 5_000}
    usual = {"rows": 5000, "runs": 3, "memory_rows": 100_000}
    for name, value in (small if given.quick else usual).items():
        if getattr(given, name) is None:
            setattr(given, name, value)
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return given


if __name__ == "__main__":
    main()
