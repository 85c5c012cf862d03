"""Derives the spans of rendered documents from their tokens alone, for validation.

In: flat tokens and document lengths. Out: the span of every token according to the message headers, and the documents
with invalid headers. Shares no code with rendering, which takes the labels from the messages.

    <|start|> assistant <|channel|> final <|message|> … <|return|>     a header extends from <|start|> to <|message|>

The order of the roles in a document determines which messages are trained: with the histories `serve` and
`openai-harmony` the assistant messages at its end; with `keep` all, or those after its last answered question.
If assistant runs share documents, training begins at the first message with a label on disk; the row table must count
the same runs (`labelled_runs`).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.families.harmony.tokenizer import CALL, CHANNEL, CONSTRAIN, END, EOD, MESSAGE, RETURN, START
from spanloom.supervision import SPAN_CONTEXT, Flags, Lengths, Tokens

# Each word of a header is one token; a test compares them with the tokenizer.
ASSISTANT = 173781
CONTEXT_ROLES = {"user": 1428, "system": 17360, "developer": 77944}
TOOLS = {"functions": 44580, "python": 29010, "browser": 46071}
"""First tokens of tool names. In the header of a tool message the name takes the place of the role."""
ANALYSIS, FINAL = 35644, 17196
COMMENTARY = (12606, 815)
SPAN_ANALYSIS, SPAN_FINAL, SPAN_COMMENTARY = 1, 2, 3
CLOSERS = (END, RETURN, CALL)


@dataclass(frozen=True, kw_only=True)
class StructureFault:
    """Document number `document` of the batch violates the format at token `offset`."""

    document: int
    offset: int
    message: str


@dataclass(frozen=True, kw_only=True)
class TrainedMessages:
    """Which messages of a dataset of conversations are trained.

    history, turns   the options of the build
    spans            ids of the trained spans
    merged           runs share documents where possible
    untrained        the source marks some messages as not trained
    prompted         `<|start|>assistant` at the beginning of a run is not trained
    truncated        some messages are truncated: the token that ends them is not trained
    call_format      `json`: no call has `<|constrain|>`; `as-served`: only calls in a document's last run may have it
    """

    history: str
    turns: str
    spans: tuple[int, ...]
    merged: bool = False
    untrained: bool = False
    prompted: bool = False
    truncated: bool = False
    call_format: str = "constrain"


def spans_from_wrappers(
    tokens: Tokens, lengths: Lengths, trained: TrainedMessages | None = None, on_disk: Flags | None = None
) -> tuple[Flags, list[StructureFault]]:
    """Token-aligned spans of N documents that each end in EOD.

    Args: tokens int32 [T]; lengths int32 [N], sum = T; `trained`: None if every assistant message is trained, none is
    in commentary and there are no tool messages; `on_disk` uint8 [T], the label-aligned spans of the file, needed for
    documents with several runs or untrained messages. Returns uint8 [T], token-aligned, and the faults; a message with
    a fault has span 0.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    firsts = ends - lengths
    faults: list[StructureFault] = []

    def fault(positions: npt.NDArray[np.int64], message: str) -> None:
        documents = np.searchsorted(ends, positions, side="right")
        faults.extend(
            StructureFault(document=int(document), offset=int(position - firsts[document]), message=message)
            for document, position in zip(documents, positions, strict=True)
        )

    specials = np.flatnonzero(tokens >= EOD)  # one pass over all tokens; a few percent are special
    kinds = tokens[specials]
    opens = specials[kinds == START]
    fault(firsts[tokens[firsts] != START], "the document does not begin with <|start|>")
    # A message ends at the next <|start|>, or before the document's EOD.
    closes = np.append(opens[1:], tokens.size)[: opens.size]
    closes = np.minimum(closes, ends[np.searchsorted(ends, opens, side="right")] - 1)

    bodies = _first_after(specials[kinds == MESSAGE], opens, tokens.size)
    channels = _first_after(specials[kinds == CHANNEL], opens, tokens.size)
    headed = bodies < closes
    fault(opens[~headed], "a message has no <|message|>")
    ended = np.isin(tokens[np.maximum(closes - 1, 0)], CLOSERS)
    fault(np.maximum(closes - 1, opens)[~ended], "a message does not end in <|end|>, <|return|> or <|call|>")

    end = max(tokens.size - 1, 0)
    after_opens = np.minimum(opens + 1, end)  # a <|start|> at the very end is read as its own role, which is unknown
    roles = tokens[after_opens]
    assistant = roles == ASSISTANT
    known, names = list(CONTEXT_ROLES.values()), "system, developer, user, assistant"
    if trained is not None:
        known, names = [*known, *TOOLS.values()], f"{names}, or a tool"
    fault(after_opens[~assistant & ~np.isin(roles, known)], f"a role is not one of {names}")
    channel = np.where(channels < bodies, tokens[np.minimum(channels + 1, end)], -1)
    labels = np.full(opens.size, SPAN_CONTEXT, dtype=np.uint8)
    labels[assistant & headed & (channel == ANALYSIS)] = SPAN_ANALYSIS
    labels[assistant & headed & (channel == FINAL)] = SPAN_FINAL
    if trained is not None:
        second = tokens[np.minimum(channels + 2, end)]
        labels[assistant & headed & (channel == COMMENTARY[0]) & (second == COMMENTARY[1])] = SPAN_COMMENTARY
    where = "analysis nor final" if trained is None else "analysis, commentary nor final"
    fault(opens[assistant & headed & (labels == SPAN_CONTEXT)], f"an assistant message is in neither {where}")
    if trained is not None:
        documents = np.searchsorted(ends, opens, side="right")
        if trained.history == "serve":
            fault(opens[_hidden(documents, assistant, labels, channel == ANALYSIS)], _NOT_SHOWN)
        if trained.call_format != "constrain":
            calls = assistant & headed & (tokens[np.maximum(closes - 1, 0)] == CALL)
            constrained = calls & (_first_after(specials[kinds == CONSTRAIN], opens, tokens.size) < bodies)
            if trained.call_format == "as-served":
                constrained &= np.arange(opens.size) < _last_of_each(documents, ~assistant)
            fault(opens[constrained], _AS_EMITTED)
        labelled = _labelled(opens, closes, on_disk)
        keeps = _trained(documents, assistant, roles == CONTEXT_ROLES["user"], labelled, trained)
        labels[~keeps | ~np.isin(labels, trained.spans)] = SPAN_CONTEXT
        if trained.untrained:
            labels[~labelled] = SPAN_CONTEXT
        if trained.merged and trained.history != "keep":
            goes_on = np.append(~assistant[1:] & (documents[1:] == documents[:-1]), False)
            fault(opens[(labels == SPAN_FINAL) & goes_on], _ENDS_IN_END)

    if trained is not None and trained.truncated and on_disk is not None:
        closes = closes - ((labels != SPAN_CONTEXT) & _is_cut(closes - 1, on_disk))
    # 0 up to the first message; then alternately the label of a message and 0 up to the next.
    begins = opens
    if trained is not None and trained.prompted:
        other_before = np.append(True, ~assistant[:-1] | (documents[1:] != documents[:-1]))
        begins = np.minimum(opens + 2 * (assistant & other_before[: opens.size]), closes)
    edges = np.concatenate([[0], np.column_stack([begins, closes]).reshape(-1), [tokens.size]])
    painted = np.concatenate([[0], np.column_stack([labels, np.zeros_like(labels)]).reshape(-1)]).astype(np.uint8)
    return np.repeat(painted, np.diff(edges)), faults


