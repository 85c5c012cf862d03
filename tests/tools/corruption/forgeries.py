"""Consistent forgeries: datasets that are false, with every hash, size, count and total made to fit.

In: a folder with a dataset and its source. Out: the dataset changed. Only what the numbers are bound to outside of the
dataset, its tokens and its source, can tell. `corruption.harmony` has more, and so has `families/harmony`, whose
`test_forgeries.py` also says what is found.
"""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tools.corruption.dataset import Dataset, Document, change, read, write_manifest
from tools.corruption.trial import ROOT, SOURCE, Edit

Change = Callable[[Dataset], None]
EOD = 199999


def forgeries() -> list[Edit]:
    """All of them, each with `consistent` set."""
    edits = [
        Edit(kind="forgery", name=name, apply=_applied(change), consistent=True, why=WHY.get(name))
        for name, change in CHANGES.items()
    ]
    edits += [
        Edit(kind="forgery of the source", name=name, apply=change, consistent=True)
        for name, change in SOURCE_CHANGES.items()
    ]
    return edits


def _applied(change: Change) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        dataset = read(folder / ROOT)
        change(dataset)
        dataset.write()

    return apply


def _last(dataset: Dataset, shard: int = 1) -> tuple[list[Document], int]:
    """The list that holds the shard's last source row, and that row."""
    lists = [dataset.documents[split, shard] for split in ("train", "valid")]
    documents = max(lists, key=lambda documents: documents[-1].about["row"])
    return documents, documents[-1].about["row"]


def _row_missing_in_the_middle(dataset: Dataset) -> None:
    dataset.documents["train", 1].pop(1)
    dataset.shards[1]["rows_read"] -= 1


def _rows_missing_and_renumbered(dataset: Dataset) -> None:
    """A document taken out, all later rows of the shard numbered down, as if the source had never held it."""
    gone = dataset.documents["train", 1].pop(1).about["row"]
    for split in ("train", "valid"):
        for document in dataset.documents[split, 1]:
            document.about["row"] -= document.about["row"] > gone
    dataset.shards[1]["rows_read"] -= 1


def _document_twice(dataset: Dataset) -> None:
    documents, row = _last(dataset)
    twice = copy.deepcopy(documents[-1])
    twice.about["row"] = row + 1
    documents.append(twice)
    dataset.shards[1]["rows_read"] += 1


def _document_twice_under_another_row(dataset: Dataset) -> None:
    """One document replaced by a copy of its neighbour, its row number kept."""
    first, second = dataset.documents["train", 1][:2]
    row = second.about["row"]
    dataset.documents["train", 1][1] = copy.deepcopy(first)
    dataset.documents["train", 1][1].about["row"] = row


def _bad_row_forgotten(dataset: Dataset) -> None:
    dataset.rejects[0].pop()
    dataset.shards[0]["rows_read"] -= 1


def _bad_rows_forgotten(dataset: Dataset) -> None:
    dataset.shards[0]["rows_read"] -= len(dataset.rejects[0])
    dataset.rejects[0].clear()


def _span_names_swapped(dataset: Dataset) -> None:
    names = dataset.manifest["content"]["span_names"]
    names[1], names[2] = names[2], names[1]
    dataset.span_names = list(names)


def _span_names_swapped_in_the_manifest_alone(dataset: Dataset) -> None:
    """Files and rows as they are: only what the manifest calls the spans is turned round."""
    dataset.rows_named = list(dataset.span_names)
    _span_names_swapped(dataset)


def _span_names_other(dataset: Dataset) -> None:
    dataset.manifest["content"]["span_names"] = dataset.span_names = ["context", "thinking", "answer"]


def _spans_swapped(dataset: Dataset) -> None:
    for documents in dataset.documents.values():
        for document in documents:
            document.span = np.array([0, 2, 1], dtype=np.uint8)[document.span]


def _span_off(dataset: Dataset) -> None:
    document = _with_both(dataset)
    document.span[document.span == 1] = 0
    document.lossmask = (document.span > 0).astype(np.uint8)


def _mask_off(dataset: Dataset) -> None:
    _with_both(dataset).lossmask[:] = 0


