"""What must hold in every document of a dataset for a model, checked from the disk's arrays.

In: consecutive documents as they are on disk, the rows that describe them. Out: findings with sequence and offset. This
code is independent of the code that proves, masks and shifts.

    token-aligned spans of a document    0 … 0   1 1 2 2   0 … 0   3 3   0 … 0   EOD
    on disk, shifted to the labels       0 … 1   1 2 2 0   0 … 3   3 0   0 …     0
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.families.models.probe.frames import ModelFrames
from spanloom.families.models.verify.frames import Columns, check_frames
from spanloom.findings import Finding

BOUNDARIES = frozenset({"joined", "served", "declared"})
LISTS = ("variables", "boundary", "turn_end", "trimmed")


def check_documents(documents: SpanDocuments, content: Content) -> Iterator[Finding]:
    """Checks EOD, ids, values, mask = (span > 0), the shift, trained spans, and at least one trained token each."""
    yield from documents.check_tokens(content)
    unknown = np.ones(256, np.bool_)
    unknown[0] = False
    unknown[: len(content.span_names)] &= [name not in content.config["train"] for name in content.span_names]
    if unknown[: documents.span.max(initial=0) + 1].any():  # else none is: without looking at each
        untrained = np.flatnonzero(unknown[documents.span])
        yield from documents.at("values", "a span that is not trained or does not exist", untrained)
    yield from documents.check_labels("trained")
    yield from documents.check_trained("the document has no trained token")


def check_rows(
    documents: SpanDocuments,
    rows: pa.Table,
    digests: npt.NDArray[np.uint64],
    content: Content,
    frames: ModelFrames | None,
    *,
    earlier: bool,
) -> Iterator[Finding]:
    """Checks the rows that describe these documents: numbering, token counts, runs, weights, the split; and with
    `frames` that what is trained is what the model samples."""
    yield from documents.check_rows(rows, documents.counted(content.span_names))
    before: tuple[int, int, str] | None = None
    columns: Columns = rows.select(["row", "cut", "id", "conversation", "runs", "weight", "run", *LISTS]).to_pydict()
    if frames is not None:
        yield from check_frames(frames, documents, columns, content, earlier=earlier)
    for at, values in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(columns, values, strict=True))
        for message in _wrong_row(row, before, content):
            yield documents.finding("rows", message, at)
        before = row["row"], row["cut"], row["conversation"]
    yield from _check_eods(documents, [ends or [] for ends in columns["turn_end"]], content)
    yield from documents.check_split(rows.column("conversation"), digests, content)


def _check_eods(documents: SpanDocuments, ends: Sequence[Sequence[str | None]], content: Content) -> Iterator[Finding]:
    """Checks that no document holds the EOD in its middle. `ends`: what ends the turns of each.

    If the template ends turns with it, this cannot be seen from the tokens; the comparison with the source tells.
    """
    eod = content.config["eod"]
    inside, number = documents.inner_eods(eod["id"])
    writes = np.array([eod["text"] in of_one or None in of_one for of_one in ends], dtype=np.bool_)
    yield from documents.at("eod", "EOD inside a document", inside[~writes[number]])


def _wrong_row(row: dict[str, Any], before: tuple[int, int, str] | None, content: Content) -> Iterator[str]:
    """What is wrong in a row, by itself or compared with the row before it."""
    name, conversation, run = row["id"], row["conversation"], row["run"]
    if None in map(row.get, ("id", "conversation", "run", *LISTS)):
        yield "a column is null"
        return
    if name != f"{conversation}#{row['cut']}":
        yield f"id is {name!r}, document {row['cut']} of {conversation!r} has another"
    if before is not None and (row["row"], row["cut"]) <= before[:2]:
        yield "the documents do not follow the order of the source rows"
    if before is not None and row["row"] == before[0] and conversation != before[2]:
        yield f"documents of row {row['row']} are of several conversations"
    if not 0 < row["weight"] < float("inf"):
        yield f"the weight {row['weight']} is not a number above 0"
    if content.config.get("turns") == "last" and row["cut"]:
        yield f"it is document {row['cut']} of a conversation that has one"
    if {*map(len, map(row.__getitem__, ("run", *LISTS)))} != {row["runs"]} or not row["runs"]:
        yield f"runs is {row['runs']}, but the lists have other lengths"
    if any(following <= place for place, following in pairwise(run)):
        yield f"the runs {run} are not in order"
    if unknown := set(row["boundary"]) - BOUNDARIES:
        yield f"boundary is {', '.join(sorted(unknown))}"
    if content.config["boundary"] == "refuse" and "served" in row["boundary"]:
        yield "boundary is served, but the options refuse that"
    if content.config["emission"] is None and "declared" in row["boundary"]:
        yield "boundary is declared, but there is no emission"
    if unknown := set(row["turn_end"]) - {None, *content.config["stops"]}:
        yield f"the turn ends in {', '.join(sorted(unknown))}, which is not a stop token"
