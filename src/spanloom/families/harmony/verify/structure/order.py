"""The order of the messages of a document, and the token that ends each.

In: the messages of documents, read off their tokens. Out: faults. The rules of ends hold for every render of
openai-harmony; those of order for conversations in the format for any model, see `any_model`, where a message that a
later run does not see is one of analysis.
"""

import numpy as np

from spanloom.families.harmony.tokenizer import CALL, END, RETURN
from spanloom.families.harmony.verify.structure.messages import (
    CONTEXT_ROLES,
    SPAN_ANALYSIS,
    SPAN_COMMENTARY,
    SPAN_FINAL,
    TO,
    TOOLS,
    Faults,
    Marks,
    Messages,
)
from spanloom.supervision import SPAN_CONTEXT

_SYSTEM, _DEVELOPER, _USER, _TOOL, _ANALYSIS, _PREAMBLE, _CALL, _FINAL, _UNKNOWN = range(9)
_FOLLOWS = {
    _SYSTEM: (_DEVELOPER, _USER, _ANALYSIS, _PREAMBLE, _CALL, _FINAL),
    _DEVELOPER: (_USER, _ANALYSIS, _PREAMBLE, _CALL, _FINAL),
    _USER: (_USER, _ANALYSIS, _PREAMBLE, _CALL, _FINAL),
    _TOOL: (_USER, _ANALYSIS, _PREAMBLE, _CALL, _FINAL),
    _ANALYSIS: (_ANALYSIS, _PREAMBLE, _CALL, _FINAL),
    _PREAMBLE: (_ANALYSIS, _PREAMBLE, _CALL, _FINAL),
    _CALL: (_USER, _TOOL),
    _FINAL: (_USER,),
}
"""Kind of a message → the kinds that may follow it. A call without a result is one that the user interrupts."""


def check_ends(messages: Messages, faults: Faults, *, chat: bool) -> None:
    """Checks the token that ends each message. `chat`: a recipient of the assistant is always a tool."""
    assistant, closers = messages.assistant, messages.closers
    last = messages.numbers == messages.last_of_each(np.ones(assistant.size, np.bool_))
    answers = assistant & last & (messages.named == SPAN_FINAL)
    faults.add((messages.closes - 1)[answers & (closers != RETURN)], "the last answer does not end in <|return|>")
    others = messages.headed & ~answers
    faults.add((messages.closes - 1)[others & (closers == RETURN)], "<|return|> ends what is not the last answer")
    faults.add((messages.closes - 1)[others & ~assistant & (closers == CALL)], "<|call|> ends a message of context")
    if chat:
        calls = assistant & _has_recipient(messages)
        faults.add((messages.closes - 1)[others & calls & (closers == END)], "a call does not end in <|call|>")
        wrong = others & assistant & ~calls & (closers == CALL)
        faults.add((messages.closes - 1)[wrong], "<|call|> ends a message that calls nothing")


def _has_recipient(messages: Messages) -> Marks:
    """Which messages name a recipient in their header, bool [M]."""
    places = np.append(np.flatnonzero(messages.tokens == TO), messages.tokens.size)
    marks: Marks = places[np.searchsorted(places, messages.opens)] < messages.bodies
    return marks


def check_order(messages: Messages, faults: Faults, *, ends_in_run: bool) -> None:
    """Checks which message follows which. `ends_in_run`: a document ends in an answer or a call."""
    if not messages.opens.size:
        return
    kinds = _kinds(messages)
    same = np.append(False, messages.documents[1:] == messages.documents[:-1])
    faults.add(messages.opens[~same & (kinds != _SYSTEM) & (kinds != _UNKNOWN)], "the system message is missing")
    allowed = np.ones((_UNKNOWN + 1, _UNKNOWN + 1), dtype=np.bool_)
    for kind, following in _FOLLOWS.items():
        allowed[kind, :_UNKNOWN] = np.isin(np.arange(_UNKNOWN), following)
    before = np.append(_UNKNOWN, kinds[:-1])
    faults.add(messages.opens[same & ~allowed[before, kinds]], "this message cannot follow the one before it")
    last = np.append(~same[1:], True)
    open_end = np.isin(kinds, (_ANALYSIS, _PREAMBLE)) if not ends_in_run else ~np.isin(kinds, (_CALL, _FINAL, _UNKNOWN))
    faults.add(messages.opens[last & open_end], "the document ends without an answer or a call")


def _kinds(messages: Messages) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The kind of each message, int64 [M]."""
    kinds = np.full(messages.opens.size, _UNKNOWN, dtype=np.int64)
    for name, kind in (("system", _SYSTEM), ("developer", _DEVELOPER), ("user", _USER)):
        kinds[messages.roles == CONTEXT_ROLES[name]] = kind
    kinds[np.isin(messages.roles, list(TOOLS.values()))] = _TOOL
    for span, kind in ((SPAN_ANALYSIS, _ANALYSIS), (SPAN_COMMENTARY, _PREAMBLE), (SPAN_FINAL, _FINAL)):
        kinds[messages.named == span] = kind
    kinds[(messages.named != SPAN_CONTEXT) & (messages.closers == CALL)] = _CALL
    return kinds
