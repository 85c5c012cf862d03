"""The stages of a build, each alone in one process, and the writer against what the disk can do.

In: a source. Out: seconds and amounts of each stage. `python -m bench.stages SOURCE WORK --tokenizer FILE` prints JSON.
Nothing is rendered twice by one renderer, so no cache knows a text already.
"""

import argparse
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.harmony.config import ARRAY_DTYPES
from spanloom.harmony.conversations import parse_conversation, row_id
from spanloom.harmony.render import load_renderer
from spanloom.harmony.rendered import RENDERED_JSON, PartWriter, read_rendered, read_sidecar
from spanloom.harmony.source import METADATA_COLUMNS, open_shard, open_source, plan_parts, read_rows
from spanloom.megatron.indexed import ParallelWriter
from spanloom.steps.assemble_split import assemble_split
from spanloom.steps.render_shard import render_shard
from spanloom.steps.write_indexed import write_indexed
from spanloom.supervision import shift_to_labels
from spanloom.workers import process_pool

WRITTEN_BYTES = 192 << 20
"""What the writers are given to write: enough to see a rate, little enough to wait for."""

Line = dict[str, Any]
Flat = dict[str, npt.NDArray[Any]]


def render_stages(source: Path, work: Path, tokenizer: Path) -> Iterator[Line]:
    """Read, parse, render, write the rendered part: what a render worker does, one after the other."""
    shards = open_source(source).shards
    clock = time.perf_counter()
    batches = []
    for shard in shards:
        with open_shard(shard) as file:
            groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        batches += [batch for part in plan_parts(groups) for batch in read_rows(shard, part)]
    rows = sum(map(len, batches))
    size = sum(len(text or "") for batch in batches for text in batch.columns["messages_json"])
    yield _line("read Parquet rows", clock, rows=rows, bytes=size)

    clock = time.perf_counter()
    parsed = []
    for batch in batches:
        for synth_id, metadata in zip(batch.columns["synth_id"], batch.columns["metadata_json"], strict=True):
            row_id(synth_id, metadata)
        parsed.append([parse_conversation(text) for text in batch.columns["messages_json"]])
    yield _line("parse and check JSON", clock, rows=rows, bytes=size)

    # Fast first: openai-harmony keeps nothing between rows, so it cannot profit from coming second.
    for name in ("fast", "harmony"):
        renderer = load_renderer(name, tokenizer)
        clock = time.perf_counter()
        rendered = [renderer.render(conversations) for conversations in parsed]
        tokens = sum(batch.documents.tokens.size for batch in rendered)
        yield _line(f"render ({name})", clock, rows=rows, tokens=tokens)

    clock = time.perf_counter()
    with PartWriter(work / "part", work / "part_ids", 0) as writer:
        for batch, result in zip(batches, rendered, strict=True):
            columns = {name: batch.columns[name] for name in ("synth_id", *METADATA_COLUMNS)}
            writer.write(np.arange(len(batch)) + batch.first_row, columns, result.documents)
        writer.commit({})
    written = sum(file.stat().st_size for file in (work / "part").iterdir())
    yield _line("write rendered part", clock, rows=rows, tokens=tokens, bytes=written)


def write_stages(source: Path, work: Path, tokenizer: Path) -> Iterator[Line]:
    """The step `write_indexed`; its writer alone; the same bytes written and fsynced plainly; their sha256."""
    shards = range(len(open_source(source).shards))
    with process_pool(1) as pool:
        for shard in shards:
            render_shard(
                source=source,
                shard=shard,
                rendered=work / f"rendered_{shard:02d}",
                ids=work / f"ids_{shard:02d}",
                pool=pool,
                tokenizer=tokenizer,
            )
    ids = [work / f"ids_{shard:02d}" for shard in shards]
    assemble_split(ids=ids, split=work / "split")
    root = work / "root"
    clock = time.perf_counter()
    for shard in shards:
        write_indexed(
            rendered=work / f"rendered_{shard:02d}",
            ids=ids[shard],
            split=work / "split",
            root=root,
            inventory=work / f"inventory_{shard:02d}.json",
        )
    written = [path for folder in ("train", "valid") for path in (root / folder).glob("*.*")]
    yield _line("step write_indexed", clock, bytes=sum(path.stat().st_size for path in written))

    batches = [batch for shard in shards for batch in _arrays(work / f"rendered_{shard:02d}")]
    once = sum(values.nbytes for _, flat in batches for values in flat.values())
    batches *= max(1, WRITTEN_BYTES // once)
    folder = work / "writer"
    clock = time.perf_counter()
    with ParallelWriter({name: (folder / name, dtype) for name, dtype in ARRAY_DTYPES.items()}) as writer:
        for lengths, flat in batches:
            writer.append(lengths, flat)
        writer.publish()
    whole = {name: np.concatenate([flat[name] for _, flat in batches]) for name in ARRAY_DTYPES}
    size = sum(values.nbytes for values in whole.values())
    yield _line("writer alone, with its sha256", clock, bytes=size)
    shutil.rmtree(folder)

    folder.mkdir()
    clock = time.perf_counter()
    for name, values in whole.items():
        with (folder / name).open("wb") as stream:
            values.tofile(stream)
            os.fsync(stream.fileno())
    yield _line("raw tofile and fsync", clock, bytes=size)
    clock = time.perf_counter()
    for values in whole.values():
        hashlib.sha256(values.data).digest()
    yield _line("sha256", clock, bytes=size)


def _arrays(rendered: Path) -> Iterator[tuple[npt.NDArray[np.int32], Flat]]:
    for batch in read_rendered(rendered, read_sidecar(rendered / RENDERED_JSON)["parts"]):
        documents = batch.documents
        yield (
            documents.lengths,
            {
                "tokens": documents.tokens,
                "lossmask": shift_to_labels(documents.loss_mask, documents.lengths),
                "span": shift_to_labels(documents.span_id, documents.lengths),
            },
        )


def _line(stage: str, since: float, **amounts: int) -> Line:
    return {"stage": stage, "seconds": time.perf_counter() - since, **amounts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    given = parser.parse_args()
    folder = given.work / "stages"
    shutil.rmtree(folder, ignore_errors=True)
    lines = [
        *render_stages(given.source, folder, given.tokenizer),
        *write_stages(given.source, folder, given.tokenizer),
    ]
    shutil.rmtree(folder)
    print(json.dumps(lines))


if __name__ == "__main__":
    main()