def _label_of_the_last_position(dataset: Dataset) -> None:
    document = _with_both(dataset)
    document.span[-1] = document.lossmask[-1] = 1


def _labels_not_shifted(dataset: Dataset) -> None:
    for documents in dataset.documents.values():
        for document in documents:
            for name in ("lossmask", "span"):
                values = getattr(document, name)
                setattr(document, name, np.concatenate([values[:1] * 0, values[:-1]]))


def _with_both(dataset: Dataset) -> Document:
    """A document with reasoning and answer."""
    return next(d for d in dataset.documents["train", 1] if (d.span == 1).any() and (d.span == 2).any())


def _documents_joined(dataset: Dataset) -> None:
    first, second = dataset.documents["train", 1][:2]
    for name in ("tokens", "lossmask", "span"):
        setattr(first, name, np.concatenate([getattr(first, name)[:-1], getattr(second, name)]))
    dataset.documents["train", 1].pop(1)
    dataset.shards[1]["rows_read"] -= 1


def _ids_exchanged(dataset: Dataset) -> None:
    first, second = (document.about for document in dataset.documents["train", 1][:2])
    first["synth_id"], second["synth_id"] = second["synth_id"], first["synth_id"]


def _moved_to_the_other_split(dataset: Dataset) -> None:
    moved = dataset.documents["valid", 1].pop()
    dataset.documents["train", 1].append(moved)
    dataset.documents["train", 1].sort(key=lambda document: document.about["row"])


def _in_both_splits(dataset: Dataset) -> None:
    dataset.documents["train", 1].append(copy.deepcopy(dataset.documents["valid", 1][-1]))
    dataset.documents["train", 1].sort(key=lambda document: document.about["row"])
    dataset.shards[1]["rows_read"] += 1


def _valid_dropped(dataset: Dataset) -> None:
    for shard in (0, 1):
        dataset.shards[shard]["rows_read"] -= len(dataset.documents["valid", shard])
        dataset.documents["valid", shard].clear()


def _shards_exchanged(dataset: Dataset) -> None:
    for split in ("train", "valid"):
        documents = dataset.documents
        documents[split, 0], documents[split, 1] = documents[split, 1], documents[split, 0]
    dataset.rejects[0], dataset.rejects[1] = dataset.rejects[1], dataset.rejects[0]
    first, second = dataset.shards
    first["rows_read"], second["rows_read"] = second["rows_read"], first["rows_read"]


def _within_content(path: str, *, value: Any) -> Change:
    """Another value in the manifest, where the files do not say otherwise."""
    return lambda dataset: change(dataset.manifest["content"], path, value)


def _both(*changes: Change) -> Change:
    def change(dataset: Dataset) -> None:
        for one in changes:
            one(dataset)

    return change


_OTHER_SHA = "ab" * 32

