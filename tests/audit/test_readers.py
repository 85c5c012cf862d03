"""What readers make of containers: packed rows, padding, alignment. Torn, foreign, hostile files end in a message."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.auditing.readers.opened import open_data, read_unit
from spanloom.auditing.readers.unit import Reading
from spanloom.errors import SpanloomError
from spanloom.law.documents import Documents
from support.audited import Document, write_indexed, write_packed, write_saved

DOCUMENTS: list[Document] = [([1, 2, 3], [0, 1, 1]), ([4, 5], [0, 1]), ([6, 7, 8, 9], [0, 0, 1, 0])]


def read(place: Path, **reading: Any) -> list[tuple[list[int], list[int]]]:
    """All documents at a place."""
    found: list[tuple[list[int], list[int]]] = []
    for unit in open_data(place, Reading(**reading)).units:
        for documents in read_unit(unit):
            found += _split(documents)
    return found


def _split(documents: Documents) -> list[tuple[list[int], list[int]]]:
    edges = [0, *documents.ends.tolist()]
    return [
        (documents.tokens[begin:end].tolist(), documents.trained[begin:end].astype(int).tolist())
        for begin, end in pairwise(edges)
    ]


def table(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_containers_give_the_same_documents(tmp_path: Path) -> None:
    assert read(write_saved(tmp_path / "saved", DOCUMENTS)) == DOCUMENTS
    assert read(write_packed(tmp_path / "packed.parquet", DOCUMENTS)) == DOCUMENTS
    prefix = write_indexed(tmp_path / "corpus", DOCUMENTS)
    assert read(prefix) == read(tmp_path / "corpus_tokens.idx") == DOCUMENTS
    folder = tmp_path / "many"
    folder.mkdir()
    for number, (tokens, mask) in enumerate(DOCUMENTS):
        table(folder / f"{number}.parquet", input_ids=[tokens], assistant_masks=[mask])
    assert read(folder) == DOCUMENTS


def test_rows_are_cut_by_sizes_or_positions_and_padding_is_left_out(tmp_path: Path) -> None:
    row = {"input_ids": [[1, 2, 3, 4, 5], [6]], "completion_mask": [[0, 1, 1, 0, 1], [0]]}
    cut = [([1, 2, 3], [0, 1, 1]), ([4, 5], [0, 1]), ([6], [0])]
    assert read(table(tmp_path / "a.parquet", **row, seq_lengths=[[3, 2], [1]])) == cut
    assert read(table(tmp_path / "b.parquet", **row, position_ids=[[0, 1, 2, 0, 1], [0]])) == cut
    padded = read(table(tmp_path / "c.parquet", **row, attention_mask=[[0, 1, 1, 1, 0], [1]]))
    assert padded == [([2, 3, 4], [1, 1, 0]), ([6], [0])]


def test_masks_of_trl_are_both_counted_and_labels_come_first(tmp_path: Path) -> None:
    masks = {"completion_mask": [[0, 1, 1]], "assistant_masks": [[1, 1, 0]]}
    assert read(table(tmp_path / "a.parquet", input_ids=[[1, 2, 3]], **masks)) == [([1, 2, 3], [0, 1, 0])]
    labelled = table(tmp_path / "b.parquet", input_ids=[[1, 2, 3]], **masks, labels=[[-100, -100, 3]])
    assert read(labelled) == [([1, 2, 3], [0, 0, 1])]
    assert read(labelled, mask="completion_mask") == [([1, 2, 3], [0, 1, 1])]
    assert read(labelled, mask="completion_mask", aligned="labels") == [([1, 2, 3], [0, 0, 1])]


def test_chosen_rows_alone_are_read(tmp_path: Path) -> None:
    (unit,) = open_data(write_indexed(tmp_path / "corpus", DOCUMENTS), Reading()).units
    (first, last) = list(read_unit(unit, np.array([0, 2])))
    assert [*_split(first), *_split(last)] == [DOCUMENTS[0], DOCUMENTS[2]]
    (saved,) = open_data(write_saved(tmp_path / "saved", DOCUMENTS), Reading()).units
    (chosen,) = list(read_unit(saved, np.array([0, 2])))
    assert (_split(chosen), chosen.rows.tolist()) == ([DOCUMENTS[0], DOCUMENTS[2]], [0, 2])


def _torn_parquet(folder: Path) -> Path:
    path = table(folder / "a.parquet", input_ids=[[1, 2]] * 9, labels=[[1, 2]] * 9)
    path.write_bytes(path.read_bytes()[:-20])
    return path


def _torn_index(folder: Path) -> Path:
    prefix = write_indexed(folder / "corpus", DOCUMENTS)
    index = prefix.with_suffix(".idx")
    index.write_bytes(index.read_bytes()[:-4])
    return prefix


def _huge_lengths(folder: Path) -> Path:
    prefix = write_indexed(folder / "corpus", DOCUMENTS)
    index = prefix.with_suffix(".idx")
    raw = bytearray(index.read_bytes())
    raw[34:38] = (2**31 - 1).to_bytes(4, "little")
    index.write_bytes(raw)
    return prefix


def _short_mask(folder: Path) -> Path:
    prefix = write_indexed(folder / "corpus", DOCUMENTS)
    mask = folder / "corpus_lossmask.bin"
    mask.write_bytes(mask.read_bytes()[:-1])
    return prefix


def _no_mask(folder: Path) -> Path:
    prefix = write_indexed(folder / "corpus", DOCUMENTS)
    (folder / "corpus_lossmask.idx").unlink()
    return prefix


def _torn_arrow(folder: Path) -> Path:
    saved = write_saved(folder / "saved", DOCUMENTS * 50)
    (file,) = saved.glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-700])
    return saved


def _foreign(folder: Path) -> Path:
    (folder / "a.parquet").write_text("no Parquet")
    return folder / "a.parquet"


def _empty_folder(folder: Path) -> Path:
    return folder


def _damaged_page(folder: Path) -> Path:
    path = table(folder / "a.parquet", input_ids=[list(range(500))] * 40, labels=[[1] * 500] * 40)
    raw = bytearray(path.read_bytes())
    raw[40:90] = bytes(50)
    path.write_bytes(raw)
    return path


def _mixed(folder: Path) -> Path:
    table(folder / "a.parquet", input_ids=[[1]], labels=[[1]])
    write_indexed(folder / "corpus", DOCUMENTS)
    return folder


def _link_to_nothing(folder: Path) -> Path:
    table(folder / "a.parquet", input_ids=[[1]], labels=[[1]])
    (folder / "b.parquet").symlink_to(folder / "c.parquet")
    return folder


def _twice(folder: Path) -> Path:
    column = pa.array([[1]])
    pq.write_table(pa.Table.from_arrays([column] * 3, names=["input_ids", "labels", "labels"]), folder / "a.parquet")
    return folder / "a.parquet"


def _index(folder: Path, first: int, value: bytes) -> Path:
    """The index of the tokens with other bytes from `first` on."""
    prefix = write_indexed(folder / "corpus", DOCUMENTS)
    index = prefix.with_suffix(".idx")
    raw = bytearray(index.read_bytes())
    raw[first : first + len(value)] = value
    index.write_bytes(raw)
    return prefix


def _one(folder: Path, **columns: Any) -> Path:
    """A file whose second row is the one that is wrong."""
    right = {"input_ids": [1, 2], "labels": [-100, 2]}
    given = {**{name: [value, value] for name, value in right.items()}, **columns}
    return table(folder / "a.parquet", **{name: values for name, values in given.items() if values is not None})


_BEYOND = (2**40).to_bytes(8, "little")
_NESTED = pa.array([[[1, 2]], [[1, None]]])

BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "torn Parquet": (_torn_parquet, "truncated"),
    "a damaged page": (_damaged_page, "cannot be read"),
    "a folder of mixed containers": (_mixed, "several containers: Parquet, .bin and .idx"),
    "a link to nothing": (_link_to_nothing, "b.parquet"),
    "a column that is there twice": (_twice, "labels is there twice"),
    "an index of more sequences than it has": (lambda folder: _index(folder, 18, _BEYOND), "another size"),
    "an index of no sequences": (lambda folder: _index(folder, 18, bytes(8)), "another size"),
    "an index of fractions": (lambda folder: _index(folder, 17, b"\x06"), "no index of whole numbers"),
    "an index of bytes": (lambda folder: _index(folder, 17, b"\x01"), "do not fit"),
    "an index of another tool": (lambda folder: _index(folder, 0, b"TNTIDX"), "no index of whole numbers"),
    "negative lengths": (lambda folder: _index(folder, 34, b"\xff\xff\xff\xff"), "do not fit"),
    "ids that are fractions": (lambda folder: _one(folder, input_ids=[[1.0, 2.0], [1.5, 2.0]]), "not lists of whole"),
    "one id for a row": (lambda folder: _one(folder, input_ids=[1, 2]), "not lists of whole"),
    "nested lists": (lambda folder: _one(folder, input_ids=_NESTED), "not lists of whole"),
    "ids of 64 bits": (
        lambda folder: _one(folder, input_ids=pa.array([[1, 2], [1, 2**63]], pa.list_(pa.uint64()))),
        "row 1",
    ),
    "null labels": (lambda folder: _one(folder, labels=[[-100, 2], [None, 2]]), "row 1"),
    "a row without labels": (lambda folder: _one(folder, labels=[[-100, 2], None]), "row 1"),
    "an attention mask of another length": (lambda folder: _one(folder, attention_mask=[[1, 1], [1]]), "row 1"),
    "positions of another length": (lambda folder: _one(folder, position_ids=[[0, 1], [0]]), "row 1"),
    "negative sizes": (lambda folder: _one(folder, seq_lengths=[[2], [3, -1]]), "row 1"),
    "no start": (lambda folder: _one(folder, seq_start_id=[[0], []]), "row 1"),
    "starts beyond the row": (lambda folder: _one(folder, seq_start_id=[[0], [0, 2**62]]), "out of order"),
    "torn index": (_torn_index, "another size"),
    "lengths beyond the file": (_huge_lengths, "do not fit"),
    "a mask that is too short": (_short_mask, "bytes"),
    "no mask": (_no_mask, "no mask is beside"),
    "torn Arrow": (_torn_arrow, "cannot be read"),
    "no Parquet": (_foreign, "not a Parquet file"),
    "nothing": (_empty_folder, "no token dataset"),
    "missing": (lambda folder: folder / "x", "missing"),
    "no tokens": (lambda folder: table(folder / "a.parquet", text=["a"]), "no column input_ids"),
    "no mask column": (lambda folder: table(folder / "a.parquet", input_ids=[[1]]), "no column says"),
    "texts": (lambda folder: table(folder / "a.parquet", input_ids=["a"], labels=["b"]), "not lists of whole"),
    "null rows": (lambda folder: table(folder / "a.parquet", input_ids=[[1], None], labels=[[1], [1]]), "row 1"),
    "null ids": (lambda folder: table(folder / "a.parquet", input_ids=[[1], [None]], labels=[[1], [1]]), "row 1"),
    "negative ids": (lambda folder: table(folder / "a.parquet", input_ids=[[1], [-5]], labels=[[1], [1]]), "row 1"),
    "other lengths": (lambda folder: table(folder / "a.parquet", input_ids=[[1], [2]], labels=[[1], []]), "row 1"),
    "a mask of twos": (lambda folder: table(folder / "a.parquet", input_ids=[[1]], loss_mask=[[2]]), "value 2"),
    "sizes that do not add up": (
        lambda folder: table(folder / "a.parquet", input_ids=[[1, 2]], labels=[[1, 2]], seq_lengths=[[1]]),
        "add up",
    ),
    "starts out of order": (
        lambda folder: table(folder / "a.parquet", input_ids=[[1, 2]], loss_mask=[[1, 0]], seq_start_id=[[0, 9]]),
        "out of order",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_ends_in_a_message(name: str, tmp_path: Path) -> None:
    make, message = BAD[name]
    with pytest.raises(SpanloomError) as fault:
        read(make(tmp_path))
    assert message in str(fault.value)
    assert fault.value.remedy


@pytest.mark.parametrize("multimodal", [False, True])
def test_documents_of_several_sequences_are_read_whole(multimodal: bool, tmp_path: Path) -> None:
    """As Megatron's own builder writes them: the label of a sequence's last token is the next sequence's first."""
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    documents: list[tuple[list[int], list[int]]] = [
        ([1, 2, 3, 4, 5], [0, 0, 1, 1, 1]),
        ([6, 7], [0, 1]),
        ([8, 9, 10], [0, 1, 0]),
    ]
    cuts = [[2, 3], [2], [1, 1, 1]]
    for name, dtype, arrays in (
        ("c_tokens", np.int32, [tokens for tokens, _ in documents]),
        ("c_lossmask", np.uint8, [[*mask[1:], 0] for _, mask in documents]),
    ):
        builder = IndexedDatasetBuilder(str(tmp_path / f"{name}.bin"), dtype=dtype, multimodal=multimodal)
        for values, lengths in zip(arrays, cuts, strict=True):
            modes = [0] * len(lengths) if multimodal else None
            builder.add_document(torch.tensor(values), lengths, modes)
        builder.finalize(str(tmp_path / f"{name}.idx"))
    assert read(tmp_path / "c_tokens") == documents
    (unit,) = open_data(tmp_path / "c_tokens", Reading()).units
    assert unit.rows == 3
    (drawn,) = read_unit(unit, np.array([2]))
    assert (drawn.tokens.tolist(), drawn.rows.tolist()) == ([8, 9, 10], [2])


def test_rows_and_files_without_tokens_are_no_documents(tmp_path: Path) -> None:
    empty = pa.array([], pa.list_(pa.int32()))
    assert read(table(tmp_path / "a.parquet", input_ids=empty, labels=empty)) == []
    rows = pa.array([[], [1, 2], []], pa.list_(pa.int32()))
    assert read(table(tmp_path / "b.parquet", input_ids=rows, labels=rows)) == [([1, 2], [1, 1])]
    assert read(write_indexed(tmp_path / "c", [([], []), ([1], [0]), ([], [])])) == [([1], [0])]
    assert read(write_indexed(tmp_path / "d", [([], [])])) == []


def test_a_row_group_of_all_rows_is_read_in_batches_and_links_are_followed(tmp_path: Path) -> None:
    documents = [([number] * 700, [1] * 700) for number in range(2000)]
    whole = table(tmp_path / "whole.parquet", input_ids=[t for t, _ in documents], labels=[t for t, _ in documents])
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "a.parquet").symlink_to(whole)
    (unit,) = open_data(folder, Reading()).units
    batches = list(read_unit(unit))
    assert len(batches) > 1
    assert [document for batch in batches for document in _split(batch)] == documents
