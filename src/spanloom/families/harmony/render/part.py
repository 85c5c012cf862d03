"""One part of a shard, rendered in one worker process: source rows → documents, ids and rejects on disk.

In: a `PartJob`, which names consecutive row groups and the rules. Out: the part's files and its summary.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom import workers
from spanloom.conversations.runs import document_id
from spanloom.conversations.source.folder import (
    BATCH_BYTES,
    Part,
    SourceRows,
    SourceShard,
    check_still_hashed,
    read_rows,
    runs_within,
)
from spanloom.conversations.source.rejects import Reason, Reject, RowRefusedError
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
from spanloom.families.harmony.render.artifact import PartWriter, files_stand, part_name, read_sidecar
from spanloom.families.harmony.render.audit import Auditor
from spanloom.families.harmony.render.official import RenderedBatch
from spanloom.families.harmony.render.routes import LIBRARIES, Renderer, load_renderer, renderer_version
from spanloom.families.harmony.render.text_encoder import FEW_CHARACTERS
from spanloom.families.harmony.tokenizer import START
from spanloom.provenance import part_key
from spanloom.records.parquet import byte_lengths
from spanloom.records.strict_json import count_quotes
from spanloom.supervision import SPAN_CONTEXT, TokenDocuments, joined, tokens_per_span
from spanloom.tokenizers.o200k.asset import ASSET_SHA256

GENERATION_PROMPT_TOKENS = 2
"""`<|start|>assistant`, after which a server samples."""


@dataclass(frozen=True, kw_only=True)
class PartJob:
    """All that a worker needs to render one part.

    Every `audit_stride`-th row is audited (0: none), up to `audit_share` of the tokens or `audit_floor` tokens; the
    first row of each shape of conversation is audited in addition.
    `reject_limit` is the shard's: a part that alone has more rejects stops there and is not kept.
    `rules`: None if the profile cuts no rows. `token_budget`: tokens that the caps leave for this part; the row that
    would exceed it and all later rows are left out.
    """

    shard: SourceShard
    part: Part
    rendered: Path
    ids: Path
    asset: Path
    renderer: str
    rules: CutRules | None
    audit_stride: int
    audit_share: float
    audit_floor: int
    reject_limit: int
    token_budget: int | None
    resume: bool

    @property
    def key(self) -> str:
        """Hash of everything that decides the part's bytes: an existing part with the same key can be reused."""
        return part_key(
            "harmony",
            *LIBRARIES,
            shard={"index": self.shard.index, "sha256": self.shard.sha256},
            part=asdict(self.part),
            tokenizer_sha256=ASSET_SHA256,
            renderer=renderer_version(self.renderer),
            rules=self.rules and self.rules.as_dict(),
            audit=[self.audit_stride, self.audit_share, self.audit_floor],
            token_budget=self.token_budget,
        )


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """The result of a batch of `rows_read` source rows: the documents of the accepted rows, and the rejects.

    rows     int64 [N]  source row of each document
    about    the other columns about the documents, each of length N
    cutting  counts of how rows were cut; empty if rows are not cut
    """

    rows_read: int
    rows: npt.NDArray[np.int64]
    about: dict[str, list[Any]]
    documents: TokenDocuments
    rejects: list[Reject]
    fallbacks: int
    audited: int
    cutting: dict[str, int]


