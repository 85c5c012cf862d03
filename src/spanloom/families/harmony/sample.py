"""The built-in raw sample: a small Parquet file shaped like PleIAs/SYNTH, so that a demo runs without a network.

In: a number of rows, at most 240. Out: ``synth_sample.parquet``, with raw SYNTH's columns (all strings, some null),
in row groups of 64 rows. Two calls give equal bytes (under one version of pyarrow).

The rows are in a file beside this module. Their texts were written for this project, in 14 languages; ``script`` names
the kind of a row. The first 33 rows have one row of each kind, except the long ones. Special rows ``i``, by ``i % 80``:

* 40: a very long answer (at least 20,000 bytes);
* 13, 37, 61: the row is incomplete on purpose, to show the skips that a converter counts: 13 has a null
  ``synthetic_reasoning``, 37 an empty ``synthetic_answer``, 61 a null ``query``.
"""

from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.families.harmony import defaults
from spanloom.storage.local import written_atomically
from spanloom.storage.publishing import publish_file
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri

Row = dict[str, str | None]

FILE_NAME = "synth_sample.parquet"
ROW_GROUP = 64
KINDS = 33
TEXTS = ("query", "synthetic_reasoning", "synthetic_answer")


def _table(rows: int) -> pa.Table:
    if not 0 <= rows <= defaults.SAMPLE_ROWS:
        raise ValueError(f"the sample has {defaults.SAMPLE_ROWS} rows, got {rows}")
    packaged = files("spanloom.families.harmony").joinpath(FILE_NAME).read_bytes()
    return pq.read_table(pa.BufferReader(packaged)).slice(0, rows)


def sample_rows(rows: int = defaults.SAMPLE_ROWS) -> list[Row]:
    """The first ``rows`` raw rows, in order. Raises ValueError outside 0 … 240."""
    return list(_table(rows).to_pylist())


def write_sample(out: Path, rows: int = defaults.SAMPLE_ROWS) -> Path:
    """Writes the sample atomically to ``out / FILE_NAME`` and returns that path. Raises ValueError as `sample_rows`."""
    table = _table(rows)
    out.mkdir(parents=True, exist_ok=True)
    with written_atomically(out / FILE_NAME) as stream:
        pq.write_table(table, stream, compression="zstd", row_group_size=ROW_GROUP)
    return out / FILE_NAME


def run(*, out: str, rows: int, scratch: Path | None = None) -> str:
    """`write_sample` to a path or URI; returns the path or URI of the file."""
    with scratch_for("sample", [out], scratch) as staging:
        file = write_sample(staging.path(out), rows)
        if not is_uri(out):
            return str(file)
        uri = parse_uri(out) / FILE_NAME
        publish_file(file, uri)
    return str(uri)
