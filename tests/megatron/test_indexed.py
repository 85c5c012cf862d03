"""The bulk writer against Megatron's own builder and reader, which are the authority on these bytes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

from spanloom.errors import ArtifactError, ConflictError
from spanloom.megatron import indexed
from spanloom.megatron.indexed import ParallelWriter, index_blocks

shapes = st.lists(st.lists(st.integers(1, 40), max_size=20), min_size=1, max_size=5)


def arrays(lengths: list[int], seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    total = sum(lengths)
    return {
        "tokens": random.integers(0, 201_088, total, dtype=np.int32),
        "lossmask": random.integers(0, 2, total, dtype=np.uint8),
    }


def write(folder: Path, batches: list[list[int]]) -> dict[str, list[np.ndarray]]:
    """Writes the batches in bulk; returns the sequences that went in."""
    sequences: dict[str, list[np.ndarray]] = {"tokens": [], "lossmask": []}
    prefixes = {"tokens": (folder / "x_tokens", np.int32), "lossmask": (folder / "x_lossmask", np.uint8)}
    with ParallelWriter(prefixes) as writer:
        for seed, batch in enumerate(batches):
            values = arrays(batch, seed)
            writer.append(np.array(batch, dtype=np.int32), values)
            for name, flat in values.items():
                sequences[name] += np.split(flat, np.cumsum(batch)[:-1]) if batch else []
        writer.publish()
    return sequences


def build_with_megatron(folder: Path, name: str, sequences: list[np.ndarray]) -> None:
    builder = IndexedDatasetBuilder(str(folder / f"{name}.bin"), dtype=sequences[0].dtype.type)
    for sequence in sequences:
        builder.add_item(torch.from_numpy(sequence.astype(np.int64)))
        builder.end_document()
    builder.finalize(str(folder / f"{name}.idx"))


@given(batches=shapes)
@settings(max_examples=60)
def test_the_bytes_are_those_of_megatrons_builder(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("indexed")
    sequences = write(folder, batches)
    if not sequences["tokens"]:
        assert list(folder.iterdir()) == [], "no sequences: no files, since Megatron cannot map an empty one"
        return
    for name, given_in in sequences.items():
        build_with_megatron(folder, f"oracle_{name}", given_in)
        for suffix in (".bin", ".idx"):
            ours, theirs = folder / f"x_{name}{suffix}", folder / f"oracle_{name}{suffix}"
            assert ours.read_bytes() == theirs.read_bytes()


@given(batches=shapes)
@settings(max_examples=30)
def test_write_then_read_is_identity_through_megatrons_reader(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("indexed")
    sequences = write(folder, batches)
    for name, given_in in sequences.items():
        if not given_in:
            continue
        dataset = IndexedDataset(str(folder / f"x_{name}"))
        assert len(dataset) == len(given_in)
        assert dataset.document_indices.tolist() == list(range(len(given_in) + 1))
        for sequence, expected in enumerate(given_in):
            assert dataset[sequence].dtype == expected.dtype
            assert dataset[sequence].tolist() == expected.tolist()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 7))
def test_index_blocks_do_not_depend_on_their_size(lengths: list[int], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = joined(lengths)
        patch.setattr(indexed, "_INDEX_CHUNK", chunk)
        assert joined(lengths) == whole


def joined(lengths: list[int]) -> bytes:
    blocks = index_blocks(np.array(lengths, dtype=np.int32), np.int32)
    return b"".join(block if isinstance(block, bytes) else block.tobytes() for block in blocks)


def test_an_index_byte_by_byte() -> None:
    assert joined([2, 3]) == (
        b"MMIDIDX\x00\x00" + b"\x01" + b"\x00" * 7 + b"\x04"
        + b"\x02" + b"\x00" * 7 + b"\x03" + b"\x00" * 7
        + b"\x02\x00\x00\x00" + b"\x03\x00\x00\x00"
        + b"\x00" * 8 + b"\x08" + b"\x00" * 7
        + b"\x00" * 8 + b"\x01" + b"\x00" * 7 + b"\x02" + b"\x00" * 7
    )  # fmt: skip


def test_pointers_pass_two_gigabytes() -> None:
    blocks = list(index_blocks(np.full(3, 2**30, dtype=np.int32), np.int32))
    assert blocks[2].tolist() == [0, 2**32, 2**33]


def test_arrays_of_another_shape_dtype_or_name_are_refused(tmp_path: Path) -> None:
    lengths = np.array([2], dtype=np.int32)
    with ParallelWriter({"tokens": (tmp_path / "x", np.int32)}) as writer:
        with pytest.raises(ArtifactError, match=r"tokens: expected int32 \[2\], got int32 \[3\]"):
            writer.append(lengths, {"tokens": np.zeros(3, dtype=np.int32)})
        with pytest.raises(ArtifactError, match="got int64"):
            writer.append(lengths, {"tokens": np.zeros(2, dtype=np.int64)})
        with pytest.raises(ArtifactError, match=r"expected arrays \['tokens'\], got \['span'\]"):
            writer.append(lengths, {"span": np.zeros(2, dtype=np.int32)})


def test_nothing_stands_before_publish_nor_after_a_failure(tmp_path: Path) -> None:
    one = (np.array([1], dtype=np.int32), {"tokens": np.array([7], dtype=np.int32)})
    with pytest.raises(RuntimeError, match="stop"), ParallelWriter({"tokens": (tmp_path / "x", np.int32)}) as writer:
        writer.append(*one)
        assert not (tmp_path / "x.bin").exists()
        raise RuntimeError("stop")
    assert list(tmp_path.iterdir()) == []


def test_the_same_bytes_count_as_written_and_others_conflict(tmp_path: Path) -> None:
    def publish(token: int) -> None:
        with ParallelWriter({"tokens": (tmp_path / "x", np.int32)}) as writer:
            writer.append(np.array([1], dtype=np.int32), {"tokens": np.array([token], dtype=np.int32)})
            writer.publish()

    publish(7)
    publish(7)
    with pytest.raises(ConflictError, match="refusing to overwrite"):
        publish(8)
    assert (tmp_path / "x.bin").read_bytes() == (7).to_bytes(4, "little")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.bin", "x.idx"]