def render_part(job: PartJob) -> dict[str, Any]:
    """Renders one part, unless it is complete already. Returns its summary. Raises SourceError if the shard was changed
    since it was hashed.

    `whole` is false if the caps or the reject limit ended the part early: then later parts are not used.
    """
    summary = _standing(job) if job.resume else None
    if summary is not None:
        _count(job, summary["rows_read"], summary["tokens"], sum(summary["rejected"].values()))
        return summary

    profile = profile_of_source(job.shard.format)
    renderer = _renderer(job.renderer, job.asset, profile)
    spans = len(profile.span_names)
    rejected: Counter[str] = Counter()
    cutting: Counter[str] = Counter()
    last_reject: Reject | None = None
    span_tokens = np.zeros(spans, dtype=np.int64)
    rows_read = documents = tokens = fallbacks = audited = 0
    whole = True
    auditor = None
    if renderer.audited and job.audit_stride:
        auditor = Auditor(
            renderer.encoding,
            job.audit_stride,
            profile,
            job.rules,
            share=job.audit_share,
            floor=job.audit_floor,
        )
    with PartWriter(job.rendered, job.ids, job.part.index, profile) as writer:
        for batch in read_rows(job.shard, job.part):
            budget = None if job.token_budget is None else job.token_budget - tokens
            result = render_rows(job.shard, batch, renderer, rules=job.rules, token_budget=budget, auditor=auditor)
            for reject in result.rejects:
                writer.write_reject(reject)
                rejected[reject.reason] += 1
                last_reject = reject
                if rejected.total() > job.reject_limit:
                    break
            writer.write(result.rows, result.about, result.documents)
            rows_read += result.rows_read
            documents += len(result.documents)
            tokens += result.documents.tokens.size
            fallbacks += result.fallbacks
            audited += result.audited
            cutting.update(result.cutting)
            span_tokens += tokens_per_span(result.documents.span_id, result.documents.lengths, spans).sum(axis=0)
            _count(job, result.rows_read, result.documents.tokens.size, len(result.rejects))
            if result.rows_read < len(batch) or rejected.total() > job.reject_limit:
                whole = False
                break
        check_still_hashed(job.shard)  # the next run keeps a complete part and does not read its rows again
        summary = {
            "part": job.part.index,
            "key": job.key,
            "first_row": job.part.first_row,
            "rows_read": rows_read,
            "rows": documents,
            "tokens": tokens,
            "span_tokens": span_tokens.tolist(),
            "fallbacks": fallbacks,
            "audited": audited,
            "rejected": dict(sorted(rejected.items())),
            "last_reject": last_reject and asdict(last_reject),
            "whole": whole,
            **({"cutting": job.rules.counts([cutting])} if job.rules else {}),
        }
        return writer.commit(summary) if rejected.total() <= job.reject_limit else summary


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
) -> BatchResult:
    """Checks and renders a batch of source rows. Invalid rows are returned as rejects, in source order.

    If `rules` cut rows, the whole row is refused if the renderer refuses one of its documents.
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
    rejects.sort(key=lambda refusal: refusal.row)

    tokens, kept, rows_read = rendered.documents, rendered.kept, len(batch)
    if refused and rules is not None:
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
    return BatchResult(
        rows_read=rows_read,
        rows=np.array([row.index for row in of_kept], dtype=np.int64) + batch.first_row,
        about=_about(batch, profile, of_kept),
        documents=tokens,
        rejects=rejects,
        fallbacks=rendered.fallbacks,
        audited=audited,
        cutting=_cutting(of_kept, [cuts[position] for position in kept], tokens.lengths) if rules else {},
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


@cache
def _renderer(name: str, asset: Path, profile: Profile) -> Renderer:
    renderer = load_renderer(name, asset, profile, few=FEW_CHARACTERS)
    # Parsing makes many objects, which starts the garbage collector often. The objects of the libraries live as long as
    # the process. Excluding them from collection saves 5 % of the rendering time.
    gc.freeze()
    return renderer


def _standing(job: PartJob) -> dict[str, Any] | None:
    sidecar = job.rendered / f"{part_name(job.part.index)}.json"
    if not sidecar.is_file():
        return None
    summary = read_sidecar(sidecar)
    stands = (
        summary.get("key") == job.key
        and sum(summary["rejected"].values()) <= job.reject_limit
        and files_stand(job.rendered, summary["rendered_files"])
        and files_stand(job.ids, summary["ids_files"])
    )
    return summary if stands else None


def _count(job: PartJob, rows: int, tokens: int, rejects: int) -> None:
    if workers.counters_here:
        workers.counters_here.add(job.shard.index, rows=rows, tokens=tokens, rejects=rejects)
