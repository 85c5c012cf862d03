"""The stages of a build, each alone: what a render worker does, batch by batch, and validation.

In: a source at two sizes. Out: seconds and amounts of each stage.
`python -m tools.bench.stages KIND SMALL BIG WORK --tokenizer FILE` measures one kind in a fresh process; prints JSON.

Every result is dropped as a worker drops it: keeping all of it would measure the allocator, not the stage. No text is
encoded twice in one process, so no cache knows it already.
"""

import argparse
import gc
import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spanloom.building.parts.stored import PartWriter
from spanloom.building.shards.ids import write_split
from spanloom.conversations.source.folder import SourceRows, open_source, parts_of, read_rows
from spanloom.conversations.source.structure import LabelledConversation, row_id
from spanloom.families.harmony.contract.config import split_decided
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import CutRules, rules_for
from spanloom.families.harmony.contract.profile import SYNTH_KD, profile_of_source
from spanloom.families.harmony.convert.convert_shard import convert_shard
from spanloom.families.harmony.convert.raw_files import Run
from spanloom.families.harmony.convert.synth import Conversion, find_raw_files
from spanloom.families.harmony.defaults import AUDIT_FRACTION, VALID_FRACTION
from spanloom.families.harmony.render.audit import Auditor, audit_stride
from spanloom.families.harmony.render.fast import FastRenderer
from spanloom.families.harmony.render.routes import ROWS_WORTH_LOADING, load_renderer, loading_ahead
from spanloom.families.harmony.render.rows import render_rows
from spanloom.families.harmony.steps import assemble_manifest
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.records.strict_json import count_quotes
from spanloom.tokenizers.o200k.encoder import EncodedTexts, Encoder
from spanloom.workers import process_pool
from support.rendered_shards import counted_ids, render_shard, write_shard
from tools.bench.corpus import raw_of

Line = dict[str, Any]


class _Clock:
    """Seconds by stage: `lap("read")` gives the time since the last lap to `read`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    def lap(self, stage: str | None) -> None:
        now = time.perf_counter()
        if stage is not None:
            self.seconds[stage] += now - self._last
        self._last = time.perf_counter()


class _TimedEncoder:
    """Stands where the fast renderer has its encoder, so that encoding and laying out can be told apart."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self.seconds = encoder, 0.0

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        began = time.perf_counter()
        encoded = self._encoder.encode(texts)
        self.seconds += time.perf_counter() - began
        return encoded


def worker_stages(source: Path, work: Path, tokenizer: Path) -> Iterator[Line]:
    """Read, parse, lay out, encode, audit, write the part: batch by batch, as `building.making.make_part` does."""
    encoding = load_encoding(tokenizer)
    renderer = FastRenderer(encoding, tokenizer)
    timed = renderer._encoder = _TimedEncoder(renderer._encoder)  # type: ignore[assignment]
    first = parse_conversation('{"messages": [{"role": "assistant", "channel": "final", "content": "é"}]}')
    renderer.render([first])
    gc.freeze()  # as a worker does
    timed.seconds = 0.0
    clock = _Clock()
    rows = tokens = audited = 0
    for shard in open_source(source).shards:
        auditor = Auditor(encoding, audit_stride(shard.rows, AUDIT_FRACTION))
        for number, part in enumerate(parts_of(shard)):
            folder = work / f"shard_{shard.index:02d}"
            with PartWriter(folder, folder / "ids", number, profile_of_source(shard.format).about) as writer:
                clock.lap(None)
                for batch in read_rows(shard, part):
                    clock.lap("read Parquet rows")
                    conversations = _parse(batch)
                    clock.lap("parse and check JSON")
                    rendered = renderer.render(conversations)
                    clock.lap("render")
                    ids = [str(synth_id) for synth_id in batch.columns["synth_id"]]
                    places = list(enumerate(ids, batch.first_row))
                    audited += auditor.audit(shard.index, places, conversations, rendered)
                    clock.lap("audit")
                    columns = {name: batch.columns[name] for name in shard.format.metadata_columns}
                    row = np.arange(len(batch)) + batch.first_row
                    about = pa.RecordBatch.from_pydict(
                        {"row": row, "synth_id": ids, **columns}, schema=profile_of_source(shard.format).about
                    )
                    writer.write(about, rendered.documents)
                    clock.lap("write rendered part")
                    rows, tokens = rows + len(batch), tokens + rendered.documents.tokens.size
                    clock.lap(None)
                writer.commit({})
                clock.lap("write rendered part")
    clock.seconds["encode content"] = timed.seconds
    clock.seconds["lay out and gather"] = clock.seconds["render"] - timed.seconds
    order = ("read Parquet rows", "parse and check JSON", "lay out and gather", "encode content", "audit")
    amounts = {"rows": rows, "tokens": tokens}
    for stage in (*order, "write rendered part"):
        yield {"stage": stage, "seconds": clock.seconds[stage], **amounts}
    yield {
        "stage": "sum of these",
        "seconds": sum(clock.seconds[stage] for stage in (*order, "write rendered part")),
    } | {
        **amounts,
        "audited": audited,
    }


