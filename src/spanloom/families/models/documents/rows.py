"""A batch of rows of a source → documents with their rows, and the refused rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from spanloom.building.recipe import Made
from spanloom.conversations.source.folder import SourceRows, SourceShard
from spanloom.conversations.source.rejects import Reason, Reject, RowRefusedError
from spanloom.conversations.source.structure import row_id
from spanloom.families.models.documents.made import (
    ABOUT_SCHEMA,
    COUNTED,
    MadeConversation,
    MadeDocument,
    made_conversation,
)
from spanloom.families.models.documents.rules import Ingredients
from spanloom.families.models.prove.refusals import Refusal
from spanloom.families.models.source.rows import read_row
from spanloom.supervision import TokenDocuments, closed_documents

AUDITED_FIRST, AUDITED_EVERY = 4, 64
"""Documents of a batch that the tokenizers package checks: the first `AUDITED_FIRST`, then one in `AUDITED_EVERY`."""


def made_rows(
    shard: SourceShard, rows: SourceRows, ingredients: Ingredients, eod: int, token_budget: int | None
) -> Made:
    """The documents of these rows. `eod`: the token that closes each. `token_budget`: the row that would exceed it, and
    all later ones, are left out."""
    counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    refused: list[Reject] = []
    documents: list[MadeDocument] = []
    joined: list[str] = []
    read = tokens = 0

    def refuse(row: int, name: str | None, kind: str, detail: str, run: int | None, remedy: str | None) -> None:
        more = {"run": run, "remedy": remedy}
        column = shard.format.id_column
        refused.append(
            Reject(shard=shard.index, row=row, id=name, reason=kind, detail=detail, id_column=column, more=more)
        )

    for row, messages_json, column, metadata in _rows(rows, shard.format.id_column):
        name: str | None = None
        try:
            if row - rows.first_row in rows.undecodable:
                raise RowRefusedError(Reason.NOT_UTF8, "a column is not UTF-8")
            name = row_id(column, metadata, shard.format.id_column)
            made = made_conversation(
                row, read_row(messages_json, shard.format, ingredients.words, name=name), ingredients
            )
        except RowRefusedError as fault:
            refuse(row, name, str(fault.reason), fault.detail, None, fault.remedy)
            read += 1
            continue
        if isinstance(made, Refusal):
            refuse(row, name, made.kind, made.message, made.run, made.remedy)
            read += 1
            continue
        tokens += sum(document.tokens.size + 1 for document in made.documents)
        if token_budget is not None and tokens > token_budget:
            break
        read += 1
        documents += made.documents
        joined += made.joined
        counts.update(_counts(made))
    return Made(
        rows_read=read,
        documents=_joined(documents, eod),
        about=pa.RecordBatch.from_arrays(
            [pa.array([document.row[field.name] for document in documents], field.type) for field in ABOUT_SCHEMA],
            schema=ABOUT_SCHEMA,
        ),
        refused=refused,
        counts={"cutting": counts, "audit": Counter(audited_rows=_audit(joined, ingredients))},
        whole=read == len(rows),
    )


def _counts(made: MadeConversation) -> dict[str, int]:
    return {
        "conversations": 1,
        "runs": made.runs,
        "documents": len(made.documents),
        "left_out_messages": made.left_out,
        "declared": made.declared,
        "untrained": made.untrained,
        **made.counted,
    }


def _joined(documents: Sequence[MadeDocument], eod: int) -> TokenDocuments:
    return closed_documents(
        [document.tokens for document in documents],
        [document.mask for document in documents],
        [document.spans for document in documents],
        eod,
    )


def _rows(rows: SourceRows, id_column: str) -> Iterator[tuple[int, Any, str | None, str | None]]:
    nothing: list[str | None] = [None] * len(rows)
    ids, metadata = rows.columns.get(id_column, nothing), rows.columns.get("metadata_json", nothing)
    for at, text in enumerate(rows.messages_json.to_pylist()):
        yield rows.first_row + at, text, ids[at], metadata[at]


def _audit(texts: Sequence[str], ingredients: Ingredients) -> int:
    """Returns the number of audited texts. Raises AuditError if fast encoder and tokenizers package differ."""
    if not ingredients.model.encoder.fast:
        return 0
    chosen = [text for at, text in enumerate(texts) if at < AUDITED_FIRST or at % AUDITED_EVERY == 0]
    ingredients.model.encoder.audit(chosen)
    return len(chosen)
