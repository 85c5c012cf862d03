"""The traces family against a plain loop, and what it needs: time, memory, answers under many clients.

    PYTHONPATH=tests python -m tools.bench.traces [--only speed,memory,build,service] [--traces 10000] [--json FILE]

The yardstick is the standard library alone: it parses each payload, renders Gemma's template and writes a line. Bars
are ratios to it within one run, since a machine is never the same twice. Routes take turns and each is as fast as its
best round. Memory is the peak of a process of its own. The service is `spanloom traces serve`, asked by 50 clients at
once.
"""

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.export.lines import FORMATS, ExportOptions, export_lines
from spanloom.families.traces.sample import sample_traces
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.trace import json_text
from support.cases import beside

EXPORT_BAR = 3.0
"""Times the yardstick, at most; the original takes 5.44 to 7.07."""

INGEST_BAR = 113_800 / (5.9 * 9_700)
"""The same for ingest: 5.9 times the original's speed, which does 9,700 a second where the yardstick does 113,800."""

MEMORY_BAR = 100.0
"""MiB, at most, of a process that exports 100,000 traces."""

CLIENTS, REQUESTS = 50, 2000
PARTS = ("speed", "memory", "build", "service")

_EXPORT = """
import sys
from pathlib import Path
from spanloom.families.traces.export.lines import ExportOptions
from spanloom.families.traces.export.file import ExportCounts, records, write_file
from spanloom.families.traces.store.opening import default_url, open_store
root, form = Path(sys.argv[1]), sys.argv[2]
store = open_store(default_url(root))
with store.snapshot() as snapshot:
    ids = list(snapshot.ids())
    write_file(root / "out.jsonl", records(snapshot, ids, form, ExportOptions(), None, ExportCounts()), form, len(ids))
print(len(ids), int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024)
"""
_BUILD = """
import sys, time
from pathlib import Path
from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.store.opening import default_url, open_store
root = Path(sys.argv[1])
store = open_store(default_url(root))
request = BuildRequest.model_validate_json(sys.argv[2])
began = time.perf_counter()
manifest, _ = build_dataset(store, root, request)
seconds = time.perf_counter() - began
print(manifest.trace_count, seconds, int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024)
"""


def lines_of(count: int, real: Path | None) -> bytes:
    """`count` traces: the real ones repeated where they are at hand, else of our own making."""
    if real is None:
        return b"".join(json.dumps(one).encode() + b"\n" for one in sample_traces(count))
    lines = [line for line in real.read_bytes().splitlines() if line.strip()]
    return b"".join(lines[number % len(lines)] + b"\n" for number in range(count))


def filled(root: Path, count: int, real: Path | None) -> Store:
    """A store with so many traces."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "in.jsonl").write_bytes(lines_of(count, real))
    store = open_store(default_url(root), create=True)
    ingest_file(store, root / "in.jsonl", source_name="bench")
    return store


def yardstick(payloads: list[str]) -> int:
    """Parse, render, dump: the standard library and nothing else. Returns the bytes of the lines."""
    size = 0
    for payload in payloads:
        value = json.loads(payload)
        text = f"<start_of_turn>user\n{value['prompt']}<end_of_turn>\n<start_of_turn>model\n"
        if value["steps"]:
            text += "Reasoning:\n" + "".join(f"{n}. {step['content']}\n" for n, step in enumerate(value["steps"], 1))
        text += f"Answer: {value['final_answer']}<end_of_turn>"
        metadata = {
            "created_at": "",
            "trace_version": value["trace_version"],
            "format": "tunix_sft",
            **(value["meta"] or {}),
        }
        line = {"id": "", "prompts": text, "final_answer": value["final_answer"], "metadata": metadata}
        size += len(json.dumps(line)) + 1
    return size


def best(routes: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds of each route in its best round; they take turns."""
    found = dict.fromkeys(routes, float("inf"))
    for _ in range(repeats):
        for name, route in routes.items():
            began = time.process_time()
            route()
            found[name] = min(found[name], time.process_time() - began)
    return found


def speed(work: Path, count: int, repeats: int, real: Path | None) -> dict[str, Any]:
    """Ingest and the three exports, in CPU seconds of one process."""
    store = filled(work / "speed", count, real)
    with store.snapshot() as snapshot:
        ids = list(snapshot.ids())
        payloads = [json_text(trace.payload) for trace in snapshot.traces(ids)]
    fresh = iter(range(1000))

    def ingest() -> None:
        other = open_store(default_url(work / f"ingest{next(fresh)}"), create=True)
        ingest_file(other, work / "speed/in.jsonl", source_name="bench")
        other.close()

    def export(form: Any) -> Callable[[], object]:
        def run() -> int:
            with store.snapshot() as snapshot:
                return sum(map(len, export_lines(snapshot, ids, form, ExportOptions())))

        return run

    routes: dict[str, Callable[[], object]] = {"yardstick": lambda: yardstick(payloads), "ingest": ingest}
    routes |= {f"export {form}": export(form) for form in FORMATS}
    seconds = best(routes, repeats)
    store.close()
    bars = {"ingest": INGEST_BAR, **{f"export {form}": EXPORT_BAR for form in FORMATS}}
    return {
        "traces": count,
        "a_second": {name: round(count / taken) for name, taken in seconds.items()},
        "times_the_yardstick": {name: round(seconds[name] / seconds["yardstick"], 2) for name in bars},
        "bars": bars,
        "holds": {name: seconds[name] / seconds["yardstick"] <= bar for name, bar in bars.items()},
    }


