"""A batch of source rows → documents, the rows about them, and rejects.

In: a batch of rows, the rules, a renderer. Out: `Made`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.building.recipe import Made
from spanloom.conversations.runs import document_id
from spanloom.conversations.source.folder import BATCH_BYTES, SourceRows, SourceShard, runs_within
from spanloom.conversations.source.rejects import Reason, Reject, RowRefusedError, too_long
from spanloom.conversations.source.structure import LabelledConversation, row_id
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import (
    CUTTING,
    DIVIDED,
    TRUNCATED,
    Cut,
    CutConversation,
    CutRules,
    cut_conversation,
)
from spanloom.families.harmony.contract.profile import Profile, profile_of_source
from spanloom.families.harmony.render.audit import Auditor
from spanloom.families.harmony.render.official import RenderedBatch
from spanloom.families.harmony.render.routes import Renderer
from spanloom.families.harmony.tokenizer import START
from spanloom.records.parquet import byte_lengths
from spanloom.records.strict_json import count_quotes
from spanloom.supervision import SPAN_CONTEXT, TokenDocuments, joined

GENERATION_PROMPT_TOKENS = 2
"""`<|start|>assistant`, after which a server samples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _CheckedRow:
    """An accepted row: its number in the batch, its id, its documents; `cut`: how it was cut, or None; `weight` of the
    conversation; `untrained`: how many of its messages are marked as such."""

    index: int
    id: str
    documents: Sequence[LabelledConversation]
    cut: CutConversation | None
    weight: float
    untrained: int


def render_rows(
    shard: SourceShard,
    batch: SourceRows,
    renderer: Renderer,
    *,
    rules: CutRules | None = None,
    token_budget: int | None = None,
    auditor: Auditor | None = None,
    longest: int | None = None,
) -> Made:
    """Checks and renders a batch of source rows. Invalid rows are returned as rejects, in source order.

    If `rules` cut rows, the whole row is refused if the renderer refuses one of its documents, or one has more tokens
    than `longest`.
    """
    profile = profile_of_source(shard.format)
    rejects: list[Reject] = []

    def reject(index: int, row_id: str | None, reason: Reason, detail: str) -> None:
        row, name = batch.first_row + index, profile.source.id_column
        rejects.append(Reject(shard=shard.index, row=row, id=row_id, reason=reason, detail=detail, id_column=name))

    checked = list(_checked_rows(batch, profile, rules, reject))
    documents = [document for row in checked for document in row.documents]
    owner = [number for number, row in enumerate(checked) for _ in row.documents]

    places = [(batch.first_row + checked[number].index, checked[number].id) for number in owner]
    cuts = [cut for row in checked if row.cut for cut in row.cut.cuts]
    # A document has at most as many characters as its row's JSON, so this limits the size of each call of the renderer.
    sizes = byte_lengths(batch.messages_json)
    pieces, audited = [], 0
    for first, last in runs_within([sizes[checked[number].index] for number in owner], BATCH_BYTES):
        piece = renderer.render(documents[first:last])
        if auditor is not None:
            audited += auditor.audit(shard.index, places[first:last], documents[first:last], piece, cuts[first:last])
        pieces.append((first, piece))
    rendered = _joined(pieces)
    refused: dict[int, str] = {}
    for position, detail in rendered.refused:
        refused.setdefault(owner[position], detail)
    for number, detail in refused.items():
        reject(checked[number].index, checked[number].id, Reason.RENDERER_REFUSED, detail)
    if longest is not None:
        lengths = zip((owner[position] for position in rendered.kept), rendered.documents.lengths.tolist(), strict=True)
        long = {number: size for number, size in sorted(lengths, key=itemgetter(1)) if size > longest}
        for number in long.keys() - refused.keys():
            detail = refused[number] = too_long(long[number], longest)
            reject(checked[number].index, checked[number].id, Reason.TOO_LONG, detail)
    rejects.sort(key=lambda refusal: refusal.row)

    tokens, kept, rows_read = rendered.documents, rendered.kept, len(batch)
    if refused and (rules is not None or longest is not None):
        taken = [place for place, position in enumerate(kept) if owner[position] not in refused]
        tokens, kept = tokens.taken(np.array(taken, dtype=np.int64)), [kept[place] for place in taken]
    if token_budget is not None and tokens.tokens.size > token_budget:
        fitting = int(np.searchsorted(np.cumsum(tokens.lengths, dtype=np.int64), token_budget, side="right"))
        crossing = owner[kept[fitting]]
        fitting = next(place for place, position in enumerate(kept) if owner[position] == crossing)
        rows_read = checked[crossing].index
        tokens, kept = tokens.between(0, fitting), kept[:fitting]
        rejects = [refusal for refusal in rejects if refusal.row < batch.first_row + rows_read]
    if rules is not None and rules.mask_generation_prompt:
        _mask_generation_prompts(tokens, [cuts[position] for position in kept])
    of_kept = [checked[owner[position]] for position in kept]
    rows = np.array([row.index for row in of_kept], dtype=np.int64) + batch.first_row
    cutting = _cutting(of_kept, [cuts[position] for position in kept], tokens.lengths) if rules else {}
    return Made(
        rows_read=rows_read,
        documents=tokens,
        about=pa.RecordBatch.from_pydict({"row": rows, **_about(batch, profile, of_kept)}, schema=profile.about),
        refused=rejects,
        counts={
            "audit": Counter(fallback_rows=rendered.fallbacks, audited_rows=audited),
            "cutting": Counter(cutting),
        },
        whole=rows_read == len(batch),
    )


