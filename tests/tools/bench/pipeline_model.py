"""The pipeline as a model: bytes, memory and seconds of every step from the rates of one core, and a simulation.

In: rates, a corpus, machines. Out: numbers.

    volumes    bytes of every artifact; traffic counts each of them up once, and down once for every step that reads it
    memory     what each step holds that grows with the rows
    pipeline   the tasks as they are drawn: convert ×S → source → verify → render ×S → write ×S, and split beside it →
               manifest → validate ×S → join
    simulate   pods take ready tasks; each downloads, computes, uploads; stragglers are drawn
"""

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median, quantiles
from typing import Any, Literal

from spanloom.building.parts.packs import pack_bytes
from spanloom.dataset.rows.digests import AT_ONCE
from spanloom.families.harmony.defaults import AUDIT_FRACTION


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What was measured, of one core. Rates a second; bytes a token or row; seconds of start-up; bytes of a worker.

    `audit_seconds`: for a row that is audited; the marginal rate of rendering has no audit in it, since the least
    number of rows is audited at both sizes.
    """

    render_tokens: float
    audit_seconds: float
    split_rows: float
    write_bytes: float
    check_tokens: float
    compare_tokens: float
    input_per_token: float
    rendered_per_token: float
    ids_per_row: float
    table_per_row: float
    worker_startup: float
    reader_import: float
    worker_memory: float
    plain_tokens: float
    convert_rows: float
    join_rows: float

    def on_core(self, plain_tokens: float) -> "Rates":
        """The measured rates on another core: one on which the plain route makes `plain_tokens` a second."""
        factor = plain_tokens / self.plain_tokens
        return replace(
            self,
            convert_rows=self.convert_rows * factor,
            render_tokens=self.render_tokens * factor,
            audit_seconds=self.audit_seconds / factor,
            write_bytes=self.write_bytes * factor,
            check_tokens=self.check_tokens * factor,
            compare_tokens=self.compare_tokens * factor,
            worker_startup=self.worker_startup / factor,
            reader_import=self.reader_import / factor,
            plain_tokens=plain_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class Corpus:
    rows: float
    tokens: float
    shards: int

    def times(self, factor: int, *, shards: int | None = None) -> "Corpus":
        return Corpus(rows=self.rows * factor, tokens=self.tokens * factor, shards=shards or self.shards)


@dataclass(frozen=True, kw_only=True)
class Machines:
    """`pods` at a time, each of `cores`; bytes a second to and from the object store; seconds until a pod runs.

    `stream`: bytes a second of one transfer, of which a pod has `streams` at once; `objects`: begun a second by a pod,
    each of `object_bytes` at most. `parts`: streams of one object on its way up. `efficiency`: what of n cores arrives;
    `spread`: sigma of the log-normal factor (mean 1) on every duration.
    """

    pods: int
    cores: int
    download: float
    upload: float
    start: float
    efficiency: float
    spread: float
    stream: float = math.inf
    streams: int = 8
    objects: float = math.inf
    object_bytes: float = 256e6
    parts: int = 8

    def seconds(self, size: float, rate: float) -> float:
        """To move `size` bytes where a pod moves `rate` a second."""
        at_once = min(self.streams, max(1.0, size / self.object_bytes))
        return size / min(rate, self.stream * at_once) + size / self.object_bytes / self.objects

    def seconds_up(self, size: float, largest: float) -> float:
        """To upload `size` bytes, of which one object has `largest`."""
        return max(self.seconds(size, self.upload), largest / (self.stream * min(self.parts, self.streams)))


Beside = Literal["download", "upload"]
BESIDE: dict[str, Beside] = {"render-shard": "upload", "write-indexed": "download"}
"""Steps that move packs while they compute: a renderer those that are full, a writer the next one."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A step of a shard: seconds to download, compute and upload; `cores` are what it keeps busy while it computes.

    `beside`: what happens while it computes, and so lasts as long as the longer of the two.
    """

    name: str
    after: tuple[str, ...] = ()
    download: float = 0.0
    compute: float = 0.0
    upload: float = 0.0
    cores: float = 1.0
    beside: Beside | None = None

    @property
    def seconds(self) -> float:
        return self.took(self.download, self.compute, self.upload)

    def took(self, download: float, compute: float, upload: float) -> float:
        """How long the task lasts where its parts last so long."""
        both = {"download": download, "upload": upload}.get(self.beside or "", 0.0)
        return download + compute + upload - min(both, compute)


def measured(results: dict[str, Any], *, split_rows: float, join_rows: float) -> Rates:
    """Rates out of the benchmark's JSON, and those that are assumed.

    Input bytes are those of the real sample where it was measured. The rows of a source are compared in what a
    validation takes longer with it than without.
    """
    summary = results["stages"]["summary"]
    big = next(line for line in summary["bytes"] if line["size"] == "big")
    written = next(line for line in summary["writing"] if line.get("size") == "big")
    real = results.get("real", {}).get("trials", [big])[0]
    routes = {line["route"]: line for line in results["speed"]["summary"]}
    audit = next(line for line in summary["worker"] if line["stage"] == "audit")
    rates = Rates(
        render_tokens=summary["steps"]["render-shard"]["rate"],
        audit_seconds=audit["seconds"] / summary["worker"][-1]["audited"],
        split_rows=split_rows,
        write_bytes=summary["write"]["rate"],
        check_tokens=(check := summary["steps"]["check documents"]["rate"]),
        compare_tokens=1 / (1 / summary["steps"]["validate-alignment"]["rate"] - 1 / check),
        input_per_token=real["input"] / real["tokens"],
        rendered_per_token=big["rendered"] / big["tokens"],
        ids_per_row=big["ids"] / big["rows"] + 8,  # a build keeps no digests
        table_per_row=written["table_bytes"] / big["rows"],
        worker_startup=summary["worker_startup"],
        reader_import=summary["reader_import"],
        worker_memory=max(line["worker_peak"] for line in routes.values()),
        plain_tokens=routes["plain"]["whole"],
        convert_rows=summary["steps"]["convert-shard"]["rate"],
        join_rows=join_rows,
    )
    if unknown := [name for name, value in asdict(rates).items() if not value > 0]:
        raise ValueError(f"not measured, or lost in noise: {', '.join(unknown)}; measure again")
    return rates


def volumes(corpus: Corpus, rates: Rates) -> dict[str, float]:
    """Bytes of each artifact, over all shards."""
    return {
        "raw": corpus.tokens * rates.input_per_token,  # about as much: the wrappers pack well
        "input": corpus.tokens * rates.input_per_token,
        "rendered": corpus.tokens * rates.rendered_per_token,
        "ids": corpus.rows * rates.ids_per_row,
        "digests": corpus.rows * 16,
        "tokens.bin": corpus.tokens * 4,
        "lossmask.bin": corpus.tokens,
        "span.bin": corpus.tokens,
        "idx": 3 * (corpus.rows * 20 + corpus.shards * 42),
        "rows.parquet": corpus.rows * rates.table_per_row,
    }


def dataset_bytes(found: dict[str, float]) -> float:
    return sum(found[name] for name in ("tokens.bin", "lossmask.bin", "span.bin", "idx", "rows.parquet"))


def traffic(corpus: Corpus, found: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Step → (bytes down, bytes up), over all its shards."""
    dataset = dataset_bytes(found)
    return {
        "convert-shard": (found["raw"], found["input"]),
        "render-shard": (found["input"], found["rendered"] + found["ids"]),
        "assemble-split": (found["ids"], 0.0),
        "write-indexed": (found["rendered"] + found["ids"], dataset),
        "validate-shard": (dataset + found["input"], found["digests"]),
        "assemble-validation": (found["digests"] + found["rows.parquet"], 0.0),
    }


