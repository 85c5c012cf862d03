"""`python -m tools.bench`: measures this checkout on this machine and prints tables."""

import argparse
import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.provenance import git_sha, library_versions, machine
from spanloom.tokenizers.o200k.asset import locate_asset, verify_asset
from tools.bench import alone, bars, encoders, memory, packing, peers, speed, start, tables
from tools.bench.corpus import conversations_source, tiny_source
from tools.bench.processes import METHOD

TIMES = 4
"""The big size is so many times the small one."""
BUILT = 12
"""The build is given so many times the big size, and a third of that: less would be lost in the noise of a start."""
EQUAL_ROWS = 400
PARTS = ("encoders", "points", "speed", "peers", "stages", "small", "start", "memory", "packing")
ON_CORPUS = {"encoders", "speed", "peers", "stages"}

TEACH = """
what is measured
  encoders Content text to tokens by every candidate that is installed, each in a process and on a core of its own.
  points   On which code points each of them differs from openai-harmony.
  speed    The plain route (openai-harmony's wrapper message by message, lists, one add_item a row; bench/plain.py)
           and `spanloom build` with 1 and 2 workers, over conversations of about 900 tokens made of text from this
           machine, no paragraph of it twice. Before that both routes build a few hundred rows, and their files must be
           equal byte for byte. Rates are marginal, so start-up does not count: between N and 4N rows for the plain
           route, between 16N and 48N for the build, which would be done with fewer too soon to be timed. Tables
           take the median of the runs at each size, bars look at every run. "Whole" includes validation, which the
           plain route does not have.
  peers    The record route, Megatron's preprocess_data and Hugging Face's chat template, at N/4 and N rows.
  stages   What a worker does, stage by stage; each step alone; writing against a plain tofile and fsync into --work.
  small    The whole build of the demo's rows; and of the real sample's, where SPANLOOM_SAMPLE names it.
  start    Commands that do next to nothing, and the build of the demo's rows: by the clock, CPU time with all
           processes, the first line on stderr. With --baseline, held against another checkout run by run.
  memory   `spanloom build --workers 2` over very many rows of 15 tokens, at two sizes: bytes that one more row costs.
  packing  Packed chat: blocks of a long stream against a plain loop over its tokens and a copy of them; transcripts to
           tokens against the bare tokenizer; peak memory for a stream and for one ten times as long.

how to get numbers that mean something
  An idle machine; --runs 5; a --work folder on the disk that matters (or in memory, to see the code and not the disk).
  A corpus kept in --work is used again, which saves half a minute. Compare two checkouts on one machine, never a number
  with a number from another machine. With a --json FILE that is there already, trials are added to it, so that a long
  measurement can be cut into short ones; remove the file to start anew.

examples
  PYTHONPATH=tests python -m tools.bench --quick
  PYTHONPATH=tests python -m tools.bench --work /dev/shm/bench --runs 5 --json bench.json
  PYTHONPATH=tests python -m tools.bench --only memory --memory-rows 1000000
"""

Results = dict[str, Any]
Say = Callable[[str], None]


def main() -> None:
    given = _arguments()
    console, errors = Console(), Console(stderr=True)
    results: Results = json.loads(given.json.read_bytes()) if given.json and given.json.exists() else {}
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        _measure(given, results, work, lambda line: errors.print(line, highlight=False, soft_wrap=True))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(_without_nan(results), indent=1, allow_nan=False) + "\n")
    console.print()
    for table in [*tables.all_tables(results), bars.sheet(results)]:
        console.print(tables.terminal(table), "", sep="\n")


