"""Batches of rows → files of documents in the folder of intermediates, which are kept if a build stops.

In: a `PartTask`, small enough to be sent to a worker. Out: `shard_NN_part_NNNNNN.arrow` with a row for each document,
and a JSON file beside it with the key of the task, counts, and the refused rows. A part with matching key and hash is
not made again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from spanloom.conversations.source.folder import SourceRows
from spanloom.conversations.source.format import SourceFormat
from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.source.structure import row_id
from spanloom.errors import SpanloomError
from spanloom.families.models.documents.made import ABOUT_SCHEMA, DROPPED, MadeDocument, made_conversation
from spanloom.families.models.documents.rules import Ingredients, ModelRules, load_ingredients
from spanloom.families.models.prove.refusals import Refusal
from spanloom.families.models.source.rows import read_row
from spanloom.provenance import readable_json, sha256_json
from spanloom.storage import read_json, sha256_file, write_atomically

AUDITED_FIRST, AUDITED_EVERY = 4, 64
"""Documents of a part that the tokenizers package checks: the first `AUDITED_FIRST`, then one in `AUDITED_EVERY`."""

PART_SCHEMA = pa.schema(
    [
        *ABOUT_SCHEMA,
        pa.field("document_tokens", pa.list_(pa.int32())),
        pa.field("mask", pa.list_(pa.uint8())),
        pa.field("spans", pa.list_(pa.uint8())),
    ]
)


@dataclass(frozen=True, kw_only=True)
class PartTask:
    """Rows of one shard to be made into documents. `key`: of the whole build; `folder`: for intermediates."""

    key: str
    folder: Path
    index: int
    shard: int
    rows: SourceRows
    source_format: SourceFormat
    model: Path
    rules: ModelRules

    @property
    def name(self) -> str:
        return f"shard_{self.shard:02d}_part_{self.index:06d}"

    @property
    def arrow(self) -> Path:
        return self.folder / f"{self.name}.arrow"

    @property
    def sidecar(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def part_key(self) -> str:
        return sha256_json({"build": self.key, "shard": self.shard, "first": self.rows.first_row, "n": len(self.rows)})


def standing_part(task: PartTask) -> dict[str, Any] | None:
    """The JSON record of a finished part; None if the part is missing, damaged or from another build."""
    try:
        counted = read_json(task.sidecar, SpanloomError, "the record of a part", "build again")
        is_whole = counted["key"] == task.part_key and sha256_file(task.arrow) == counted["sha256"]
    except (FileNotFoundError, SpanloomError, KeyError, TypeError):
        return None
    return counted if is_whole else None


def finished_part(task: PartTask, *, resume: bool) -> dict[str, Any]:
    """The record of the part, which is made unless it is finished. `resume`: keep a finished one."""
    return (standing_part(task) if resume else None) or make_part(task)


def make_part(task: PartTask) -> dict[str, Any]:
    """Makes the documents of these rows, writes both files, and returns the content of the JSON file."""
    ingredients = _ingredients(task)
    counts: Counter[str] = Counter(conversations=0, runs=0, documents=0, left_out_messages=0, declared=0, untrained=0)
    counts.update(dict.fromkeys(DROPPED, 0))
    refused: list[dict[str, Any]] = []
    documents: list[MadeDocument] = []
    joined: list[str] = []
    ids: list[str] = []
    for row, messages_json, column, metadata in _rows(task.rows, task.source_format.id_column):
        name: str | None = None
        try:
            if row in task.rows.undecodable:
                raise RowRefusedError(Reason.NOT_UTF8, "a column is not UTF-8")
            name = row_id(column, metadata, task.source_format.id_column)
            read = read_row(messages_json, task.source_format, ingredients.words, name=name)
            made = made_conversation(row, read, ingredients)
        except RowRefusedError as fault:
            said = {"class": str(fault.reason), "message": fault.detail}
            remedy = {} if fault.remedy is None else {"remedy": fault.remedy}
            refused.append({"row": row, "id": name, **said, **remedy})
            continue
        if isinstance(made, Refusal):
            about = {"message": made.message, "run": made.run, "remedy": made.remedy}
            refused.append({"row": row, "id": name, "class": made.kind, **about})
            continue
        ids.append(name)
        documents += made.documents
        joined += made.joined
        counts.update(
            conversations=1,
            runs=made.runs,
            documents=len(made.documents),
            left_out_messages=made.left_out,
            declared=made.declared,
            untrained=made.untrained,
            **made.counted,
        )
    audited = _audit(joined, ingredients)
    _write(task.arrow, documents)
    counted = {
        "key": task.part_key,
        "sha256": sha256_file(task.arrow),
        "rows": len(task.rows),
        "cutting": dict(counts),
        "audited": audited,
        "refused": refused,
        "ids": ids,
    }
    write_atomically(task.sidecar, readable_json(counted))
    return counted


def read_part(task: PartTask) -> pa.Table:
    """The documents of a part, with the columns of `PART_SCHEMA`."""
    with pa.OSFile(str(task.arrow), "rb") as file:
        return pa.ipc.open_file(file).read_all()


_loaded: dict[str, Ingredients] = {}


def keep_loaded(key: str, ingredients: Ingredients) -> None:
    """Keeps the ingredients of the build `key` for the parts that this process makes."""
    _loaded.clear()
    _loaded[key] = ingredients


def _ingredients(task: PartTask) -> Ingredients:
    """The ingredients of a task, loaded once per process and build."""
    if task.key not in _loaded:
        keep_loaded(task.key, load_ingredients(task.model, task.rules))
    return _loaded[task.key]


def _rows(rows: SourceRows, id_column: str) -> Iterator[tuple[int, Any, str | None, str | None]]:
    nothing: list[str | None] = [None] * len(rows)
    ids, metadata = rows.columns.get(id_column, nothing), rows.columns.get("metadata_json", nothing)
    for at, text in enumerate(rows.messages_json.to_pylist()):
        yield rows.first_row + at, text, ids[at], metadata[at]


def _audit(texts: Sequence[str], ingredients: Ingredients) -> int:
    """Returns the number of audited texts. Raises AuditError if fast encoder and tokenizers package differ."""
    if not ingredients.model.encoder.fast:
        return 0
    chosen = [text for at, text in enumerate(texts) if at < AUDITED_FIRST or at % AUDITED_EVERY == 0]
    ingredients.model.encoder.audit(chosen)
    return len(chosen)


def _write(path: Path, documents: Sequence[MadeDocument]) -> None:
    columns: list[pa.Array] = [
        pa.array([document.row[field.name] for document in documents], field.type) for field in ABOUT_SCHEMA
    ]
    for name, kind in (("tokens", pa.int32()), ("mask", pa.uint8()), ("spans", pa.uint8())):
        columns.append(pa.array([getattr(document, name) for document in documents], pa.list_(kind)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, PART_SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=PART_SCHEMA))
    write_atomically(path, sink.getvalue().to_pybytes())