def memory(corpus: Corpus, rates: Rates, cores: int) -> dict[str, float]:
    """Step → bytes that it holds at its peak, imports aside: what grows with the rows, or with the cores.

    split, join: 8 bytes of digest a row, up to `AT_ONCE` of them, and as much again for what is read into them. The
    join searches the digests of tokens afterwards, fewer at once.
    write: a length of 4 bytes for each sequence of the shard, a flag for each row.
    validate: 69 bytes a row of the shard, as was measured: most of it Megatron's index, which is mapped.
    """
    shard = corpus.rows / corpus.shards
    digests = 8 * min(corpus.rows, AT_ONCE) + (8 * AT_ONCE if corpus.rows > AT_ONCE else 0)
    return {
        "convert-shard": 0.0,
        "render-shard": cores * rates.worker_memory,
        "assemble-split": digests,
        "write-indexed": 5 * shard,
        "validate-shard": 69 * shard,
        "assemble-validation": digests,
    }


def scratch(corpus: Corpus, found: dict[str, float]) -> dict[str, float]:
    """Step → bytes of local disk a pod needs: what it staged and what it made.

    A renderer holds one pack that is filled, one that is packed and one that is uploaded; a writer the pack that it
    reads and the next one.
    """
    shards = corpus.shards
    rendered, pack = found["rendered"] / shards, pack_bytes(int(found["input"] / shards))
    dataset = dataset_bytes(found)
    spilled = found["digests"] if corpus.rows > AT_ONCE else 0.0
    return {
        "convert-shard": (found["raw"] + found["input"]) / shards,
        "render-shard": (found["input"] + found["ids"]) / shards + min(rendered, 3 * pack),
        "assemble-split": found["ids"] + spilled,
        "write-indexed": dataset / shards + min(rendered, 2 * pack),
        "validate-shard": (dataset + found["input"] + found["digests"]) / shards,
        "assemble-validation": found["digests"] + found["rows.parquet"],
    }


