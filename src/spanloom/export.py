"""A dataset as Parquet for other trainers: token-aligned, as Hugging Face `datasets` and TRL expect it.

In: a dataset root. Out: a new folder of Parquet files a split, a card that `datasets` reads, and `export.json`, last.
What is held is one batch; files are cut after a number of tokens, so size and memory do not follow the dataset.

    on disk, labels ahead    tokens S u M hi E S a C f M ok R EOD      span 0 0 0 0 2 2 2 2 2 2 2 0 0
    exported, token-aligned  input_ids the same                        span_id 0 0 0 0 0 2 2 2 2 2 2 2 0
                             labels    -100 where the loss mask is 0, else the token: trainers shift by themselves

Columns follow what a dataset holds: `span_id` where there is an array `span`, `synth_id` where its rows have one, and
`attention_mask` where documents are blocks of one length, whose last may be padded.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import ArtifactError, ConflictError
from spanloom.megatron.reader import open_shard_reader
from spanloom.provenance import readable_json, sha256_json
from spanloom.report.card import CARD_NAME, hub_split
from spanloom.storage import fsync_file, publish, sha256_file, temporary_beside, write_atomically
from spanloom.supervision import Lengths, shift_to_tokens

EXPORT_JSON = "export.json"
IGNORED = -100
"""The label that PyTorch's cross entropy, and so every trainer, leaves out."""

TOKENS_PER_FILE = 64 << 20
TOKENS_AT_ONCE = 1 << 18

_FIELDS = {
    "input_ids": (pa.list_(pa.int32()), "the tokens of one conversation, the EOD at its end"),
    "labels": (pa.list_(pa.int32()), "the token where it is trained, -100 elsewhere; not shifted, trainers do that"),
    "loss_mask": (pa.list_(pa.uint8()), "1 where trained"),
    "assistant_masks": (pa.list_(pa.uint8()), "`loss_mask` under the name that TRL reads"),
    "attention_mask": (pa.list_(pa.uint8()), "1, and 0 where the last block is padded"),
    "span_id": (pa.list_(pa.uint8()), ""),
    "synth_id": (pa.string(), "the id in the source"),
}
_PACKED = {"input_ids": "the tokens of one block: conversations end to end, cut where the block ends"}


def export_schema(content: dict[str, Any]) -> pa.Schema:
    """The columns of the export of a dataset with this manifest `content`."""
    packed = "packing" in content["totals"]
    left_out = {"synth_id"} if packed else {"attention_mask"}
    left_out |= set() if "span" in content["arrays"] else {"span_id"}
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, (kind, _) in _FIELDS.items() if name not in left_out]
    )


Progress = Callable[[int, int], None]
"""Called with the documents written so far, and the documents there are."""