def _measure(given: argparse.Namespace, results: Results, work: Path, say: Say) -> None:
    """Adds what is asked for to `results`."""
    asset = verify_asset(locate_asset(given.tokenizer)).resolve()
    results |= {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_sha": git_sha(),
        "machine": machine(),
        "libraries": library_versions(),
    }
    sources: list[tuple[Path, int]] = []
    if ON_CORPUS & set(given.only):
        say(f"corpus of {given.rows:,} and {TIMES * given.rows:,} rows …")
        encoding = load_encoding(asset)
        big, rows = conversations_source(work, TIMES * given.rows, encoding)
        if rows < TIMES * given.rows:
            say(f"this machine has text for {rows:,} rows without repeats, so that many are used")
        sources = [conversations_source(work, rows // TIMES // TIMES, encoding)]
        sources += [conversations_source(work, rows // TIMES, encoding), (big, rows)]
        if "speed" in given.only:
            most = conversations_source(work, (TIMES if given.quick else BUILT) * rows, encoding)
            sources += [conversations_source(work, most[1] // 3, encoding), most]
        results["corpus"] = {"rows": [count for _, count in sources]}
        del encoding
    for part in given.only:
        say(f"— {part}")
        match part:
            case "encoders":
                found = results.setdefault(part, {"trials": []})
                found["trials"] += encoders.measure(sources[2][0], work, asset, _repeats(found, given.runs), say)
                found["summary"] = encoders.summary(found["trials"])
            case "points":
                results[part] = encoders.measure_points(work, asset, given.stride, say)
            case "speed":
                found = results.setdefault(part, {"trials": []})
                if not found["trials"]:
                    few, _ = conversations_source(work, min(EQUAL_ROWS, sources[1][1]), load_encoding(asset))
                    found["equal_files"] = speed.check_equal(few, work, asset)
                    say(f"equal byte for byte: {found['equal_files']} files of both routes")
                trials = speed.measure(sources[1:3], sources[3:], work, asset, _repeats(found, given.runs), say)
                found["trials"] += map(asdict, trials)
                found["summary"] = speed.summary(_trials(results, "speed"))
            case "peers":
                found = results.setdefault(part, {"trials": []})
                new = peers.measure(sources[:2], work, asset, _repeats(found, given.runs), say)
                found["trials"] += map(asdict, new["trials"])
                found |= {"equal": new["equal"], "skipped": new["skipped"]}
            case "stages":
                found = results.setdefault(part, {"trials": []})
                two = [source for source, _ in sources[1:3]]
                found["trials"] += alone.measure(two, work, asset, _repeats(found, given.runs), say)
                found["summary"] = alone.summary(found["trials"])
            case "small":
                found = results.setdefault(part, {"trials": []})
                found["trials"] += alone.measure_small(work, asset, _repeats(found, given.runs), say)
                if given.sample:
                    results["real"] = alone.measure_real(given.sample, work, asset, range(given.runs), say)
            case "start":
                found = results.setdefault(part, {"trials": []})
                found["trials"] += start.measure(work, asset, given.baseline, _repeats(found, given.runs), say)
                found["summary"] = start.summary(found["trials"])
            case "memory":
                counts = (given.memory_rows, TIMES * given.memory_rows)
                sizes = memory.measure([(tiny_source(work, rows), rows) for rows in counts], work, asset, say)
                results[part] = {"method": METHOD, "sizes": sizes, "growth": memory.growth(sizes)}
            case "packing":
                found = results.setdefault(part, {"trials": []})
                new = packing.measure(given.packing_tokens, asset, _repeats(found, given.runs), say)
                found["trials"] += map(asdict, new)
                found["summary"] = packing.summary([packing.PackingTrial(**trial) for trial in found["trials"]])
                found["memory"] = packing.measure_memory(given.packing_tokens, say)
    if results.get("peers"):
        # Held against the plain route, wherever that was measured.
        lines = speed.summary(_trials(results, "speed") + _trials(results, "peers"))
        results["peers"]["summary"] = [line for line in lines if line["route"] in peers.PEERS]


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what noise kept from being measured is null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _trials(results: Results, part: str) -> list[speed.Trial]:
    return [speed.Trial(**trial) for trial in results.get(part, {}).get("trials", [])]


def _repeats(found: dict[str, Any], runs: int) -> range:
    """Numbers for the next runs, after those that are there."""
    first = max((trial["repeat"] + 1 for trial in found["trials"]), default=0)
    return range(first, first + runs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measures how fast spanloom builds, against the plain route and its peers, and whether its memory "
        "follows the rows.",
        epilog=TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, help=f"rows of the small corpus; the big one has {TIMES}× (default 5000)")
    parser.add_argument("--runs", type=int, help="how often the runs are repeated (default 3)")
    parser.add_argument(
        "--memory-rows", type=int, help=f"tiny rows of the small memory run; the big one has {TIMES}× (default 400000)"
    )
    parser.add_argument("--packing-tokens", type=int, help="tokens of the stream that is packed (default 8000000)")
    parser.add_argument("--stride", type=int, help="points: every so manieth code point (default 1: all)")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="measure only these")
    parser.add_argument("--work", type=Path, help="folder for corpora and outputs (default: a temporary one)")
    parser.add_argument("--tokenizer", type=Path, help="o200k_base.tiktoken or its folder (default: as spanloom finds)")
    parser.add_argument(
        "--sample",
        type=Path,
        default=os.environ.get("SPANLOOM_SAMPLE"),
        help="folder of the real sample (default: $SPANLOOM_SAMPLE; without it that line is left out)",
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="DIR",
        help="start: another checkout (`git worktree add DIR COMMIT`), which each command is held against",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results here, trial by trial, or add them")
    parser.add_argument("--quick", action="store_true", help="try it out: small corpora, one run; numbers mean little")
    given = parser.parse_args()
    small = {"rows": 300, "runs": 1, "memory_rows": 5_000, "stride": 256, "packing_tokens": 1_000_000}
    usual = {"rows": 5000, "runs": 3, "memory_rows": 400_000, "stride": 1, "packing_tokens": 8_000_000}
    for name, value in (small if given.quick else usual).items():
        if getattr(given, name) is None:
            setattr(given, name, value)
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    given.sample = Path(given.sample) if given.sample else None
    return given


if __name__ == "__main__":
    main()
