"""The whole of SYNTH on paper: bytes, memory, hours and costs of the pipeline, from measured rates. A model, unrun.

In: `docs/performance.json` and parameters (rows, tokens, machines, prices). Out: tables as Markdown; with `--page` they
go between the marks of docs/scale.md. `python -m bench.scale --help` names every parameter.

    volumes    bytes of every artifact; traffic counts each of them up once and down once for every step that reads it
    memory     what each step holds that grows with the rows
    tasks      the pipeline as it is drawn: verify → render ×S → split → write ×S → manifest → validate
    simulation pods take ready tasks; each downloads, computes, uploads; stragglers are drawn
"""

import argparse
import heapq
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.page import fill
from bench.tables import Sheet, markdown

GB, GIB = 1e9, 1 << 30
TEN = 10
PART_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What was measured, of one core. Rates a second; bytes a token or row; seconds of start-up; bytes of a worker."""

    render_tokens: float
    split_rows: float
    write_bytes: float
    validate_tokens: float
    input_per_token: float
    rendered_per_token: float
    ids_per_row: float
    table_per_row: float
    worker_startup: float
    reader_import: float
    worker_memory: float
    plain_tokens: float


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

    `efficiency`: what of n cores arrives; `spread`: sigma of the log-normal factor (mean 1) on every duration.
    """

    pods: int
    cores: int
    download: float
    upload: float
    start: float
    efficiency: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class Task:
    """A step of a shard: seconds to download, compute and upload; `cores` are what it keeps busy while it computes."""

    name: str
    after: tuple[str, ...] = ()
    download: float = 0.0
    compute: float = 0.0
    upload: float = 0.0
    cores: float = 1.0

    @property
    def seconds(self) -> float:
        return self.download + self.compute + self.upload


def measured(results: dict[str, Any]) -> Rates:
    """Rates out of the benchmark's JSON. Input bytes are those of the real sample where it was measured."""
    summary = results["stages"]["summary"]
    big = next(line for line in summary["bytes"] if line["size"] == "big")
    written = next(line for line in summary["writing"] if line.get("size") == "big")
    real = results.get("real", {}).get("trials", [big])[0]
    routes = {line["route"]: line for line in results["speed"]["summary"]}
    return Rates(
        render_tokens=summary["steps"]["render-shard"]["rate"],
        split_rows=summary["steps"]["assemble-split"]["rate"],
        write_bytes=summary["write"]["rate"],
        validate_tokens=summary["steps"]["validate-alignment"]["rate"],
        input_per_token=real["input"] / real["tokens"],
        rendered_per_token=big["rendered"] / big["tokens"],
        ids_per_row=big["ids"] / big["rows"],
        table_per_row=written["table_bytes"] / big["rows"],
        worker_startup=summary["worker_startup"],
        reader_import=summary["reader_import"],
        worker_memory=max(line["worker_peak"] for line in routes.values()),
        plain_tokens=routes["plain"]["whole"],
    )


def volumes(corpus: Corpus, rates: Rates) -> dict[str, float]:
    """Bytes of each artifact, over all shards."""
    return {
        "input": corpus.tokens * rates.input_per_token,
        "rendered": corpus.tokens * rates.rendered_per_token,
        "ids": corpus.rows * rates.ids_per_row,
        "split": corpus.rows / 8,
        "tokens.bin": corpus.tokens * 4,
        "lossmask.bin": corpus.tokens,
        "span.bin": corpus.tokens,
        "idx": 3 * (corpus.rows * 20 + corpus.shards * 42),
        "rows.parquet": corpus.rows * rates.table_per_row,
    }


def dataset_bytes(found: dict[str, float]) -> float:
    return sum(found[name] for name in ("tokens.bin", "lossmask.bin", "span.bin", "idx", "rows.parquet"))


