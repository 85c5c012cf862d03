"""Does memory follow the number of rows? `spanloom build` over tiny rows, at two sizes 4 times apart.

In: two sources of tiny rows. Out: peaks by process and stage, and by how many bytes each grows with a row. Tiny rows
make many rows cheap: what a row costs whatever its length (lengths, ids, digests) is all that grows between the sizes.
Below about 70,000 rows the buffers that are filled and emptied again (a million tokens, 65,536 rows) are not yet full,
and filling them looks like growth.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.bench.processes import Memory
from tools.bench.speed import build_command, run_build

WORKERS = 2
BOUND = 50
"""Bytes a row that the design allows for bookkeeping."""
WORKER_BOUND = 600 << 20


def measure(
    sources: list[tuple[Path, int]], work: Path, tokenizer: Path, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One build of each source (folder, rows), of one shard."""
    sizes = []
    for source, rows in sources:
        out = work / "out"
        shutil.rmtree(out, ignore_errors=True)
        finished, totals = run_build(build_command(source, out, tokenizer, WORKERS, "--shards", "1"), out)
        tokens = sum(split["tokens"] for split in totals["splits"].values())
        say(f"memory, {rows:,} rows, {tokens:,} tokens: {finished.seconds:.1f} s")
        sizes.append(
            {
                "rows": rows,
                "tokens": tokens,
                "seconds": finished.seconds,
                "stages": finished.stages,
                "parent": _peaks(finished.parent),
                "worker": _peaks(finished.worker),
                "validator": _peaks(finished.validator),
            }
        )
    return sizes


def growth(sizes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each process and stage: peaks at both sizes, and the bytes that a row adds.

    `anonymous` leaves out mapped files: an index that Megatron maps is the system's to drop, but counts as resident.
    """
    small, big = sizes
    rows = big["rows"] - small["rows"]
    return [
        {
            "process": role,
            "stage": stage,
            "small": small[role][stage]["resident"],
            "big": big[role][stage]["resident"],
            "bytes_per_row": (big[role][stage]["resident"] - small[role][stage]["resident"]) / rows,
            "anonymous_per_row": (big[role][stage]["anonymous"] - small[role][stage]["anonymous"]) / rows,
        }
        for role in ("parent", "worker", "validator")
        for stage in big[role]
        if stage in small[role]
    ]


def _peaks(memory: Memory) -> dict[str, dict[str, int]]:
    """By stage, and `whole` for the run: there the kernel's record, which no sampling misses."""
    anonymous = max((peaks["anonymous"] for peaks in memory.stages.values()), default=0)
    return {**memory.stages, "whole": {"resident": memory.peak, "anonymous": anonymous}}