def step_stages(sources: list[Path], work: Path, tokenizer: Path) -> Iterator[Line]:
    """`render-shard` whole with one worker, `assemble-split`, and what lies on disk after each, at both sizes."""
    for source, size in zip(sources, ("small", "big"), strict=True):
        opened = open_source(source)
        rendered, ids = _folders(work, size)
        with process_pool(1) as pool:
            pool.submit(_first_row, tokenizer).result()
            began = time.perf_counter()
            summaries = [
                render_shard(source, shard.index, rendered[shard.index], ids[shard.index], pool, tokenizer=tokenizer)
                for shard in opened.shards
            ]
            seconds = time.perf_counter() - began
        amounts = {name: sum(summary[name] for summary in summaries) for name in ("rows", "tokens")}
        yield {"stage": "render-shard", "size": size, "seconds": seconds, **amounts}
        began = time.perf_counter()
        counted = counted_ids(ids, scratch=work)
        write_split(work / size / "split.json", split_decided(SYNTH_KD, VALID_FRACTION), counted)
        yield {"stage": "assemble-split", "size": size, "seconds": time.perf_counter() - began, **amounts}
        yield {
            "stage": "bytes",
            "size": size,
            "input": sum(shard.bytes for shard in opened.shards),
            "rendered": _bytes(rendered),
            "ids": _bytes(ids),
            "split": (work / size / "split.json").stat().st_size,
            **amounts,
        }


def conversion(sources: list[Path], work: Path) -> Iterator[Line]:
    """`convert-shard` of raw rows, in one shard."""
    for size, source in (("small", sources[0]), ("small", sources[0]), ("big", sources[1])):
        (file,) = find_raw_files(raw_of(source, work / size / "raw"), with_seed_text=False)
        groups = tuple(range(len(file.group_rows)))
        runs = [Run(file=0, groups=groups, skip=0, rows=file.rows)]
        shard = work / size / "converted.parquet"
        shard.unlink(missing_ok=True)
        began = time.perf_counter()
        made = convert_shard(files={0: file}, runs=runs, shard=shard, conversion=Conversion(shards=1))
        seconds = time.perf_counter() - began
        yield {"stage": "convert-shard", "size": size, "seconds": seconds, "rows": made["entry"]["rows"]}


def validation(sources: list[Path], work: Path, tokenizer: Path) -> Iterator[Line]:
    """`validate-alignment` of finished files, on one core, without rows rendered again; and without the source."""
    from spanloom.families.harmony import dataset
    from spanloom.steps.validate_alignment import validate_alignment

    # Loading the tokenizer and such is done by a first, smaller dataset before anything counts.
    for size, source in [("small", sources[0]), ("small", sources[0]), ("big", sources[1])]:
        root = work / size / "root"
        if not root.exists():
            inventories = list(map(str, _write(work, size, root)))
            split = work / size / "split.json"
            assemble_manifest.run(inventories=inventories, split=str(split), root=str(root), allow_unknown_sha=True)
        for stage, given in (("validate-alignment", source), ("check documents", None)):
            began = time.perf_counter()
            report = validate_alignment(root=root, family=dataset, source=given, tokenizer=tokenizer, workers=1)
            seconds = time.perf_counter() - began
            assert report.clean, report
            checked = report.as_dict()["checked"]
            yield {"stage": stage, "size": size, "seconds": seconds, "tokens": checked["tokens"]}


