"""Parquet from outside is held against the checksums of its pages, wherever it is read."""

import hashlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.conversations.source.folder import Part, SourceShard, read_rows
from spanloom.errors import SourceError
from spanloom.families.harmony.contract.profile import SYNTH_KD
from spanloom.families.harmony.sample import write_sample
from spanloom.families.harmony.verify.source import whole_rows
from support import sources


def flip(path: Path, needle: bytes) -> None:
    """Writes the file again with checksums of its pages, and flips one bit of a text in it."""
    plain = {
        "compression": "none",
        "use_dictionary": False,
        "write_statistics": False,
    }  # the text is in its page alone
    pq.write_table(pq.read_table(path), path, write_page_checksum=True, **plain)
    data = bytearray(path.read_bytes())
    data[data.index(needle)] ^= 1
    path.write_bytes(data)
    pq.read_table(path)  # which no reader notices that does not look at checksums


def test_raw_rows(tmp_path: Path, cli: Cli) -> None:
    raw = Path(write_sample(tmp_path / "raw", 5))
    (file,) = [raw] if raw.is_file() else raw.glob("*.parquet")
    flip(file, pq.read_table(file)["query"][2].as_py().encode()[:12])
    done = cli("convert-synth", "--raw", raw, "--out", tmp_path / "out", "--shards", 1, "-q")
    assert done.returncode == 1
    assert "CRC checksum" in done.stderr
    assert str(file) in done.stderr
    assert not (tmp_path / "out/manifest.json").exists()


def test_rows_of_a_source(tmp_path: Path) -> None:
    source = sources.write_source(tmp_path / "source", [[sources.row("a", sources.conversation("the needle"))]])
    path = source / "synth_harmony_shard_00.parquet"
    flip(path, b"the needle")
    data = path.read_bytes()
    shard = SourceShard(
        format=SYNTH_KD.source, index=0, path=path, rows=1, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    with pytest.raises(SourceError, match="CRC checksum") as refusal:
        list(read_rows(shard, Part(index=0, row_groups=(0,), first_row=0, rows=1)))
    assert refusal.value.where == shard.where
    with pytest.raises(SourceError, match="CRC checksum"):
        list(whole_rows(shard, [0]))
