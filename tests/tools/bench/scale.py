"""The whole of SYNTH on paper: bytes, memory, hours and costs of the pipeline, from measured rates. A model, unrun.

In: `docs/performance.json` and parameters (rows, tokens, machines, prices). Out: tables as Markdown; with `--page` they
go between the marks of docs/deployment/scale.md. `python -m tools.bench.scale --help` names every parameter.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tools.bench.page import fill
from tools.bench.pipeline_model import (
    Corpus,
    Machines,
    Rates,
    core_seconds,
    dataset_bytes,
    makespans,
    measured,
    memory,
    pipeline,
    scratch,
    traffic,
    volumes,
)
from tools.bench.tables import Sheet, markdown

GB = 1e9
TEN, HUNDRED = 10, 100


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
            ("the audit, 1 row in 1,000", f"{rates.audit_seconds * 1e3:.2f} ms a row"),
            ("assemble-split, assumed", f"{rates.split_rows:,.0f} rows/s"),
            ("write-indexed, hashing included", f"{rates.write_bytes / 1e6:,.0f} MB/s"),
            ("convert-shard", f"{rates.convert_rows:,.0f} rows/s"),
            ("assemble-validation, assumed", f"{rates.join_rows:,.0f} rows/s"),
            ("validate-shard, documents", f"{rates.check_tokens / 1e6:.2f} M tokens/s"),
            ("validate-shard, rows of the source", f"{rates.compare_tokens / 1e6:.2f} M tokens/s"),
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
    hundred = one.times(HUNDRED)
    yield Sheet(
        key="simulation",
        title=f"Hours from raw rows to manifest, median (95th percentile) of {given.runs} simulated runs",
        columns=(f"pods × {machines.cores} cores, as many shards", "SYNTH", f"{TEN}×", f"{HUNDRED}×"),
        rows=[
            (
                f"{pods}",
                *(
                    "{:.2f} ({:.2f})".format(
                        *(seconds / 3600 for seconds in _spans(corpus.times(1, shards=pods), rates, at, given.runs))
                    )
                    for corpus in (one, ten, hundred)
                ),
            )
            for pods in (4, 16, 64, 256)
            for at in [replace(machines, pods=pods)]
        ],
    )
    yield Sheet(
        key="path",
        title=f"Where the hours go ({machines.pods} × {machines.cores}, no stragglers; steps above ten seconds)",
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
        if max(parts) < 10:
            continue  # seconds
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
        objects = (found["rendered"] + found["input"]) / (given.object_bytes * 1e6) + 20 * corpus.shards
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


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).parents[3] / "docs/performance.json"
    parser.add_argument("--from", dest="json", type=Path, default=default, help="results of the benchmark")
    parser.add_argument("--page", type=Path, help="write into the marks of this page instead of printing")
    parser.add_argument("--rows", type=float, default=79.6e6)
    parser.add_argument("--tokens", type=float, default=75e9)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--pods", type=int, default=16, help="pods at a time")
    parser.add_argument("--cores", type=int, default=8, help="cores of a pod")
    parser.add_argument("--download", type=float, default=200, help="MB/s of a pod")
    parser.add_argument("--upload", type=float, default=200, help="MB/s of a pod")
    parser.add_argument("--stream", type=float, default=80, help="MB/s of one transfer")
    parser.add_argument("--streams", type=int, default=8, help="transfers of a pod at once")
    parser.add_argument("--objects", type=float, default=20, help="objects that a pod begins to move in a second")
    parser.add_argument("--object-bytes", type=float, default=256, help="MB of an object")
    parser.add_argument("--parts", type=int, default=8, help="streams of one object up: 8 to s3://, 1 to gs://")
    parser.add_argument("--split-rows", type=float, default=2e6, help="rows a second of assemble-split")
    parser.add_argument("--join-rows", type=float, default=2e6, help="rows a second of assemble-validation")
    parser.add_argument(
        "--plain-tokens",
        type=float,
        help="scale the measured rates to a core on which the plain route makes this many tokens a second",
    )
    parser.add_argument("--start", type=float, default=60, help="seconds until a pod runs")
    parser.add_argument("--efficiency", type=float, default=0.9, help="what each further core of a pod adds")
    parser.add_argument("--spread", type=float, default=0.3, help="sigma of the log-normal straggler factor")
    parser.add_argument("--runs", type=int, default=40)
    for name, value in (("core-hour", 0.04), ("gb-month", 0.02), ("gb-moved", 0.0), ("requests", 0.005)):
        parser.add_argument(f"--price-{name}", type=float, default=value)
    return parser.parse_args(words)


def tables(given: argparse.Namespace) -> dict[str, str]:
    """Key of a table → the table as Markdown."""
    machines = Machines(
        pods=given.pods,
        cores=given.cores,
        download=given.download * 1e6,
        upload=given.upload * 1e6,
        start=given.start,
        efficiency=given.efficiency,
        spread=given.spread,
        stream=given.stream * 1e6,
        streams=given.streams,
        objects=given.objects,
        object_bytes=given.object_bytes * 1e6,
        parts=given.parts,
    )
    assumed = {name: getattr(given, name) for name in ("split_rows", "join_rows")}
    rates = measured(json.loads(given.json.read_bytes()), **assumed)
    if given.plain_tokens is not None:
        rates = rates.on_core(given.plain_tokens)
    return {sheet.key: markdown(sheet) for sheet in sheets(given, rates, machines)}


def main() -> None:
    given = arguments()
    made = tables(given)
    if given.page is None:
        print("\n\n".join(made.values()))
    else:
        given.page.write_text(fill(given.page.read_text(), made))


if __name__ == "__main__":
    main()