def worker_startup(tokenizer: Path) -> Iterator[Line]:
    """From asking for a process to its first rendered row; it loads ahead, as those of a build of many rows do."""
    began = time.perf_counter()
    with process_pool(1, ahead=loading_ahead("fast", tokenizer, ROWS_WORTH_LOADING)) as pool:
        tokens = pool.submit(_first_row, tokenizer).result()
        yield {"stage": "worker start-up", "seconds": time.perf_counter() - began, "tokens": tokens}


def one_pass(source: Path, tokenizer: Path, history: str | None = None) -> Iterator[Line]:
    """Rows of a source read, checked and rendered once, in one process: more passes would flatter the caches."""
    opened = open_source(source)
    renderer = load_renderer("fast", tokenizer, profile_of_source(opened.format))
    rules = rules_for(profile_of_source(opened.format), None if history is None else CutRules(history=history))
    renderer.render([parse_conversation('{"messages": [{"role": "assistant", "channel": "final", "content": "é"}]}')])
    began, began_cpu = time.perf_counter(), time.process_time()
    rows = tokens = fallbacks = 0
    for shard in opened.shards:
        for part in parts_of(shard):
            for batch in read_rows(shard, part):
                result = render_rows(shard, batch, renderer, rules=rules)
                rows, tokens = rows + len(batch), tokens + result.documents.tokens.size
                fallbacks += result.counts["audit"]["fallback_rows"]
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    size = sum(shard.bytes for shard in opened.shards)
    yield {"stage": "one pass", "seconds": seconds, "cpu": cpu, "rows": rows, "tokens": tokens} | {
        "fallbacks": fallbacks,
        "input": size,
    }


def _first_row(tokenizer: Path) -> int:
    """In a worker: the renderer loaded, one row rendered. Returns its tokens."""
    from spanloom.families.harmony import recipe

    conversation = parse_conversation(
        '{"messages": [{"role": "user", "content": "Größe?"}, '
        '{"role": "assistant", "channel": "final", "content": "Zwölf."}]}'
    )
    return recipe._renderer("fast", tokenizer, SYNTH_KD).render([conversation]).documents.tokens.size


def _parse(batch: SourceRows) -> list[LabelledConversation]:
    for synth_id, metadata in zip(batch.columns["synth_id"], batch.columns["metadata_json"], strict=True):
        row_id(synth_id, metadata, "synth_id")
    texts = batch.messages_json.to_pylist()
    return [
        parse_conversation(text, quotes) for text, quotes in zip(texts, count_quotes(batch.messages_json), strict=True)
    ]


def _write(work: Path, size: str, root: Path) -> Iterator[Path]:
    rendered, ids = _folders(work, size)
    for shard in range(len(rendered)):
        inventory = work / size / f"inventory_{shard:02d}.json"
        write_shard(rendered[shard], ids[shard], root, inventory)
        yield inventory


def _folders(work: Path, size: str, shards: int = 4) -> tuple[list[Path], list[Path]]:
    return tuple(  # type: ignore[return-value]
        [work / size / f"{name}_{shard:02d}" for shard in range(shards)] for name in ("rendered", "ids")
    )


def _bytes(folders: list[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())


KINDS = ("worker", "steps", "conversion", "validation", "startup", "one-pass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("small", type=Path)
    parser.add_argument("big", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--history", help="how conversations are cut, of one-pass")
    given = parser.parse_args()
    sources = [given.small, given.big]
    alone = given.work / "worker"
    match given.kind:
        case "worker":
            shutil.rmtree(alone, ignore_errors=True)
            lines = list(worker_stages(given.big, alone, given.tokenizer))
            shutil.rmtree(alone)
        case "steps":
            shutil.rmtree(given.work, ignore_errors=True)
            lines = list(step_stages(sources, given.work, given.tokenizer))
        case "conversion":
            lines = list(conversion(sources, given.work))
        case "validation":
            for size in ("small", "big"):
                shutil.rmtree(given.work / size / "root", ignore_errors=True)
            lines = list(validation(sources, given.work, given.tokenizer))
        case "startup":
            lines = list(worker_startup(given.tokenizer))
        case _:
            lines = list(one_pass(given.big, given.tokenizer, given.history))
    print(json.dumps(lines))


if __name__ == "__main__":
    from tools.bench import stages

    stages.main()  # workers find functions by the name of their module, not in a main script
