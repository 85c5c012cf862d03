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

from spanloom.families.harmony.tokenizer import CALL
from spanloom.families.harmony.verify.structure.messages import (
    ANALYSIS,
    CLOSERS,
    CONTEXT_ROLES,
    SPAN_FINAL,
    Faults,
    Marks,
    Messages,
    Places,
)
from spanloom.supervision import SPAN_CONTEXT, Flags, Tokens


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


def spans_of_messages(
    messages: Messages, faults: Faults, trained: TrainedMessages | None, on_disk: Flags | None
) -> Flags:
    """Token-aligned spans of N documents that each end in EOD, uint8 [T]; faults go to `faults`.

    `trained`: None if every assistant message is trained, none is in commentary and there are no tool messages;
    `on_disk` uint8 [T]: the label-aligned spans of the file, needed for documents with several runs or untrained
    messages. A message with a fault has span 0.
    """
    opens, closes, labels = messages.opens, messages.closes, messages.named
    begins = opens
    if trained is not None:
        labels = _trained_labels(messages, faults, trained, on_disk)
        if trained.truncated and on_disk is not None:
            closes = closes - ((labels != SPAN_CONTEXT) & _is_cut(closes - 1, on_disk))
        if trained.prompted:
            begins = np.minimum(opens + 2 * messages.begins_run, closes)
    # 0 up to the first message; then alternately the label of a message and 0 up to the next.
    edges = np.concatenate([[0], np.column_stack([begins, closes]).reshape(-1), [messages.tokens.size]])
    painted = np.concatenate([[0], np.column_stack([labels, np.zeros_like(labels)]).reshape(-1)]).astype(np.uint8)
    return np.repeat(painted, np.diff(edges))


def _trained_labels(messages: Messages, faults: Faults, trained: TrainedMessages, on_disk: Flags | None) -> Flags:
    """The span of each message by the options, uint8 [M]: that of context for those that are not trained."""
    opens, assistant, documents, labels = messages.opens, messages.assistant, messages.documents, messages.named.copy()
    if trained.history == "serve":
        faults.add(opens[_hidden(messages)], _NOT_SHOWN)
    if trained.call_format != "constrain":
        constrained = assistant & messages.headed & (messages.closers == CALL) & messages.constrains
        if trained.call_format == "as-served":
            constrained &= messages.numbers < messages.last_of_each(~assistant)
        faults.add(opens[constrained], _AS_EMITTED)
    labelled = labelled_messages(messages, on_disk)
    keeps = _trained(messages, labelled, trained)
    labels[~keeps | ~np.isin(labels, trained.spans)] = SPAN_CONTEXT
    if trained.untrained:
        labels[~labelled] = SPAN_CONTEXT
    if trained.merged and trained.history != "keep":
        goes_on = np.append(~assistant[1:] & (documents[1:] == documents[:-1]), False)[: opens.size]
        faults.add(opens[(labels == SPAN_FINAL) & goes_on], _ENDS_IN_END)
    return labels


_NOT_SHOWN = "analysis is before a later final, which no server would show"
_AS_EMITTED = "the header of a call has <|constrain|>, which no server would show"
_ENDS_IN_END = "a final that is trained ends a run and not its document, so that it does not end in <|return|>"


def labelled_runs(messages: Messages, on_disk: Flags) -> Places:
    """Counts the labelled assistant runs of each document. `on_disk` uint8 [T], label-aligned. Returns int64 [N]."""
    runs = np.unique(np.cumsum(messages.begins_run)[labelled_messages(messages, on_disk)]) - 1
    return np.bincount(messages.documents[messages.begins_run][runs], minlength=messages.count)


def labelled_messages(messages: Messages, on_disk: Flags | None) -> Marks:
    """Which messages of the assistant have a label on disk. `on_disk` uint8 [T], label-aligned. Returns bool [M]."""
    return messages.assistant & _labelled(messages.opens, messages.closes, on_disk)


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


def _trained(messages: Messages, labelled: Marks, trained: TrainedMessages) -> Marks:
    """Which messages are trained, regardless of their span. `labelled` bool [M]. Returns bool [M]."""
    numbers, assistant = messages.numbers, messages.assistant
    if trained.history != "keep":
        last_context = messages.last_of_each(~assistant)
        ends = assistant & (numbers > last_context)
        if not trained.merged:
            return ends
        # All runs from the one that holds the first labelled message; without a label the last run.
        size = numbers.size
        first = messages.first_of_each(labelled)
        context = np.where(~assistant, numbers, -1)
        run_begins = np.maximum.accumulate(context) if size else context  # the last message of another role, so far
        begin = np.where(first == size, last_context, run_begins[np.minimum(first, max(size - 1, 0))])
        return assistant & (numbers > begin)
    if trained.turns == "last":
        user = messages.roles == CONTEXT_ROLES["user"]
        answered = user & (numbers < messages.last_of_each(assistant))
        return assistant & (numbers > messages.last_of_each(answered))
    return assistant


def _hidden(messages: Messages) -> Marks:
    """Analysis before the last final that precedes the last run: `serve` never shows it. bool [M]."""
    numbers = messages.numbers
    run_begins = messages.last_of_each(~messages.assistant)
    shown_finals = messages.assistant & (messages.named == SPAN_FINAL) & (numbers < run_begins)
    hidden: Marks = (messages.channels == ANALYSIS) & (numbers < messages.last_of_each(shown_finals))
    return hidden
