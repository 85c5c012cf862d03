"""Peak memory and bytes on disk of each step of the pipeline, over very many tiny rows.

In: numbers of rows, rows of a shard. Out: a table as Markdown. Each step is a process of its own, as in a pod: a fork
of one that has imported what a step imports, so that 16 shards do not load their libraries 48 times. Its peak is the
kernel's `ru_maxrss`. Disk is what a pod stages and makes: the bytes of the step's inputs and outputs.

    PYTHONPATH=tests python -m tools.bench.step_memory --rows 1000000 4000000
    PYTHONPATH=tests python -m tools.bench.step_memory --ids 1000000 4000000 16000000 --at-once 500000

The second line measures the search for digests that occur more than once, alone, in several ranges.
"""

import argparse
import hashlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.dataset.rows.digests import DigestRuns
from support.sources import shard_name
from tools.bench.tables import Sheet, markdown

SHARD_ROWS = 250_000
ROW_GROUP = 4096
MIB = 1 << 20


def raw_of(directory: Path, rows: int, shard_rows: int) -> int:
    """Writes `rows` raw rows of a few words, a file for each `shard_rows` of them. Returns the number of files."""
    directory.mkdir(parents=True)
    files = -(-rows // shard_rows)
    for file in range(files):
        numbers = range(file * shard_rows, min(rows, (file + 1) * shard_rows))
        columns = {
            "query": [f"{number % 1000}?" for number in numbers],
            "synthetic_reasoning": ["Yes."] * len(numbers),
            "synthetic_answer": ["Yes."] * len(numbers),
            "synth_id": [hashlib.blake2b(b"%d" % number, digest_size=16).hexdigest() for number in numbers],
            "language": ["en"] * len(numbers),
            "exercise": ["bench"] * len(numbers),
        }
        pq.write_table(pa.table(columns), directory / f"raw_{file:03d}.parquet", row_group_size=ROW_GROUP)
    return files


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that a fork of this process has at most while it does `work`. Raises RuntimeError where it fails."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"a step ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_maxrss * 1024


def step(*words: object) -> Callable[[], None]:
    def run() -> None:
        from spanloom.cli import main

        sys.argv = ["spanloom", "step", *map(str, words)]
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            main()

    return run


def size_of(*places: Path) -> int:
    """Bytes of files and of all files below folders."""
    files = (file for place in places for file in ([place] if place.is_file() else place.rglob("*")) if file.is_file())
    return sum(file.stat().st_size for file in files)


def measured(work: Path, rows: int, shard_rows: int, say: Callable[[str], None]) -> dict[str, tuple[int, int]]:
    """Step → peak memory and disk in bytes, the most of all shards."""
    shutil.rmtree(work, ignore_errors=True)
    raw, source, root = work / "raw", work / "source", work / "root"
    shards = raw_of(raw, rows, shard_rows)
    say(f"{rows:,} rows in {shards} shards")
    found: dict[str, tuple[int, int]] = {}

    def take(name: str, words: Sequence[object], inputs: Sequence[Path], outputs: Callable[[], Sequence[Path]]) -> None:
        began = monotonic()
        peak = peak_of(step(name, *words))
        disk = size_of(*inputs, *outputs())
        before = found.get(name, (0, 0))
        found[name] = max(before[0], peak), max(before[1], disk)
        say(f"  {name}: {peak / MIB:,.0f} MiB, {disk / 1e6:,.1f} MB on disk, {monotonic() - began:.1f} s")

    def at(shard: int, name: str) -> Path:
        return work / f"{shard}" / name

    def each(option: str, name: str) -> list[object]:
        return [word for shard in range(shards) for word in (option, at(shard, name))]

    def packs(shard: int) -> list[Path]:
        return [*work.glob(f"work/*/shard_{shard:02d}")]

    def files(shard: int) -> list[Path]:
        return [*root.glob(f"*/shard_{shard:02d}_*")]

    for shard in range(shards):
        words = ("--shard", shard, "--shards", shards, "--raw", raw, "--out", source, "--quiet")
        take(
            "convert-shard",
            (*words, "--inventory", at(shard, "converted")),
            [raw / f"raw_{shard:03d}.parquet"],
            lambda shard=shard: [source / shard_name(shard)],
        )
    converted = [at(shard, "converted") for shard in range(shards)]
    take("assemble-source", (*each("--inventory", "converted"), "--out", source), converted, list)
    for shard in range(shards):
        words = ("--shard", shard, "--shards", shards, "--source", source, "--workers", 1, "--quiet")
        places = ("--rendered", at(shard, "rendered.json"), "--work", work / "work")
        take("render-shard", (*words, *places), [source / shard_name(shard)], lambda shard=shard: packs(shard))
    take(
        "assemble-split",
        (*each("--rendered", "rendered.json"), "--split", work / "split.json"),
        [*work.glob("work/*/*/ids.parquet")],
        lambda: [work / "split.json"],
    )
    for shard in range(shards):
        places = ("--rendered", at(shard, "rendered.json"), "--root", root, "--inventory", at(shard, "inventory"))
        take("write-indexed", places, packs(shard), lambda shard=shard: files(shard))
    inventories = [at(shard, "inventory") for shard in range(shards)]
    words = (*each("--inventory", "inventory"), "--split", work / "split.json", "--root", root, "--allow-unknown-sha")
    take("assemble-manifest", words, inventories, lambda: [root / "manifest.pending.json"])
    for shard in range(shards):
        places = (
            "--root",
            root,
            "--source",
            source,
            "--report",
            at(shard, "report"),
            "--digests",
            at(shard, "digests"),
        )
        take(
            "validate-shard",
            ("--shard", shard, *places, "--quiet"),
            [source / shard_name(shard), *files(shard)],
            lambda shard=shard: [at(shard, "report"), at(shard, "digests")],
        )
    tables = [*root.glob("*/*_rows.parquet"), *(at(shard, "digests") for shard in range(shards))]
    words = (*each("--shard-report", "report"), *each("--shard-digests", "digests"), "--root", root, "--source", source)
    take("assemble-validation", words, tables, lambda: [root / "report.html"])
    return found


def searched(ids: int, at_once: int, folder: Path) -> tuple[int, float]:
    """Peak memory of looking for digests that occur more than once among `ids`, and how many ranges at least."""

    def work() -> None:
        random = np.random.default_rng(0)
        with DigestRuns(ids, folder, at_once) as digests:
            for first in range(0, ids, 65536):
                digests.add(random.integers(0, 1 << 64, min(65536, ids - first), dtype=np.uint64))
            assert not list(digests.repeated())

    return peak_of(work), ids / at_once


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.step_memory", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[], help="rows of the sources, from few to many")
    parser.add_argument("--shard-rows", type=int, default=SHARD_ROWS)
    parser.add_argument("--ids", type=int, nargs="*", default=[], help="numbers of digests to search")
    parser.add_argument("--at-once", type=int, default=500_000, help="digests that the search holds at once")
    parser.add_argument("--work", type=Path, default=Path("/tmp/spanloom-bench-steps"))
    given = parser.parse_args()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    given.work.mkdir(parents=True, exist_ok=True)
    base = peak_of(lambda: None)
    if given.ids:
        lines = [(count, *searched(count, given.at_once, given.work)) for count in given.ids]
        table = [(f"{count:,}", f"{ranges:.0f}", f"{(peak - base) / MIB:.0f} MiB") for count, peak, ranges in lines]
        title = f"Digests that occur more than once, {given.at_once:,} held at once: peak memory beyond imports"
        print(markdown(Sheet(key="ids", title=title, columns=("ids", "ranges, at least", "memory"), rows=table)))
    if given.rows:
        sizes = [measured(given.work / "steps", rows, given.shard_rows, say) for rows in given.rows]
        columns = ("step", *(f"{rows:,} rows: {what}" for rows in given.rows for what in ("memory", "disk")))
        cells = [
            (
                name,
                *(
                    cell
                    for size in sizes
                    for cell in (f"{size[name][0] / MIB:,.0f} MiB", f"{size[name][1] / 1e6:,.0f} MB")
                ),
            )
            for name in sizes[0]
        ]
        title = f"Peak memory and disk of one pod of each step, shards of {given.shard_rows:,} rows"
        print(markdown(Sheet(key="pods", title=title, columns=columns, rows=cells)))
        say(f"the process that was forked has {base / MIB:,.0f} MiB")


if __name__ == "__main__":
    main()