CHANGES: dict[str, Change] = {
    "a source row in the middle is missing, rows_read one less": _row_missing_in_the_middle,
    "a source row is missing, all later rows renumbered": _rows_missing_and_renumbered,
    "the last document twice, as one row more": _document_twice,
    "a document in place of its neighbour, under its row": _document_twice_under_another_row,
    "a rejected row forgotten, rows_read one less": _bad_row_forgotten,
    "all rejected rows forgotten, no rejects file": _bad_rows_forgotten,
    "span names swapped": _span_names_swapped,
    "span names swapped in the manifest, not in rows.parquet": _span_names_swapped_in_the_manifest_alone,
    "other span names": _span_names_other,
    "span ids 1 and 2 swapped in all files": _spans_swapped,
    "reasoning of one document without loss": _span_off,
    "loss mask of one document all 0": _mask_off,
    "a label at the last position": _label_of_the_last_position,
    "labels not shifted": _labels_not_shifted,
    "two documents joined into one": _documents_joined,
    "ids of two documents exchanged": _ids_exchanged,
    "a document of valid moved to train": _moved_to_the_other_split,
    "a document of valid also in train": _in_both_splits,
    "valid left out, rows_read less": _valid_dropped,
    "two shards exchanged": _shards_exchanged,
    "another family": _within_content("family", value="harmony_chat"),
    "another git SHA": _within_content("git_sha", value="1" * 40),
    "valid_fraction and threshold other, config not": _both(
        _within_content("split.valid_fraction", value=0.49999),
        _within_content("split.threshold", value=str(int(0.49999 * 2**64))),
    ),
    "valid_fraction, threshold and config other, no id in between": _both(
        _within_content("split.valid_fraction", value=0.49999),
        _within_content("split.threshold", value="9223187569414038712"),  # int(Decimal("0.49999") * 2**64)
        _within_content("config.valid_fraction", value=0.49999),
    ),
    "config: a cap that was not there": _within_content("config.caps.max_rows", value=1000),
    "input: another sha256 of a shard": _within_content("input.shards.0.sha256", value=_OTHER_SHA),
    "input: a shard less in the list": lambda dataset: dataset.manifest["content"]["input"]["shards"].pop(),
    "input: another manifest_sha256": _within_content("input.manifest_sha256", value=_OTHER_SHA),
    "input: another name of the data": _within_content("input.dataset", value="PleIAs/SYNTH"),
    "input: a licence that was not there": _within_content("input.license", value="CC0-1.0"),
    "renderer: another version": _within_content("renderer.version", value="openai-harmony 0.0.7"),
    "renderer: one audited row less": _within_content("renderer.audited_rows", value=15),
    "renderer: fallback rows that were none": _within_content("renderer.fallback_rows", value=3),
    "no change: written back as it was": lambda _: None,
}

WHY = {
    "no change: written back as it was": "nothing is false",
    "another git SHA": "which code wrote a dataset cannot be distinguished from the dataset",
    "valid_fraction, threshold and config other, no id in between": "the rule gives the very same split",
    "config: a cap that was not there": "a cap that none of the rows reached decides nothing",
    "renderer: one audited row less": "how many rows were rendered twice leaves no trace",
    "renderer: fallback rows that were none": "how a row was rendered leaves no trace in its tokens",
}
"""Forgeries that nothing in the dataset and its source contradicts."""


# --- The source ------------------------------------------------------------------------------------------------------


def _source_changed(*, seal_source: bool, seal_dataset: bool) -> Callable[[Path], None]:
    """One answer of a source shard is another. The manifest of the source fits it or not, the dataset's too."""

    def apply(folder: Path) -> None:
        source, shard = folder / SOURCE, folder / SOURCE / "synth_harmony_shard_01.parquet"
        table = pq.read_table(shard)
        messages = table.column("messages_json").to_pylist()
        messages[0] = messages[0].replace("Answer", "Reply")
        column = table.schema.get_field_index("messages_json")
        pq.write_table(table.set_column(column, "messages_json", pa.array(messages, pa.string())), shard)
        if not seal_source:
            return
        data = shard.read_bytes()
        entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        said = json.loads((source / "manifest.json").read_text())
        said["storage"]["shards"][1] |= entry
        (source / "manifest.json").write_text(json.dumps(said, indent=2))
        if seal_dataset:
            manifest = json.loads((folder / ROOT / "manifest.json").read_text())
            sha256 = hashlib.sha256((source / "manifest.json").read_bytes()).hexdigest()
            manifest["content"]["input"]["manifest_sha256"] = sha256
            manifest["content"]["input"]["shards"][1] |= entry
            write_manifest(folder / ROOT, manifest)

    return apply


def _source_metadata_changed(folder: Path) -> None:
    """A shard of the same size with another language in a row, as in place edited; its manifest is as it was."""
    shard = folder / SOURCE / "synth_harmony_shard_01.parquet"
    table = pq.read_table(shard)
    column = table.schema.get_field_index("language")
    pq.write_table(table.set_column(column, "language", pa.array(["xx"] * table.num_rows, pa.string())), shard)


SOURCE_CHANGES: dict[str, Callable[[Path], None]] = {
    "a source row changed, no manifest fits": _source_changed(seal_source=False, seal_dataset=False),
    "a source row changed, the source's manifest fits": _source_changed(seal_source=True, seal_dataset=False),
    "a source row changed, both manifests fit": _source_changed(seal_source=True, seal_dataset=True),
    "languages of the source changed, no manifest fits": _source_metadata_changed,
}
