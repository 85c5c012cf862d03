"""By how many bytes a row does the memory of a build and of validation grow? Very many tiny documents of each family.

In: two numbers of rows. Out: a table as Markdown: peak memory at both sizes, and the bytes that a row adds. Validated
roots are made from a small one by writing its documents many times with other ids; built are the same sources. Each
run is a process of its own. Peaks of equal runs differ by up to 10 MiB, and below 200,000 rows buffers are still being
filled. A dataset of traces has at most 10,000, so its build is not measured.

    PYTHONPATH=tests python -m tools.bench.row_memory --rows 400000 800000 [--family model_chat …]
"""

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spanloom import build
from spanloom.dataset import manifest
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.families import dataset_family
from spanloom.families.harmony.convert.synth import convert_synth
from spanloom.families.toolcalls.build import BuildOptions as ToolCallOptions
from spanloom.families.toolcalls.build import build as build_toolcalls
from support import chat_sources, synthetic
from support.cases import cases_of
from support.chat_datasets import packed, transcript, write_transcripts
from support.dealt_datasets import deal, named
from support.family_datasets import Case, model_chat, reasoning_traces, tool_calls
from support.model_datasets import write_manifest
from tools.bench.step_memory import MIB, peak_of, raw_of
from tools.bench.tables import Sheet, markdown

ROW_GROUP = 1024
DEEP = 100

Made = tuple[Path, Path | None, Path | None]
"""A root, its source, its tokenizer."""


def many_blocks(folder: Path, rows: int) -> Made:
    texts = (transcript(1, system=None, seed=number) for number in range(rows))
    source = write_transcripts(folder / "transcripts.jsonl", list(texts))
    root = packed(folder, transcripts=source, block_size=32, pad_tail=True, deep=0).root
    return root, source, folder / "tokenizer.json"


def many_synth(folder: Path, rows: int) -> Made:
    return synthetic.write_dataset(folder / "root", rows), None, None


def of_lines(make: Callable[[Path], Case], rename: Callable[[dict[str, Any], int], None]) -> Callable[..., Made]:
    """Datasets of a source that is a file of lines. `rename` gives a record the id of its copy."""

    def many(folder: Path, rows: int) -> Made:
        case = make(folder / "small")
        content = manifest.read(case.root).content
        copies = rows // content.totals.rows_read
        records = case.source.read_bytes().splitlines()
        source = folder / case.source.name
        with source.open("wb") as stream:
            for copy in range(copies):
                for line in records:
                    record = json.loads(line)
                    rename(record, copy)
                    stream.write(json.dumps(record).encode() + b"\n")
        (stated,) = content.input.shards
        listed = {**file_of(source), "path": stated.path, "rows": stated.rows * copies}
        given = {**content.input.model_dump(mode="json", exclude_unset=True), "shards": [listed]}
        root = deal(
            case.root, folder / "root", dataset_family(content.family), case.ids, shards=1, copies=copies, input=given
        )
        return root, source, None

    return many


def many_conversations(folder: Path, rows: int) -> Made:
    turns = ({"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."})
    case = model_chat(folder / "small", [{"id": f"r-{number}", "messages": [*turns]} for number in range(24)])
    content = manifest.read(case.root).content
    copies = rows // content.totals.rows_read
    shards = []
    for path in sorted(case.source.glob("*.parquet")):
        records = pq.read_table(path).to_pylist()
        shards.append([renamed(row, named(row["id"], copy)) for copy in range(copies) for row in records])
    source = chat_sources.write_source(folder / "source", shards, row_group_size=ROW_GROUP)
    write_manifest(source, len(shards), schema_version="conversations_v1")
    files = sorted(source.glob("*.parquet"))
    listed = [{**file_of(file), "rows": len(rows)} for file, rows in zip(files, shards, strict=True)]
    given = {
        **content.input.model_dump(mode="json", exclude_unset=True),
        "manifest_sha256": hashlib.sha256((source / "manifest.json").read_bytes()).hexdigest(),
        "shards": listed,
    }
    root = deal(case.root, folder / "root", dataset_family(content.family), case.ids, copies=copies, input=given)
    return root, source, None