def export_parquet(
    root: Path,
    content: dict[str, Any],
    out: Path,
    *,
    tokens_per_file: int = TOKENS_PER_FILE,
    on_progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes every document of the dataset at `root` under the new folder `out`; returns what `export.json` holds.

    The same dataset and `tokens_per_file` give the same bytes (under one version of pyarrow). Raises ConflictError when
    `out` holds something, ArtifactError when the dataset cannot be read. Whatever is raised, nothing of this run stays.
    """
    _check_unused(out, root)
    splits = content["totals"]["splits"]
    total = sum(counts["sequences"] for counts in splits.values())
    files: list[dict[str, Any]] = []
    done = 0
    schema = export_schema(content)
    with ExitStack() as undo:
        if not out.exists():
            undo.callback(_remove_if_empty, out)
        for split in splits:
            undo.callback(_remove_if_empty, out / split)
            for shard in content["shards"]:
                if not shard["splits"].get(split, {}).get("sequences"):
                    continue
                prefix = out / split / f"shard_{shard['shard']:02d}"
                writer = undo.enter_context(_Parts(prefix, schema, tokens_per_file, undo))
                at_once = min(TOKENS_AT_ONCE, tokens_per_file)
                for batch in _batches(root, content, schema, split, shard["shard"], at_once):
                    writer.write(batch)
                    done += batch.num_rows
                    if on_progress is not None:
                        on_progress(done, total)
                writer.finish()
                files += [{"split": split, **file, "path": f"{split}/{file['path']}"} for file in writer.files]
        exported = {
            "export": "spanloom_parquet_v1",
            "config_sha256": content["config_sha256"],
            "content_sha256": sha256_json(content),
            "alignment": "tokens",
            "splits": {
                split: {key: counts[key] for key in ("sequences", "tokens")} for split, counts in splits.items()
            },
            "files": files,
        }
        undo.callback((out / CARD_NAME).unlink, missing_ok=True)
        write_atomically(out / CARD_NAME, _card(content, schema, files))
        write_atomically(out / EXPORT_JSON, readable_json(exported))
        undo.pop_all()
    return exported


def _batches(
    root: Path, content: dict[str, Any], schema: pa.Schema, split: str, shard: int, tokens: int
) -> Iterator[pa.RecordBatch]:
    """The documents of one split of one shard as exported batches, with what the rows beside them say."""
    reader = open_shard_reader(root, split, shard, content["arrays"])
    name = "synth_id" if "synth_id" in schema.names else "padding_tokens"
    said = _column(root / split / f"shard_{shard:02d}_rows.parquet", name)
    for first, lengths, arrays in reader.batches(tokens):
        values = [value for _, value in zip(range(lengths.size), said, strict=False)]
        if len(values) != lengths.size:
            raise ArtifactError(
                f"the rows of this shard end before document {first + lengths.size - 1}",
                where=f"{root}, {split}, shard {shard:02d}",
                remedy="`spanloom validate` says what else is wrong",
            )
        yield exported_batch(schema, lengths, arrays, **{name: values})


def exported_batch(
    schema: pa.Schema, lengths: Lengths, arrays: dict[str, npt.NDArray[Any]], **said: list[Any]
) -> pa.RecordBatch:
    """N documents as on disk → one Arrow batch of `schema`, token-aligned. `lengths` int32 [N], the arrays flat [T].

    `said` is what the rows say of each document: `synth_id`, or `padding_tokens`.
    """
    tokens = arrays["tokens"]
    loss_mask = shift_to_tokens(arrays["lossmask"], lengths)
    values = {
        "input_ids": tokens,
        "labels": np.where(loss_mask > 0, tokens, np.int32(IGNORED)),
        "loss_mask": loss_mask,
        "assistant_masks": loss_mask,
    }
    if "span" in arrays:
        values["span_id"] = shift_to_tokens(arrays["span"], lengths)
    if "attention_mask" in schema.names:
        values["attention_mask"] = _real(lengths, np.array(said["padding_tokens"], dtype=np.int64))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32))
    columns = [
        pa.ListArray.from_arrays(offsets, pa.array(values[field.name]), type=field.type)
        if field.name in values
        else pa.array(said[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _real(lengths: Lengths, padding: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """uint8 [T]: 1, and 0 on the last `padding` tokens of each document."""
    counts = np.stack([lengths - padding, padding], axis=1).reshape(-1)
    return np.repeat(np.tile(np.array([1, 0], dtype=np.uint8), lengths.size), counts)


def _column(path: Path, name: str) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=8192, columns=[name], use_threads=False):
                yield from batch.column(name).to_pylist()
    except (OSError, pa.ArrowException, KeyError) as fault:
        raise ArtifactError(f"the rows of this shard cannot be read: {fault}", where=str(path)) from None


class _Parts:
    """`shard_NN-00000.parquet`, `…-00001.parquet`, …: a new file once one holds enough tokens."""

    def __init__(self, prefix: Path, schema: pa.Schema, tokens_per_file: int, undo: ExitStack) -> None:
        self.files: list[dict[str, Any]] = []
        self._prefix, self._schema, self._limit, self._undo = prefix, schema, tokens_per_file, undo
        self._writer: pq.ParquetWriter | None = None
        self._temporary = prefix
        self._documents = self._tokens = 0

    def __enter__(self) -> "_Parts":
        return self

    def __exit__(self, *_: object) -> None:
        """Removes a file that was begun and not finished."""
        if self._writer is not None:
            with suppress(pa.ArrowException, OSError):
                self._writer.close()
            self._temporary.unlink(missing_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._temporary = temporary_beside(self._path())
            self._writer = pq.ParquetWriter(self._temporary, self._schema, compression="zstd")
        self._writer.write_batch(batch)
        self._documents += batch.num_rows
        self._tokens += len(batch.column("input_ids").values)
        if self._tokens >= self._limit:
            self.finish()

    def finish(self) -> None:
        """Gives the file at hand its name, if there is one."""
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        fsync_file(self._temporary)
        path, sha256, size = self._path(), sha256_file(self._temporary), self._temporary.stat().st_size
        self._undo.callback(path.unlink, missing_ok=True)
        publish(self._temporary, path, sha256)
        self.files.append(
            {"path": path.name, "documents": self._documents, "tokens": self._tokens, "bytes": size, "sha256": sha256}
        )
        self._documents = self._tokens = 0

    def _path(self) -> Path:
        return self._prefix.with_name(f"{self._prefix.name}-{len(self.files):05d}.parquet")


def _card(content: dict[str, Any], schema: pa.Schema, files: list[dict[str, Any]]) -> bytes:
    """Tells `datasets` which files are which split, and people what the columns mean."""
    spans = ", ".join(f"{number} {name}" for number, name in enumerate(content["span_names"]))
    meant = {name: said for name, (_, said) in _FIELDS.items()} | {"span_id": spans}
    if "packing" in content["totals"]:
        meant |= _PACKED
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split in dict.fromkeys(file["split"] for file in files):
        lines += [f"  - split: {hub_split(split)}", f'    path: "{split}/*.parquet"']
    return "\n".join(
        [
            *(lines if files else lines[:1]),
            "---",
            "",
            f"# {content['family']} as Parquet",
            "",
            "Exported by Spanloom. All columns are token-aligned: position t is about token t.",
            "",
            "| column | |",
            "|---|---|",
            *(f"| `{name}` | {meant[name]} |" for name in schema.names),
            "",
            "```python",
            "from datasets import load_dataset",
            "",
            'dataset = load_dataset(".", split="train", streaming=True)',
            "```",
            "",
        ]
    ).encode()


def _check_unused(out: Path, root: Path) -> None:
    one, other = out.resolve(), root.resolve()
    if one == other or other in one.parents:
        raise ConflictError("the export would lie in the dataset", where=str(out), remedy="give another --out")
    if (out.exists() and not out.is_dir()) or (out.is_dir() and any(out.iterdir())):
        raise ConflictError(
            "something stands where the export goes", where=str(out), remedy="give another --out, or remove it first"
        )


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()