_NOT_SHOWN = "analysis is before a later final, which no server would show"
_AS_EMITTED = "the header of a call has <|constrain|>, which no server would show"
_ENDS_IN_END = "a final that is trained ends a run and not its document, so that it does not end in <|return|>"

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


def _last_of_each(documents: Places, chosen: Marks) -> Places:
    """For each message the index of the last chosen message of its document, or -1. int64 [M]."""
    last = np.full(int(documents.max(initial=-1)) + 1, -1, dtype=np.int64)
    numbers = np.flatnonzero(chosen)
    last[documents[numbers]] = numbers  # for repeated indices the last assignment wins
    places: Places = last[documents]
    return places


def labelled_runs(tokens: Tokens, lengths: Lengths, on_disk: Flags) -> npt.NDArray[np.int64]:
    """Counts the labelled assistant runs of each document. Args: int32 [T], int32 [N], uint8 [T]. Returns int64 [N]."""
    ends = np.cumsum(lengths, dtype=np.int64)
    opens = np.flatnonzero(tokens == START)
    documents = np.searchsorted(ends, opens, side="right")
    assistant = tokens[np.minimum(opens + 1, max(tokens.size - 1, 0))] == ASSISTANT
    closes = np.append(opens[1:], tokens.size)[: opens.size]
    labelled = assistant & _labelled(opens, closes, on_disk)
    # A run is a series of consecutive assistant messages in one document.
    divided = ~assistant
    divided[1:] |= documents[1:] != documents[:-1]
    runs = np.unique(np.cumsum(divided)[labelled], return_index=True)[1]
    return np.bincount(documents[labelled][runs], minlength=lengths.size)


