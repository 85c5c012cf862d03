"""The reader without torch reads what Megatron's own reader reads, and refuses what it cannot."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spanloom.errors import ArtifactError
from spanloom.megatron.indexed import ParallelWriter
from spanloom.megatron.official import open_indexed
from spanloom.megatron.reader import ShardReader, open_shard_reader, single_sequences

DTYPES = {"tokens": "int32", "span": "uint8"}


def opened(root: Path) -> ShardReader:
    return open_shard_reader(
        {name: (root / "train" / f"shard_03_{name}", np.dtype(dtype)) for name, dtype in DTYPES.items()}
    )


def write(root: Path, lengths: list[int]) -> dict[str, np.ndarray]:
    total = sum(lengths)
    arrays = {"tokens": np.arange(total, dtype=np.int32) * 7, "span": (np.arange(total) % 251).astype(np.uint8)}
    prefixes = {name: (root / "train" / f"shard_03_{name}", dtype) for name, dtype in DTYPES.items()}
    with ParallelWriter(prefixes) as writer:
        writer.append(np.array(lengths, dtype=np.int32), arrays)
        writer.publish()
    return arrays


@pytest.mark.parametrize(
    "lengths", [[1], [5, 1, 3], [1] * 9000, [70_000, 2, 1], list(range(1, 300))], ids=lambda lengths: f"{len(lengths)}"
)
@pytest.mark.parametrize("at_once", [1, 7, 4096, 10**9])
def test_it_reads_what_megatron_reads(tmp_path: Path, lengths: list[int], at_once: int) -> None:
    write(tmp_path, lengths)
    reader = opened(tmp_path)
    theirs = {name: open_indexed(tmp_path / "train" / f"shard_03_{name}") for name in DTYPES}
    assert reader.sequences == len(theirs["tokens"]) == len(lengths)
    read = 0
    for first, found, arrays in reader.batches(at_once):
        assert first == read
        assert found.tolist() == theirs["tokens"].sequence_lengths[first : first + found.size].tolist()
        assert found.size == 1 or found.sum() <= at_once
        for name, flat in arrays.items():
            assert flat.dtype == DTYPES[name]
            assert np.array_equal(
                flat, np.concatenate([theirs[name].get(at) for at in range(first, first + found.size)])
            )
        read += found.size
    assert read == len(lengths)


def test_one_sequence_anywhere(tmp_path: Path) -> None:
    arrays = write(tmp_path, [3, 1, 4])
    reader = opened(tmp_path)
    assert reader.lengths(1, 5).tolist() == [1, 4]
    assert reader.lengths(3, 5).tolist() == []
    assert reader.read(2, reader.lengths(2, 1))["tokens"].tolist() == arrays["tokens"][4:8].tolist()


def damage_missing(file: Path) -> None:
    file.with_suffix(".bin").unlink()


def damage_magic(file: Path) -> None:
    file.write_bytes(b"NOTANIDX" + file.read_bytes()[8:])


def damage_header(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20])


def damage_count(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:18] + (2).to_bytes(8, "little") + data[26:])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_missing, "a file of the dataset is missing"),
        (damage_magic, "not an IndexedDataset of int32"),
        (damage_header, "the index has no whole header"),
        (damage_count, "the arrays hold different numbers of sequences: {'tokens': 2, 'span': 3}"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, damage, said: str) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path, [3, 1, 4])
    damage(tmp_path / "train/shard_03_tokens.idx")
    with pytest.raises(ArtifactError) as refused:
        opened(tmp_path)
    assert refused.value.what == said


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [3, 1, 4])
    data = tmp_path / "train/shard_03_span.bin"
    data.write_bytes(data.read_bytes()[:-1])
    reader = opened(tmp_path)
    with pytest.raises(ArtifactError, match="the file ends before sequence 2"):
        list(reader.batches(100))


def test_looking_counting_and_exporting_wait_for_no_torch() -> None:
    code = (
        "import sys, spanloom.dataset.inspect, spanloom.dataset.export.parquet, spanloom.dataset.statistics;"
        " import spanloom.report.pages.documents;"
        " print([name for name in ('torch', 'megatron') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_single_sequences_are_those_of_the_run(tmp_path: Path) -> None:
    lengths = [5, 1, 3, 400, 2]
    arrays = write(tmp_path, lengths)
    ends = np.cumsum(lengths)
    for name, dtype in DTYPES.items():
        prefix = tmp_path / "train" / f"shard_03_{name}"
        wanted = [3, 0, 0, 4]
        for number, found in zip(wanted, single_sequences(prefix, np.dtype(dtype), wanted), strict=True):
            assert found.tolist() == arrays[name][ends[number] - lengths[number] : ends[number]].tolist()


ALONE = """
import sys
from pathlib import Path

from spanloom.megatron import official

if sys.argv[2] == "whole":
    def failing(self, name):
        raise ImportError(name)
    official._Alone.load = failing
dataset = official.open_indexed(Path(sys.argv[1]))
assert dataset[0].tolist() == [0, 7, 14]
assert type(dataset).__module__ == "megatron.core.datasets.indexed_dataset"
imported = {name.split(".")[0] for name in sys.modules} & {"torch", "megatron", "boto3"}
assert not imported if sys.argv[2] == "alone" else imported >= {"torch", "megatron"}, imported

import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset

assert issubclass(IndexedDataset, torch.utils.data.Dataset)
assert torch.compile.__module__ == "torch"
file = sys.modules[IndexedDataset.__module__].__file__
assert type(dataset).get.__code__.co_filename == file, "their own file"
assert sys.modules["megatron.core"].__file__, "the whole package"
"""


@pytest.mark.parametrize("imported", ["alone", "whole"])
def test_megatrons_reader_is_its_own_file_and_needs_no_torch(tmp_path: Path, imported: str) -> None:
    """`whole`: a release whose reader cannot be loaded without the rest. Both can be imported afterwards as ever."""
    write(tmp_path, [3, 2])
    prefix = tmp_path / "train" / "shard_03_tokens"
    done = subprocess.run([sys.executable, "-c", ALONE, str(prefix), imported], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
