"""A batch of rows of a source → documents with their rows, and the refused rows, in pieces of bounded size."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from spanloom.building.recipe import Made
from spanloom.conversations.source.folder import SourceRows, SourceShard
from spanloom.conversations.source.rejects import Reason, Reject, RowRefusedError, too_long
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
from spanloom.machine import give_back_freed_memory
from spanloom.supervision import TokenDocuments, closed_documents

AUDITED_FIRST, AUDITED_EVERY = 4, 64
"""Documents that the tokenizers package checks: the first `AUDITED_FIRST` of a shard, and one in `AUDITED_EVERY`."""

PROOF = "proof"
"""The group of counts that says how conversations were proven."""

MOST_TOKENS = 4 << 20
"""Tokens of documents that are held at once, besides those of one conversation: then they are handed on."""


def made_rows(
    shard: SourceShard,
    rows: SourceRows,
    ingredients: Ingredients,
    eod: int,
    token_budget: int | None,
    longest: int | None = None,
) -> Iterator[Made]:
    """The documents of these rows. `eod`: the token that closes each. `token_budget`: the row that would exceed it, and
    all later ones, are left out; `longest`: a row with a document of more tokens is left out."""
    held = _Held(ingredients, eod, begins_shard=rows.first_row == 0)
    tokens = 0

    def refuse(row: int, name: str | None, kind: str, detail: str, run: int | None, remedy: str | None) -> None:
        more = {"run": run, "remedy": remedy}
        column = shard.format.id_column
        held.refused.append(
            Reject(shard=shard.index, row=row, id=name, reason=kind, detail=detail, id_column=column, more=more)
        )
        held.read += 1

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
            continue
        if isinstance(made, Refusal):
            refuse(row, name, made.kind, made.message, made.run, made.remedy)
            continue
        most = max((document.tokens.size + 1 for document in made.documents), default=0)
        if longest is not None and most > longest:
            refuse(row, name, str(Reason.TOO_LONG), too_long(most, longest), None, None)
            continue
        size = sum(document.tokens.size + 1 for document in made.documents)
        tokens += size
        if token_budget is not None and tokens > token_budget:
            yield from held.made(whole=False)
            return
        held.add(made, size)
        del made  # not beside the documents of the next row
        if held.tokens >= MOST_TOKENS:
            yield from held.made()
            give_back_freed_memory()  # what is left between others of a long conversation, else it adds up
    yield from held.made()


class _Held:
    """What was made of rows and is not handed on yet. `read`: how many rows; `tokens`: of their documents."""

    def __init__(self, ingredients: Ingredients, eod: int, *, begins_shard: bool) -> None:
        self._ingredients, self._eod = ingredients, eod
        self._texts = 0 if begins_shard else AUDITED_FIRST  # of the batch, which decides what is audited
        self._empty()

    def _empty(self) -> None:
        self.read = self.tokens = self._audited = 0
        self.refused: list[Reject] = []
        self._documents: list[MadeDocument] = []
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))

    def add(self, made: MadeConversation, tokens: int) -> None:
        """Adds the documents of the next row."""
        self.read += 1
        self.tokens += tokens
        self._documents += made.documents
        self._counts.update(_counts(made))
        self._audit(made.joined)

    def _audit(self, texts: Sequence[bytes]) -> None:
        """Raises AuditError if fast encoder and tokenizers package differ."""
        encoder = self._ingredients.model.encoder
        if not encoder.fast:
            return
        chosen = [text for at, text in enumerate(texts, self._texts) if at < AUDITED_FIRST or at % AUDITED_EVERY == 0]
        if chosen:
            encoder.audit([text.decode() for text in chosen])
        self._texts += len(texts)
        self._audited += len(chosen)

    def made(self, *, whole: bool = True) -> Iterator[Made]:
        """Hands on what is held: the documents of a long conversation in pieces, the counts with the first."""
        documents, rows_read, refused = deque(self._documents), self.read, self.refused
        counts = {
            "cutting": self._counts,
            "audit": Counter(audited_rows=self._audited),
            PROOF: self._ingredients.prover.take_counts(),
        }
        self._empty()
        while True:
            piece = _first(documents)
            yield Made(
                rows_read=rows_read,
                documents=_joined(piece, self._eod),
                about=pa.RecordBatch.from_arrays(
                    [pa.array([document.row[field.name] for document in piece], field.type) for field in ABOUT_SCHEMA],
                    schema=ABOUT_SCHEMA,
                ),
                refused=refused,
                counts=counts,
                whole=whole or bool(documents),
            )
            if not documents:
                return
            rows_read, refused, counts = 0, [], {}


def _first(documents: deque[MadeDocument]) -> list[MadeDocument]:
    """Takes the first documents, of about `MOST_TOKENS` tokens."""
    taken: list[MadeDocument] = []
    tokens = 0
    while documents and tokens < MOST_TOKENS:
        taken.append(documents.popleft())
        tokens += taken[-1].tokens.size
    return taken


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
