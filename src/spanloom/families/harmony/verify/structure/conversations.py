"""The documents of one conversation against each other, and against the rows that number them.

In: the messages of documents, read off their tokens; the rows of the documents; the options of a dataset. Out: faults.
The documents of a conversation are neighbours in the arrays.

    serve   0:  user ANALYSIS FINAL                    cut 0, runs 1
            1:  user final user ANALYSIS FINAL         cut 1, runs 1: one run is shown before the first trained one

Of two documents of a conversation the later one shows all that the earlier one shows, but for reasoning, the text of
the system message, which may mention functions, and the token that ends an answer.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.families.harmony.tokenizer import CALL
from spanloom.families.harmony.verify.structure.messages import ANALYSIS, CONTEXT_ROLES, Marks, Messages, Places
from spanloom.families.harmony.verify.structure.spans import TrainedMessages, labelled_messages
from spanloom.supervision import Flags, ranges

Fault = tuple[int, str]
"""The number of a document in its batch, and what is wrong."""


def check_conversations(
    messages: Messages,
    span: Flags,
    rows: pa.Table,
    trained: TrainedMessages,
    *,
    all_runs: bool,
    shows_runs: bool,
    begins_file: bool,
) -> Iterator[Fault]:
    """Checks these documents. `span` uint8 [T], label-aligned; `rows`: of the row table, in order.

    `all_runs`: each run of a conversation is trained. `shows_runs`: no run is of reasoning alone, so that a later run
    shows all earlier ones. `begins_file`: these are the first documents of their file; others may begin within a
    conversation.
    """
    row, cut = (rows.column(name).to_numpy() for name in ("row", "cut"))
    labelled = labelled_messages(messages, span)
    yield from _check_numbers(messages, labelled, cut, trained, shows_runs)
    follows = np.flatnonzero(row[1:] == row[:-1]) + 1
    if trained.merged:
        runs, weight = (rows.column(name).to_numpy() for name in ("runs", "weight"))
        for at in follows[weight[follows] != weight[follows - 1]].tolist():
            yield at, f"the weight {weight[at]} is not that of the other documents of the conversation"
        for at in follows[all_runs & (cut[follows] != (cut + runs)[follows - 1])].tolist():
            yield at, f"cut is {cut[at]}, the document before it trains runs up to {cut[at - 1] + runs[at - 1]}"
    if all_runs and trained.turns == "all":
        firsts = np.flatnonzero(np.append(begins_file, row[1:] != row[:-1]))
        for at in firsts[cut[firsts] != 0].tolist():
            yield at, f"cut is {cut[at]}, and no document trains the runs before it"
    if trained.history == "keep":
        return
    if trained.turns == "last":
        yield from _check_last_turn(messages, labelled, follows)
    for at in _unlike(messages, follows, trained.call_format == "as-served").tolist():
        yield at, "it does not show the messages of the document before it, which is of the same conversation"


def _check_numbers(
    messages: Messages, labelled: Marks, cut: npt.NDArray[np.int64], trained: TrainedMessages, shows_runs: bool
) -> Iterator[Fault]:
    """Checks that `cut` is the number of runs before the first trained one."""
    if trained.history == "keep":
        for at in np.flatnonzero(cut != 0).tolist():
            yield at, f"cut is {cut[at]}, a whole conversation is document 0"
        return
    first = messages.first_of_each(labelled)
    chosen = np.flatnonzero(messages.numbers == first)  # one message of each document that trains something
    documents = messages.documents[chosen]
    begun = np.cumsum(messages.begins_run)
    before = np.searchsorted(messages.documents, documents)  # the first message of the document
    shown = begun[chosen] - 1 - (begun[before] - messages.begins_run[before])
    wrong = shown != cut[documents] if shows_runs else shown > cut[documents]
    for at, number in zip(documents[wrong].tolist(), shown[wrong].tolist(), strict=True):
        yield at, f"cut is {cut[at]}, the document shows {number} runs before the first one that it trains"


def _check_last_turn(messages: Messages, labelled: Marks, follows: Places) -> Iterator[Fault]:
    """Checks that only runs after the last question are trained."""
    user = messages.roles == CONTEXT_ROLES["user"]
    earlier = labelled & (messages.numbers < messages.last_of_each(user))
    for at in np.unique(messages.documents[earlier]).tolist():
        yield at, "a run before the last question is trained"
    questions = np.bincount(messages.documents[user], minlength=messages.count)
    for at in follows[questions[follows] != questions[follows - 1]].tolist():
        yield at, "it has other questions than the document before it, and only the last turn is trained"


def _unlike(messages: Messages, follows: Places, rewritten: bool) -> Places:
    """The documents of `follows` that do not show what the document before each shows. `rewritten`: the headers of
    calls may differ."""
    if not follows.size:
        return follows
    kept = (messages.roles != CONTEXT_ROLES["system"]) & (messages.channels != ANALYSIS)
    begins = np.where(
        rewritten & (messages.closers == CALL), np.minimum(messages.bodies, messages.closes), messages.opens
    )
    sizes = np.where(kept, np.maximum(messages.closes - 1 - begins, 0), 0)
    tokens = messages.tokens[ranges(begins, sizes)]
    lengths = np.bincount(messages.documents, weights=sizes, minlength=messages.count).astype(np.int64)
    firsts = np.cumsum(lengths) - lengths
    shorter = lengths[follows] < lengths[follows - 1]
    fits = follows[~shorter]
    of_pair = np.repeat(fits, lengths[fits - 1])
    differs = tokens[ranges(firsts[fits - 1], lengths[fits - 1])] != tokens[ranges(firsts[fits], lengths[fits - 1])]
    return np.union1d(follows[shorter], of_pair[differs])


def trains_all(config: Mapping[str, Any], cutting: Mapping[str, int], spans: int) -> bool:
    """Whether each message of the assistant that the options choose is trained. `spans`: how many spans there are."""
    return len(config["train"]) == spans and not cutting.get("untrained_messages")