def core_seconds(corpus: Corpus, rates: Rates, found: dict[str, float]) -> dict[str, float]:
    """Step → seconds of one core."""
    return {
        "convert-shard": corpus.rows / rates.convert_rows,
        "render-shard": corpus.tokens / rates.render_tokens + corpus.rows * AUDIT_FRACTION * rates.audit_seconds,
        "assemble-split": corpus.rows / rates.split_rows,
        "write-indexed": dataset_bytes(found) / rates.write_bytes,
        "validate-shard": corpus.tokens / rates.check_tokens + corpus.tokens / rates.compare_tokens,
        "assemble-validation": corpus.rows / rates.join_rows,
    }


def shared_seconds(corpus: Corpus, rates: Rates, work: dict[str, float]) -> dict[str, float]:
    """Of `core_seconds`, what all cores of a pod share; a step that is not named is one process."""
    return {"render-shard": work["render-shard"], "validate-shard": corpus.tokens / rates.compare_tokens}


def pipeline(corpus: Corpus, rates: Rates, machines: Machines) -> list[Task]:
    """The DAG from raw rows on.

    A shard is written as soon as it is rendered; the search for ids that come again runs beside it.
    """
    found = volumes(corpus, rates)
    moved, work = traffic(corpus, found), core_seconds(corpus, rates, found)
    shared = shared_seconds(corpus, rates, work)
    many, start = corpus.shards, rates.worker_startup
    speedup = 1 + (machines.cores - 1) * machines.efficiency

    def task(name: str, step: str, after: Sequence[str], share: int = 1, extra: float = 0.0) -> Task:
        down, up = moved[step]
        of_all = shared.get(step, 0.0)
        return Task(
            name=name,
            after=tuple(after),
            download=machines.seconds(down / share, machines.download),
            compute=(work[step] - of_all + of_all / speedup) / share + extra,
            upload=machines.seconds_up(up / share, found["tokens.bin"] / share if step == "write-indexed" else 0.0),
            cores=machines.cores if of_all else 1,
            beside=BESIDE.get(step),
        )

    def names(step: str) -> list[str]:
        return [f"{step} {shard:02d}" for shard in range(many)]

    return [
        *(task(name, "convert-shard", [], many) for name in names("convert-shard")),
        Task(name="assemble-source", after=tuple(names("convert-shard")), compute=5.0),
        Task(name="verify-tokenizer", compute=start),
        *(
            task(name, "render-shard", ["assemble-source", "verify-tokenizer"], many, start)
            for name in names("render-shard")
        ),
        task("assemble-split", "assemble-split", names("render-shard")),
        *(
            task(name, "write-indexed", [render], many)
            for name, render in zip(names("write-indexed"), names("render-shard"), strict=True)
        ),
        Task(name="assemble-manifest", after=("assemble-split", *names("write-indexed")), compute=5.0),
        *(
            task(name, "validate-shard", ["assemble-manifest"], many, extra=rates.reader_import)
            for name in names("validate-shard")
        ),
        task("assemble-validation", "assemble-validation", names("validate-shard")),
    ]


def simulate(tasks: Sequence[Task], machines: Machines, chance: random.Random) -> dict[str, float]:
    """When each task ends, in seconds. A pod does one task at a time; of those that are ready, the first given goes.

    Raises ValueError for tasks without a duration, which would go unnoticed, and for tasks that wait for one another.
    """
    if unknown := [task.name for task in tasks if not task.seconds >= 0]:
        raise ValueError(f"these tasks have no duration: {unknown}")
    ended: dict[str, float] = {}
    before = [len({*task.after}) for task in tasks]  # how many tasks each still waits for
    followers: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        for name in {*task.after}:
            followers.setdefault(name, []).append(number)
    ready = [number for number, count in enumerate(before) if not count]  # a heap, as `running` is
    running: list[tuple[float, str]] = []
    now, free = 0.0, machines.pods
    while ready or running:
        while ready and free:
            task = tasks[heapq.heappop(ready)]
            parts = (task.download, task.compute, task.upload)
            seconds = task.took(*(part * _factor(machines.spread, chance) for part in parts))
            heapq.heappush(running, (now + machines.start + seconds, task.name))
            free -= 1
        now, name = heapq.heappop(running)
        ended[name] = now
        free += 1
        for number in followers.get(name, ()):
            before[number] -= 1
            if not before[number]:
                heapq.heappush(ready, number)
    if len(ended) < len(tasks):
        raise ValueError(f"these tasks wait for one another: {[task.name for task in tasks if task.name not in ended]}")
    return ended


def makespans(tasks: Sequence[Task], machines: Machines, runs: int) -> tuple[float, float]:
    """Median and 95th percentile, in seconds, of `runs` simulations with fixed seeds."""
    ends = [max(simulate(tasks, machines, random.Random(seed)).values()) for seed in range(runs)]
    return median(ends), quantiles(ends, n=20)[-1] if runs > 1 else ends[0]


def _factor(spread: float, chance: random.Random) -> float:
    """Log-normal of mean 1: half of all come a little earlier, a few much later."""
    return math.exp(chance.gauss(-(spread**2) / 2, spread)) if spread else 1.0