def process(script: str, *arguments: str) -> list[float]:
    """What a script prints, run in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def memory(work: Path, real: Path | None) -> dict[str, Any]:
    """Peak MiB of a process that exports 1,000, 10,000 and 100,000 traces."""
    found: dict[str, Any] = {}
    for count in (1_000, 10_000, 100_000):
        root = work / f"memory{count}"
        filled(root, count, real).close()
        found[f"{count:,}"] = {form: round(process(_EXPORT, str(root), form)[1], 1) for form in FORMATS}
    most = max(found["100,000"].values())
    return {"peak_mib": found, "bar": MEMORY_BAR, "holds": most < MEMORY_BAR}


def build(work: Path, count: int) -> dict[str, Any]:
    """A filtered build over a large store: seconds and peak MiB."""
    root = work / "build"
    filled(root, count, None).close()
    requests = {
        "latest of a rare value": {"filters": {"number": 0}, "limit": 10},
        "random of a third": {"filters": {"kind": "sum"}, "selection_strategy": "random", "seed": 1, "limit": 10_000},
        "random of all": {"selection_strategy": "random", "seed": 1, "limit": 10_000},
    }
    found = {}
    for name, request in requests.items():
        said = json.dumps({"dataset_name": "b", "dataset_version": "1", **request})
        traces, seconds, peak = process(_BUILD, str(root), said)
        found[name] = {"traces": int(traces), "seconds": round(seconds, 2), "peak_mib": round(peak, 1)}
    return {"rows": count, "builds": found}


@contextmanager
def serving(root: Path) -> Iterator[int]:
    """`spanloom traces serve` in a process of its own; its port."""
    command = [sys.executable, "-m", "spanloom", "traces", "serve", "--port", "0", "--root", str(root)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert started.stderr is not None
        found = None
        while found is None:
            found = re.search(r'"port": (\d+)', started.stderr.readline())
        threading.Thread(target=lambda: [None for _ in started.stderr or ()], daemon=True).start()
        yield int(found[1])
    finally:
        started.terminate()
        started.wait()


def service(work: Path, real: Path | None) -> dict[str, Any]:
    """50 clients, each with a connection of its own, ask in turns; milliseconds of each kind of request."""
    root = work / "service"
    store = filled(root, 5_000, real)
    dataset, _ = build_dataset(store, root, BuildRequest(dataset_name="d", dataset_version="1", limit=100))
    store.close()
    body = json.dumps(next(sample_traces(1))).encode()
    asked = {
        "a trace": ("GET", f"/api/traces/{dataset.ids[0]}", None),
        "a page of 100": ("GET", "/api/traces?limit=100", None),
        "an export of 100": ("GET", "/api/datasets/d-1/export.jsonl?format=tunix_sft", None),
        "a trace stored": ("POST", "/api/traces", body),
    }
    names = list(asked)
    taken: dict[str, list[float]] = {name: [] for name in names}
    errors: list[str] = []
    with serving(root) as port:

        def client(number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            for turn in range(REQUESTS // CLIENTS):
                name = names[(number + turn) % len(names)]
                method, url, sent = asked[name]
                began = time.perf_counter()
                try:
                    connection.request(method, url, sent, {"content-type": "application/json"})
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status >= 400:
                        errors.append(f"{name}: {answer.status}")
                except (OSError, http.client.HTTPException) as fault:
                    errors.append(f"{name}: {fault}")
                    connection.close()
                taken[name].append(1000 * (time.perf_counter() - began))
            connection.close()

        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        began = time.perf_counter()
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        seconds = time.perf_counter() - began
    return {
        "clients": CLIENTS,
        "requests": REQUESTS,
        "a_second": round(REQUESTS / seconds),
        "milliseconds": {
            name: {"p50": round(_share(times, 0.5), 1), "p99": round(_share(times, 0.99), 1)}
            for name, times in taken.items()
        },
        "errors": len(errors),
        "first_errors": errors[:5],
        "holds": not errors,
    }


def _share(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--traces", type=int, default=10_000, help="of the part speed")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the part build")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    real = beside("SPANLOOM_TRACES_REAL", "families/traces/real") / "dev-reasoning-v2.jsonl"
    found: Path | None = real if real.is_file() else None
    results: dict[str, Any] = {"input": "real traces, repeated" if found else "traces of our own making"}
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:
        work = Path(temporary)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "speed": lambda: speed(work, given.traces, given.repeats, found),
            "memory": lambda: memory(work, found),
            "build": lambda: build(work, given.rows),
            "service": lambda: service(work, found),
        }
        for name in given.only.split(","):
            results[name] = parts[name]()
            print(json.dumps({name: results[name]}, indent=1), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