def untrained_ends(tokens: Tokens, on_disk: Flags) -> int:
    """How many trained messages end in a token that is not trained. Args: int32 [T], uint8 [T], label-aligned."""
    return int(_is_cut(np.flatnonzero(np.isin(tokens, CLOSERS)), on_disk).sum())


def _is_cut(closers: Places, on_disk: Flags) -> Marks:
    """Whether each of these tokens has no label and the token before it has one. The label of a token is one before."""
    marks: Marks = (closers >= 2) & (on_disk[closers - 1] == SPAN_CONTEXT) & (on_disk[closers - 2] != SPAN_CONTEXT)
    return marks


def _labelled(opens: Places, closes: Places, on_disk: Flags | None) -> Marks:
    """Which messages have a label on disk. Args: int64 [M], int64 [M], uint8 [T], label-aligned. Returns bool [M]."""
    if on_disk is None:
        return np.zeros(opens.size, dtype=np.bool_)
    labels = np.append(on_disk != SPAN_CONTEXT, False)
    turns = np.flatnonzero(labels[1:] != labels[:-1]) + 1  # few: equal labels are consecutive
    turns = np.append(0, turns) if labels[0] else turns
    begins, ends = turns[::2], turns[1::2]
    # The label of a token is one position before it.
    first, last = np.maximum(opens - 1, 0), np.maximum(closes - 1, 0)
    marks: Marks = np.append(begins, on_disk.size)[np.searchsorted(ends, first, side="right")] < last
    return marks & (first < last)


def _trained(documents: Places, assistant: Marks, user: Marks, labelled: Marks, trained: TrainedMessages) -> Marks:
    """Which messages are trained, regardless of their span. Args: int64 [M], then bool [M] each. Returns bool [M]."""
    numbers = np.arange(documents.size)
    if trained.history != "keep":
        last_context = _last_of_each(documents, ~assistant)
        ends = assistant & (numbers > last_context)
        if not trained.merged:
            return ends
        # All runs from the one that holds the first labelled message; without a label the last run.
        backwards = slice(None, None, -1)
        size = documents.size
        first = size - 1 - _last_of_each(documents[backwards], (assistant & labelled)[backwards])[backwards]
        context = np.where(~assistant, numbers, -1)
        run_begins = np.maximum.accumulate(context) if size else context  # the last message of another role, so far
        none = first == size
        begin = np.where(none, last_context, run_begins[np.minimum(first, max(size - 1, 0))])
        return assistant & (numbers > begin)
    if trained.turns == "last":
        answered = user & (numbers < _last_of_each(documents, assistant))
        return assistant & (numbers > _last_of_each(documents, answered))
    return assistant


def _hidden(documents: Places, assistant: Marks, labels: Flags, analysis: Marks) -> Marks:
    """Analysis before the last final that precedes the last run: `serve` never shows it. bool [M]."""
    numbers = np.arange(documents.size)
    run_begins = _last_of_each(documents, ~assistant)
    shown_finals = assistant & (labels == SPAN_FINAL) & (numbers < run_begins)
    return analysis & (numbers < _last_of_each(documents, shown_finals))


def _first_after(marks: npt.NDArray[np.int64], opens: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The first position in `marks` at or after each of `opens`; `size` if there is none."""
    positions = np.append(marks, size)
    return positions[np.searchsorted(positions, opens)]
