"""A dataset written again: its documents dealt into more shards, or several times with other ids.

In: a clean root of a family whose documents have ids; at most one reason for which rows were rejected. Out: another
root, just as clean. The builders are not involved: files are written by `SplitWriter`, and the manifest is that of the
first root with new counts.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.root.inventory import add_up
from spanloom.dataset.root.layout import array_prefix, rows_file
from spanloom.dataset.split_writer import SplitWriter
from spanloom.provenance import sha256_json
from spanloom.split import id_digests, is_valid

Document = tuple[dict[str, Any], dict[str, Any]]
"""Its row, and name → array."""


def named(name: str, copy: int) -> str:
    """The id of a copy: `a` → `a-1`, `a#0` → `a-1#0`."""
    head, mark, tail = name.partition("#")
    return f"{head}-{copy}{mark}{tail}" if copy else name


def deal(
    root: Path,
    out: Path,
    family: DatasetFamily,
    ids: Sequence[str],
    *,
    shards: int | None = None,
    copies: int = 1,
    **changes: Any,
) -> Path:
    """Writes `root` again as `out`, with its documents `copies` times. Returns `out`.

    `ids`: columns with ids, the one that decides the split first. `shards`: row i goes to shard i mod `shards`; None
    leaves each where it is. `changes`: other values of the manifest's `content`.
    """
    whole = json.loads((root / manifest.MANIFEST_NAME).read_bytes())
    content = manifest.read(root).content
    for file in content.files:
        (out / file.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file.path, out / file.path)
    options = {
        "arrays": content.arrays,
        "span_names": content.span_names,
        "about": family.row_schema(content),
    }
    entries = []
    for number in range(shards or len(content.shards)):
        writers = {split: SplitWriter(out, split, number, **options) for split in family.SPLITS}
        documents = _documents(root, content, number, shards)
        of_source = content.totals.rows_read if shards else content.shards[number].rows_read
        for copy in range(copies):
            rows = [{**row, "row": row["row"] + copy * of_source} for row, _ in documents]
            own = [at for at, row in enumerate(rows) if not shards or row["row"] % shards == number]
            renamed = [rows[at] | {name: named(rows[at][name], copy) for name in ids} for at in own]
            _append(writers, renamed, [documents[at][1] for at in own], content, options["about"], ids[0])
        old = [content.shards[number]] if shards is None else content.shards
        splits = {split: writer.publish() for split, writer in writers.items()}
        rows_read = (
            len(range(number, copies * content.totals.rows_read, shards)) if shards else copies * old[0].rows_read
        )
        rejected = rows_read - sum(counts.sequences for counts in splits.values())
        entries.append(
            ShardEntry(
                shard=number,
                rows_read=rows_read,
                rejected={reason: rejected for reason in content.totals.rejected if rejected},
                rejects_file=None,
                splits=splits,
                cutting=None if old[0].cutting is None else {k: copies * v for k, v in old[0].cutting.items()},
            )
        )
    totals = add_up(entries)
    config = {**content.config, **({"shards": shards} if shards and "shards" in content.config else {})}
    valid = totals.splits["valid"].sequences / totals.sequences
    whole["content"] |= {
        "config": config,
        "config_sha256": sha256_json(config),
        "split": {**whole["content"]["split"], "realised_valid_fraction": valid},
        "totals": totals.model_dump(mode="json", exclude_none=True),
        "shards": [{"rejects_file": None, **entry.model_dump(mode="json", exclude_none=True)} for entry in entries],
        **changes,
    }
    (out / manifest.MANIFEST_NAME).write_text(json.dumps(whole))
    return out


def _documents(root: Path, content: Content, number: int, shards: int | None) -> list[Document]:
    """The documents that a new shard may have, by row."""
    documents: list[Document] = []
    for shard in content.shards if shards else [content.shards[number]]:
        for split, counts in shard.splits.items():
            if not counts.sequences:
                continue
            rows = pq.read_table(rows_file(root, split, shard.shard)).to_pylist()
            ends = np.cumsum([row["tokens"] for row in rows])[:-1]
            files = {
                name: np.split(np.fromfile(f"{array_prefix(root, split, shard.shard, name)}.bin", dtype), ends)
                for name, dtype in content.arrays.items()
            }
            documents += [(row, {name: parts[at] for name, parts in files.items()}) for at, row in enumerate(rows)]
    documents.sort(key=lambda document: document[0]["row"])
    return documents


def _append(
    writers: dict[str, SplitWriter],
    rows: Sequence[dict[str, Any]],
    arrays: Sequence[dict[str, Any]],
    content: Content,
    about: pa.Schema,
    split_column: str,
) -> None:
    assert content.split is not None
    valid = is_valid(id_digests(row[split_column] for row in rows), content.split.valid_fraction)
    for split, places in (("train", np.flatnonzero(~valid).tolist()), ("valid", np.flatnonzero(valid).tolist())):
        if not places:
            continue
        chosen = [rows[at] for at in places]
        lengths = np.array([row["tokens"] for row in chosen], dtype=np.int32)
        flat = {name: np.concatenate([arrays[at][name] for at in places]) for name in content.arrays}
        spans = np.array([[row[f"{name}_tokens"] for name in content.span_names] for row in chosen], dtype=np.int64)
        writers[split].append_arrays(lengths, flat)
        batch = pa.Table.from_pylist(chosen, schema=about).combine_chunks().to_batches()[0]
        writers[split].append_rows(batch, lengths, spans)
