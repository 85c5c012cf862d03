"""The independent reader reads what Megatron's own reader reads, over files that Megatron's own builder wrote."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

from spanloom.errors import ArtifactError, SpanloomError
from spanloom.megatron import official, readers
from spanloom.megatron.independent import IndependentDataset

DTYPES = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64, np.uint16)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    ends=st.sets(st.integers(0, 11)),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=60)
def test_it_reads_what_megatron_reads(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], ends: set[int], dtype: type
) -> None:
    """Also documents of several sequences, and dtypes that our own writer never writes."""
    prefix = tmp_path_factory.mktemp("built") / "x"
    builder = IndexedDatasetBuilder(str(prefix) + ".bin", dtype=dtype)
    for at, length in enumerate(lengths):
        builder.add_item(torch.arange(at, at + length))
        if at in ends or at + 1 == len(lengths):
            builder.end_document()
    builder.finalize(str(prefix) + ".idx")

    ours, theirs = IndependentDataset(prefix), official.open_indexed(prefix)
    assert len(ours) == len(theirs) == len(lengths)
    assert ours.index.dtype == theirs.index.dtype == dtype
    for name in ("sequence_lengths", "document_indices"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    assert np.array_equal(ours.index.sequence_pointers, theirs.index.sequence_pointers)
    for at, sequence in enumerate(ours[0 : len(ours)]):
        assert sequence.dtype == dtype
        assert np.array_equal(sequence, theirs.get(at))
    whole = {"dtype": dtype, "count": sum(lengths), "offset": 0}
    assert np.array_equal(ours.bin_reader.read(**whole), theirs.bin_reader.read(**whole))


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    builder = IndexedDatasetBuilder(str(tmp_path / "x.bin"), dtype=np.int32)
    for length in (3, 1, 4):
        builder.add_item(torch.arange(length))
        builder.end_document()
    builder.finalize(str(tmp_path / "x.idx"))
    return tmp_path / "x"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"NOTANIDX" + data[8:], "not an index of version 1"),
        (lambda data: data[:9] + b"\2" + data[10:], "not an index of version 1"),
        (lambda data: data[:17] + b"\x09" + data[18:], "not an index of version 1"),
        (lambda data: data[:20], "no whole header"),
        (lambda data: data[:-1], "its header requires 102"),
    ],
)
def test_a_damaged_index_is_refused(prefix: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    index = prefix.with_name("x.idx")
    index.write_bytes(change(index.read_bytes()))
    with pytest.raises(ArtifactError, match=message):
        IndependentDataset(prefix)


def test_a_sequence_that_is_not_whole_or_not_there_is_refused(prefix: Path) -> None:
    dataset = IndependentDataset(prefix)
    for number in (-1, 3):
        with pytest.raises(IndexError):
            dataset.get(number)
    data = prefix.with_name("x.bin")
    data.write_bytes(data.read_bytes()[:-1])
    assert dataset.get(1).tolist() == [0]
    with pytest.raises(ArtifactError, match="the file ends 1 items too early"):
        dataset.get(2)


def test_auto_is_megatrons_reader_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [readers.chosen_reader(choice) for choice in ("auto", "megatron", "independent")] == [
        "megatron",
        "megatron",
        "independent",
    ]
    monkeypatch.setattr(official, "find_spec", lambda name: None if name == "megatron" else True)
    assert readers.chosen_reader("auto") == "independent"
    with pytest.raises(SpanloomError, match=r"megatron cannot be imported.*\n.*--reader independent"):
        readers.chosen_reader("megatron")
