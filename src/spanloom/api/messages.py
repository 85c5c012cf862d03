"""A source folder → conversations for a trainer that applies the chat template itself: `export --to messages`.

In: a folder of `conversations_v1`. Out: `conversations.jsonl`, `dataset_info.json` for LLaMA-Factory, and `export.json`
with the counts, written last.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from spanloom.conversations.conversation import parse_conversation
from spanloom.conversations.dialects import Trainer, UnsayableError, as_record
from spanloom.conversations.source.folder import Source, first_rows, open_source
from spanloom.conversations.source.manifest import ANY_MODEL_V1
from spanloom.conversations.source.rejects import RowRefusedError
from spanloom.errors import DatasetError
from spanloom.provenance import readable_json, sha256_json
from spanloom.storage import write_atomically, written_atomically
from spanloom.storage.folders.filling import filling
from spanloom.storage.folders.repeated import MADE_JSON, OnSame, Output, finish, made_or_same

RECORD_NAME = ".spanloom-export-unfinished"
DATA, INFO, EXPORT_JSON = "conversations.jsonl", "dataset_info.json", "export.json"

DATASET_INFO = {
    "spanloom": {
        "file_name": DATA,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "tools": "tools"},
        "tags": {"system_tag": "system"},
    }
}
"""What LLaMA-Factory needs to know of the file; its dataset is called `spanloom`."""


def export_messages(
    root: Path, out: Path, trainer: Trainer, *, overwrite: bool = False, on_same: OnSame | None = None
) -> dict[str, Any]:
    """Writes the conversations of the source at `root`; returns the content of `export.json`.

    Conversations that the dialect cannot say are refused and counted by reason. Raises DatasetError for another folder,
    or if no conversation is left; ConflictError if `out` has anything else.
    """
    source = open_source(root)
    if source.format.schema_version != ANY_MODEL_V1:
        raise DatasetError(
            f"this is {source.format.schema_version}, not {ANY_MODEL_V1}",
            where=str(root),
            remedy="give a folder that `spanloom convert` wrote",
        )
    identity = {"input": sha256_json(source.manifest), "options": {"to": "messages", "for": trainer}}
    output = Output(identity=identity, last=EXPORT_JSON, record_name=RECORD_NAME)

    def make(folder: Path) -> None:
        names = [DATA, INFO, MADE_JSON, EXPORT_JSON]
        with filling(folder, record_name=RECORD_NAME, identity=identity, files=names) as finished:
            if not finished:
                try:
                    finish(folder, output, readable_json(_written(source, root, folder, trainer)))
                except BaseException:
                    for name in reversed(names):
                        (folder / name).unlink(missing_ok=True)
                    raise

    made_or_same(out, output, make, overwrite=overwrite, on_same=on_same)
    return dict(json.loads((out / EXPORT_JSON).read_bytes()))


def _written(source: Source, root: Path, out: Path, trainer: Trainer) -> dict[str, Any]:
    written, refused, left_out = 0, Counter[str](), Counter[str]()
    with written_atomically(out / DATA) as stream:
        for shard in source.shards:
            for rows in first_rows(shard):
                for text in rows.messages_json:
                    try:
                        record, without = as_record(parse_conversation(text.as_py()), trainer)
                    except UnsayableError as unsayable:
                        refused[unsayable.reason] += 1
                    except RowRefusedError as row:
                        refused[row.reason.value] += 1
                    else:
                        # Automodel also ends a line at U+2028 and its like, so its lines are ASCII.
                        line = json.dumps(record, ensure_ascii=trainer == "automodel")
                        stream.write(line.encode() + b"\n")
                        written += 1
                        left_out.update(without)
    if not written:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(refused.items()))
        raise DatasetError(f"{trainer} can say none of the conversations: {reasons}", where=str(root))
    if trainer == "llama-factory":
        write_atomically(out / INFO, readable_json(DATASET_INFO))
    return {
        "export": "spanloom_messages_v1",
        "for": trainer,
        "conversations": written,
        "refused": dict(sorted(refused.items())),
        "left_out": dict(sorted(left_out.items())),
    }