def _mask_generation_prompts(documents: TokenDocuments, cuts: Sequence[Cut]) -> None:
    """Masks the first two tokens of each trained run, `<|start|>assistant`, in place.

    `cuts`: the cut of each document.
    """
    starts = np.flatnonzero(documents.tokens == START)
    firsts = np.cumsum(documents.lengths, dtype=np.int64) - documents.lengths
    messages = np.searchsorted(starts, firsts)
    runs = [message + place for message, cut in zip(messages.tolist(), cuts, strict=True) for place, _ in cut.begins]
    for values in (documents.loss_mask, documents.span_id):
        for token in range(GENERATION_PROMPT_TOKENS):
            values[starts[runs] + token] = SPAN_CONTEXT


def _joined(pieces: Sequence[tuple[int, RenderedBatch]]) -> RenderedBatch:
    """Joins renders of consecutive conversations, each with the index of its first one."""
    if len(pieces) == 1:
        return pieces[0][1]
    return RenderedBatch(
        documents=joined([piece.documents for _, piece in pieces]),
        kept=[first + index for first, piece in pieces for index in piece.kept],
        refused=[(first + index, detail) for first, piece in pieces for index, detail in piece.refused],
        fallbacks=sum(piece.fallbacks for _, piece in pieces),
    )


def _checked_rows(
    batch: SourceRows,
    profile: Profile,
    rules: CutRules | None,
    reject: Callable[[int, str | None, Reason, str], None],
) -> Iterator[_CheckedRow]:
    """The accepted rows of a batch, with their documents; the others go to `reject`."""
    nothing: list[str | None] = [None] * len(batch)
    ids = batch.columns.get(profile.source.id_column, nothing)
    metadata_column = batch.columns.get("metadata_json", nothing)
    texts = zip(batch.messages_json.to_pylist(), count_quotes(batch.messages_json), strict=True)
    for index, (messages_json, quotes) in enumerate(texts):
        name = ids[index]
        try:
            if index in batch.undecodable:
                raise RowRefusedError(Reason.NOT_UTF8, "a column of this row is not UTF-8")
            name = row_id(name, metadata_column[index], profile.source.id_column)
            conversation = parse_conversation(messages_json, quotes, profile)
            cut = cut_conversation(conversation, rules) if rules else None
            if cut is not None and not cut.cuts:
                raise RowRefusedError(Reason.NOTHING_TRAINED, "no message of it is of a span that is trained")
        except RowRefusedError as refusal:
            reject(index, name, refusal.reason, refusal.detail)
            continue
        documents = [conversation] if cut is None else [document.shown for document in cut.cuts]
        yield _CheckedRow(
            index=index,
            id=name,
            documents=documents,
            cut=cut,
            weight=conversation.weight,
            untrained=conversation.untrained,
        )


def _about(batch: SourceRows, profile: Profile, of_documents: Sequence[_CheckedRow]) -> dict[str, list[Any]]:
    """The profile's columns of the row table, without `row`; `of_documents`: the row of each document."""
    nothing: list[str | None] = [None] * len(batch)
    if not profile.cuts:
        return {
            profile.source.id_column: [row.id for row in of_documents],
            **{
                name: [batch.columns.get(name, nothing)[row.index] for row in of_documents]
                for name in profile.source.metadata_columns
            },
        }
    cuts = [cut for row, _ in groupby(of_documents) if row.cut for cut in row.cut.cuts]
    return {
        "id": [document_id(row.id, cut.number) for row, cut in zip(of_documents, cuts, strict=True)],
        "conversation": [row.id for row in of_documents],
        "cut": [cut.number for cut in cuts],
        "runs": [cut.runs for cut in cuts],
        "weight": [row.weight for row in of_documents],
    }


def _cutting(
    of_documents: Sequence[_CheckedRow], cuts: Sequence[Cut], lengths: npt.NDArray[np.int32]
) -> dict[str, int]:
    """The counts of `CUTTING`, `DIVIDED` and `TRUNCATED` over the rows of these documents. `lengths` int32 [N]."""
    rows = [row for row, _ in groupby(of_documents)]
    divided = np.array([cut.divided for cut in cuts], dtype=np.bool_)
    counts = (
        len(rows),
        sum(row.cut.runs for row in rows if row.cut),
        len(of_documents),
        sum(row.cut.left_out for row in rows if row.cut),
        sum(row.untrained for row in rows),
        int(divided.sum()),
        int(lengths[divided].sum()),
    )
    truncated = sum(len(cut.shown.truncated) for cut in cuts)
    return {**dict(zip((*CUTTING, *DIVIDED), counts, strict=True)), **({TRUNCATED: truncated} if truncated else {})}