def renamed(row: dict[str, Any], name: str) -> dict[str, Any]:
    """A row of a source of conversations under another id."""
    return {**row, "id": name, "metadata_json": json.dumps({**json.loads(row["metadata_json"]), "id": name})}


def file_of(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": path.name, "bytes": path.stat().st_size, "sha256": digest}


def rename_id(record: dict[str, Any], copy: int) -> None:
    record["id"] = named(record["id"], copy)


MANY: dict[str, Callable[[Path, int], Made]] = {
    "synth_kd": many_synth,
    "model_chat": many_conversations,
    "packed_chat": many_blocks,
    "reasoning_traces": of_lines(reasoning_traces, rename_id),
    "tool_calls": of_lines(tool_calls, rename_id),
}


def build_synth(folder: Path, source: Path) -> None:
    build(source, out=folder / "built", workers=1, deep=DEEP)


def build_conversations(folder: Path, source: Path) -> None:
    build(source, out=folder / "built", model=folder / "small/m", workers=1, deep=DEEP)


def build_blocks(folder: Path, source: Path) -> None:
    packed(folder, transcripts=source, block_size=32, pad_tail=True, name="built")


def build_tool_calls(folder: Path, source: Path) -> None:
    options = ToolCallOptions(
        data=source,
        template=folder / "small/aware.jinja",
        tokenizer=cases_of("toolcalls") / "fixtures/tokenizer_llamalike.json",
        out=folder / "built",
        workers=1,
    )
    assert all(result.report.clean for result in build_toolcalls(options))


BUILDS: dict[str, Callable[[Path, Path], object]] = {
    "synth_kd": build_synth,
    "model_chat": build_conversations,
    "packed_chat": build_blocks,
    "tool_calls": build_tool_calls,
}


def peaks(name: str, folder: Path, rows: int) -> list[int | None]:
    """Peak memory of validation without and with the source, and of a build; None for what is not measured."""
    folder.mkdir(parents=True)
    place = folder / "made.json"

    def make() -> None:
        made = MANY[name](folder, rows)
        place.write_text(json.dumps([None if path is None else str(path) for path in made]))

    peak_of(make)
    root, source, tokenizer = (None if path is None else Path(path) for path in json.loads(place.read_bytes()))
    assert root is not None
    family = dataset_family(manifest.read(root).content.family)

    def validate(**given: Any) -> None:
        report = validate_dataset(root, family, tokenizer=tokenizer, workers=1, **given)
        assert report.clean, report.findings[:3]
        print(f"{name}, {rows:,} rows: {report.checked}", file=sys.stderr, flush=True)

    found = [peak_of(validate), None if source is None else peak_of(lambda: validate(source=source, deep=DEEP)), None]
    if name in BUILDS:
        if source is None:
            source = folder / "source"
            raw_of(folder / "raw", rows, rows // 4)
            peak_of(lambda: convert_synth(raw=folder / "raw", out=folder / "source"))
        found[2] = peak_of(lambda: BUILDS[name](folder, source))
    shutil.rmtree(folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.row_memory", description=__doc__)
    parser.add_argument("--rows", type=int, nargs=2, default=[400_000, 800_000])
    parser.add_argument("--family", nargs="*", default=list(MANY), choices=list(MANY))
    parser.add_argument("--work", type=Path, default=Path("/tmp/spanloom-bench-rows"))
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    small, big = given.rows
    lines = []
    for name in given.family:
        first, second = (peaks(name, given.work / f"{name}-{rows}", rows) for rows in given.rows)
        for what, few, many in zip(("validate", "validate --source", "build"), first, second, strict=True):
            if few is not None and many is not None:
                growth = f"{(many - few) / (big - small):,.0f}"
                lines.append((name, what, f"{few / MIB:,.0f} MiB", f"{many / MIB:,.0f} MiB", growth))
    columns = ("family", "what", f"{small:,} rows", f"{big:,} rows", "bytes a row")
    print(markdown(Sheet(key="rows", title="Peak memory by rows", columns=columns, rows=lines)))


if __name__ == "__main__":
    main()
