"""The files of a folder of `datasets`' `save_to_disk`, which `load_from_disk` reads: written without `datasets`.

In: record batches, the files of an export. Out: Arrow streams, and the JSON files beside them:

    dataset_dict.json                    {"splits": ["train", "validation"]}
    train/shard_00-00000.arrow           an Arrow stream
    train/state.json                     the names of the streams, in order
    train/dataset_info.json              no features: `datasets` takes the types of the streams
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from spanloom.provenance import readable_json

DATASET_DICT = "dataset_dict.json"
_STATE, _INFO = "state.json", "dataset_info.json"


class StreamWriter:
    """An Arrow stream of record batches, with the methods of a Parquet writer."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._stream.write_batch(batch)

    def close(self) -> None:
        self._stream.close()
        self._file.close()

    def abandon(self) -> None:
        """Closes a stream whose file will be removed."""
        with suppress(pa.ArrowException, OSError):
            self.close()


def json_names(folders: Sequence[str]) -> list[str]:
    """The JSON files of a folder with these splits, which are written after the streams; the last one last."""
    return [*(f"{folder}/{name}" for folder in folders for name in (_STATE, _INFO)), DATASET_DICT]


def json_files(streams: Mapping[str, Sequence[Mapping[str, Any]]], fingerprint: str) -> dict[str, bytes]:
    """The JSON files: name → bytes. `streams`: folder → the entries of its streams, whose `path` begins with it.

    `fingerprint`: 16 hexadecimal digits or more of what the rows are made of; `datasets` names caches by it.
    """
    files: dict[str, bytes] = {}
    for folder, entries in streams.items():
        state: dict[str, Any] = {
            "_data_files": [{"filename": str(entry["path"]).removeprefix(f"{folder}/")} for entry in entries],
            "_fingerprint": fingerprint[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": folder,
        }
        files |= {f"{folder}/{_STATE}": readable_json(state), f"{folder}/{_INFO}": readable_json({})}
    return {**files, DATASET_DICT: readable_json({"splits": list(streams)})}