def traffic(corpus: Corpus, found: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Step → (bytes down, bytes up), over all its shards. Each writer takes the whole split."""
    dataset = dataset_bytes(found)
    return {
        "render-shard": (found["input"], found["rendered"] + found["ids"]),
        "assemble-split": (found["ids"], found["split"]),
        "write-indexed": (found["rendered"] + found["ids"] + corpus.shards * found["split"], dataset),
        "validate-alignment": (dataset + found["input"], 0.0),
    }


def memory(corpus: Corpus, rates: Rates, cores: int, valid_fraction: float = 0.001) -> dict[str, float]:
    """Step → bytes that it holds at its peak, imports aside: what grows with the rows, or with the cores.

    split: 8 bytes of digest a row and a sorted copy, a flag for each row of the shard at hand.
    write: a length of 4 bytes for each sequence of the shard, a flag for each row.
    """
    shard = corpus.rows / corpus.shards
    return {
        "render-shard": cores * rates.worker_memory,
        "assemble-split": 16 * corpus.rows + shard,
        "write-indexed": 5 * shard,
        "validate-alignment": 16 * valid_fraction * corpus.rows,
    }


def scratch(corpus: Corpus, found: dict[str, float]) -> dict[str, float]:
    """Step → bytes of local disk a pod needs: what it staged and what it made."""
    shards = corpus.shards
    return {
        "render-shard": (found["input"] + found["rendered"] + found["ids"]) / shards,
        "assemble-split": found["ids"] + found["split"],
        "write-indexed": (found["rendered"] + found["ids"] + dataset_bytes(found)) / shards + found["split"],
        "validate-alignment": dataset_bytes(found) + found["input"],
    }


def core_seconds(corpus: Corpus, rates: Rates, found: dict[str, float]) -> dict[str, float]:
    """Step → seconds of one core."""
    return {
        "render-shard": corpus.tokens / rates.render_tokens,
        "assemble-split": corpus.rows / rates.split_rows,
        "write-indexed": dataset_bytes(found) / rates.write_bytes,
        "validate-alignment": corpus.tokens / rates.validate_tokens,
    }


def pipeline(corpus: Corpus, rates: Rates, machines: Machines) -> list[Task]:
    """The DAG. Rendering uses all cores of its pod; every other step is one process."""
    found = volumes(corpus, rates)
    moved, work = traffic(corpus, found), core_seconds(corpus, rates, found)
    shards = range(corpus.shards)

    def task(name: str, step: str, after: Sequence[str], share: int = 1, cores: int = 1, extra: float = 0.0) -> Task:
        down, up = moved[step]
        speedup = 1 + (cores - 1) * machines.efficiency
        return Task(
            name=name,
            after=tuple(after),
            download=down / share / machines.download,
            compute=work[step] / share / speedup + extra,
            upload=up / share / machines.upload,
            cores=cores,
        )

    renders = [f"render-shard {shard:02d}" for shard in shards]
    writes = [f"write-indexed {shard:02d}" for shard in shards]
    many, cores, start = corpus.shards, machines.cores, rates.worker_startup
    return [
        Task(name="verify-tokenizer", compute=start),
        *(task(name, "render-shard", ["verify-tokenizer"], many, cores, start) for name in renders),
        task("assemble-split", "assemble-split", renders),
        *(task(name, "write-indexed", ["assemble-split"], many) for name in writes),
        Task(name="assemble-manifest", after=tuple(writes), compute=5.0),
        task("validate-alignment", "validate-alignment", ["assemble-manifest"], extra=rates.reader_import),
    ]


def simulate(tasks: Sequence[Task], machines: Machines, chance: random.Random) -> dict[str, float]:
    """When each task ends, in seconds. A pod does one task at a time; of those that are ready, the first given goes."""
    ended: dict[str, float] = {}
    waiting = list(tasks)
    running: list[tuple[float, str]] = []
    now, free = 0.0, machines.pods
    while waiting or running:
        ready = [task for task in waiting if all(name in ended for name in task.after)][:free]
        for task in ready:
            waiting.remove(task)
            seconds = sum(
                part * _factor(machines.spread, chance) for part in (task.download, task.compute, task.upload)
            )
            heapq.heappush(running, (now + machines.start + seconds, task.name))
        free -= len(ready)
        if not running:
            raise ValueError(f"these tasks wait for one another: {[task.name for task in waiting]}")
        now, name = heapq.heappop(running)
        ended[name] = now
        free += 1
    return ended


def makespans(tasks: Sequence[Task], machines: Machines, runs: int) -> tuple[float, float]:
    """Median and 95th percentile, in seconds, of `runs` simulations with fixed seeds."""
    ends = [max(simulate(tasks, machines, random.Random(seed)).values()) for seed in range(runs)]
    return median(ends), quantiles(ends, n=20)[-1] if runs > 1 else ends[0]


def _factor(spread: float, chance: random.Random) -> float:
    """Log-normal of mean 1: half of all come a little earlier, a few much later."""
    return math.exp(chance.gauss(-(spread**2) / 2, spread)) if spread else 1.0


def sheets(given: argparse.Namespace, rates: Rates, machines: Machines) -> Iterator[Sheet]:
    one = Corpus(rows=given.rows, tokens=given.tokens, shards=given.shards)
    ten = one.times(TEN)
    sizes = (one, ten)
    found = [volumes(corpus, rates) for corpus in sizes]
    yield Sheet(
        key="rates",
        title="Rates of one core that go in",
        columns=("what", "value"),
        rows=[
            ("render-shard", f"{rates.render_tokens / 1e6:.2f} M tokens/s"),
            ("assemble-split", f"{rates.split_rows:,.0f} rows/s"),
            ("write-indexed, hashing included", f"{rates.write_bytes / 1e6:,.0f} MB/s"),
            ("validate-alignment", f"{rates.validate_tokens / 1e6:.2f} M tokens/s"),
            ("plain route", f"{rates.plain_tokens / 1e6:.2f} M tokens/s"),
            ("input", f"{rates.input_per_token:.2f} bytes a token"),
            ("rendered parts", f"{rates.rendered_per_token:.2f} bytes a token"),
            ("ids · row tables", f"{rates.ids_per_row:.1f} · {rates.table_per_row:.1f} bytes a row"),
            ("render worker", f"{rates.worker_memory / (1 << 20):,.0f} MiB"),
        ],
    )
    yield Sheet(
        key="volumes",
        title="Bytes at each stage",
        columns=("artifact", "SYNTH", "a shard", f"{TEN}×"),
        rows=[(name, _gb(found[0][name]), _gb(found[0][name] / one.shards), _gb(found[1][name])) for name in found[0]]
        + [
            (
                "dataset",
                *map(_gb, (dataset_bytes(found[0]), dataset_bytes(found[0]) / one.shards, dataset_bytes(found[1]))),
            )
        ],
    )
    moved = [traffic(corpus, volume) for corpus, volume in zip(sizes, found, strict=True)]
    yield Sheet(
        key="traffic",
        title="Object-store traffic",
        columns=("step", "down", "up", f"down, {TEN}×", f"up, {TEN}×"),
        rows=[(step, *map(_gb, (*moved[0][step], *moved[1][step]))) for step in moved[0]]
        + [("all", *(_gb(sum(pair[way] for pair in move.values())) for move in moved for way in (0, 1)))],
    )
    held = [memory(corpus, rates, machines.cores) for corpus in sizes]
    disks = [scratch(corpus, volume) for corpus, volume in zip(sizes, found, strict=True)]
    work = [core_seconds(corpus, rates, volume) for corpus, volume in zip(sizes, found, strict=True)]
    yield Sheet(
        key="steps",
        title=f"What one pod of a step holds ({machines.cores} cores), and core-hours of all its shards",
        columns=(
            "step",
            "memory",
            "scratch",
            "core-hours",
            f"memory, {TEN}×",
            f"scratch, {TEN}×",
            f"core-hours, {TEN}×",
        ),
        rows=[
            (
                step,
                _gb(held[0][step]),
                _gb(disks[0][step]),
                _hours(work[0][step]),
                _gb(held[1][step]),
                _gb(disks[1][step]),
                _hours(work[1][step]),
            )
            for step in held[0]
        ]
        + [
            ("all", "", "", _hours(sum(work[0].values())), "", "", _hours(sum(work[1].values()))),
            (
                "plain route, for comparison",
                "",
                "",
                _hours(one.tokens / rates.plain_tokens),
                "",
                "",
                _hours(ten.tokens / rates.plain_tokens),
            ),
        ],
    )
    yield Sheet(
        key="simulation",
        title=f"Hours from start to manifest, median (95th percentile) of {given.runs} simulated runs",
        columns=("pods × cores", "SYNTH, 4 shards", f"{TEN}×, 4 shards", f"{TEN}×, 40 shards"),
        rows=[
            (
                f"{pods} × {cores}",
                *(
                    "{:.2f} ({:.2f})".format(
                        *(seconds / 3600 for seconds in _spans(corpus, rates, machine, given.runs))
                    )
                    for corpus in (one, ten, ten.times(1, shards=40))
                ),
            )
            for pods, cores in ((1, 8), (4, 4), (4, 8), (4, 16), (4, 32), (16, 16), (40, 16))
            for machine in [replace(machines, pods=pods, cores=cores)]
        ],
    )
    yield Sheet(
        key="path",
        title=f"Where the hours go ({machines.pods} × {machines.cores}, no stragglers)",
        columns=("step", "download", "compute", "upload", f"{TEN}×: download", "compute", "upload"),
        rows=list(_path(one, ten, rates, machines)),
    )
    yield Sheet(
        key="cost",
        title="Cost of one run, with the prices given",
        columns=("driver", "price", "SYNTH", f"{TEN}×"),
        rows=list(_costs(given, sizes, rates, machines)),
    )


def _spans(corpus: Corpus, rates: Rates, machines: Machines, runs: int) -> tuple[float, float]:
    return makespans(pipeline(corpus, rates, machines), machines, runs)


def _path(one: Corpus, ten: Corpus, rates: Rates, machines: Machines) -> Iterator[tuple[str, ...]]:
    pairs = zip(pipeline(one, rates, machines), pipeline(ten, rates, machines), strict=True)
    for small, big in pairs:
        shard = small.name.rsplit(" ", 1)
        if shard[-1].isdigit() and int(shard[-1]):
            continue  # all shards alike
        parts = (small.download, small.compute, small.upload, big.download, big.compute, big.upload)
        yield (shard[0] + (", each shard" if shard[-1].isdigit() else ""), *map(_minutes, parts))


def _costs(
    given: argparse.Namespace, sizes: Sequence[Corpus], rates: Rates, machines: Machines
) -> Iterator[tuple[str, ...]]:
    """Pods are paid while they hold a task, all their cores, busy or not."""
    totals = []
    for corpus in sizes:
        found = volumes(corpus, rates)
        tasks = pipeline(corpus, rates, machines)
        paid = sum((task.seconds + machines.start) * task.cores for task in tasks) / 3600
        up = sum(pair[1] for pair in traffic(corpus, found).values())
        down = sum(pair[0] for pair in traffic(corpus, found).values())
        objects = 4 * corpus.rows / PART_ROWS + 14 * corpus.shards
        between = found["rendered"] + found["ids"]
        totals.append(
            {
                f"cores paid ({{}} an hour)|{given.price_core_hour}": paid * given.price_core_hour,
                f"dataset kept a month ({{}} a GB)|{given.price_gb_month}": dataset_bytes(found)
                / GB
                * given.price_gb_month,
                f"intermediates kept a day ({{}} a GB and month)|{given.price_gb_month}": between
                / GB
                / 30
                * given.price_gb_month,
                f"traffic ({{}} a GB)|{given.price_gb_moved}": (up + down) / GB * given.price_gb_moved,
                f"requests, one to write and one to read each object ({{}} for 1,000)|{given.price_requests}": 2
                * objects
                / 1000
                * given.price_requests,
            }
        )
    for key in totals[0]:
        name, price = key.split("|")
        yield (name.split(" ({}")[0], name.format(price).split("(")[1].rstrip(")"), *(f"{t[key]:,.2f}" for t in totals))


def _gb(value: float) -> str:
    return f"{value / GB:,.0f} GB" if value >= 9.5 * GB else f"{value / GB:,.2f} GB" if value >= GB / 10 else _mb(value)


def _mb(value: float) -> str:
    return f"{value / 1e6:,.0f} MB" if value >= 1e6 else f"{value / 1e3:,.0f} kB" if value else "–"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).parents[2] / "docs/performance.json"
    parser.add_argument("--from", dest="json", type=Path, default=default, help="results of the benchmark")
    parser.add_argument("--page", type=Path, help="write into the marks of this page instead of printing")
    parser.add_argument("--rows", type=float, default=79.6e6)
    parser.add_argument("--tokens", type=float, default=75e9)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--pods", type=int, default=4, help="pods at a time")
    parser.add_argument("--cores", type=int, default=8, help="cores of a pod")
    parser.add_argument("--download", type=float, default=200, help="MB/s of a pod")
    parser.add_argument("--upload", type=float, default=200, help="MB/s of a pod")
    parser.add_argument("--start", type=float, default=60, help="seconds until a pod runs")
    parser.add_argument("--efficiency", type=float, default=0.9, help="what each further core of a pod adds")
    parser.add_argument("--spread", type=float, default=0.3, help="sigma of the log-normal straggler factor")
    parser.add_argument("--runs", type=int, default=400)
    for name, value in (("core-hour", 0.04), ("gb-month", 0.02), ("gb-moved", 0.0), ("requests", 0.005)):
        parser.add_argument(f"--price-{name}", type=float, default=value)
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    machines = Machines(
        pods=given.pods,
        cores=given.cores,
        download=given.download * 1e6,
        upload=given.upload * 1e6,
        start=given.start,
        efficiency=given.efficiency,
        spread=given.spread,
    )
    rates = measured(json.loads(given.json.read_bytes()))
    made = {sheet.key: markdown(sheet) for sheet in sheets(given, rates, machines)}
    if given.page is None:
        print("\n\n".join(made.values()))
    else:
        given.page.write_text(fill(given.page.read_text(), made))


if __name__ == "__main__":
    main()
