"""The messages of rendered documents, read off their tokens alone.

In: flat tokens and document lengths. Out: `Messages`, and the documents with invalid headers. Shares no code with
rendering.

    <|start|> assistant <|channel|> final <|message|> … <|return|>     a header extends from <|start|> to <|message|>
"""

from dataclasses import dataclass, field

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
TO = 316
"""` to`, behind the role, before the name of a recipient."""
SPAN_ANALYSIS, SPAN_FINAL, SPAN_COMMENTARY = 1, 2, 3
CLOSERS = (END, RETURN, CALL)

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class StructureFault:
    """Document number `document` of the batch violates the format at token `offset`."""

    document: int
    offset: int
    message: str


@dataclass
class Faults:
    """Collects the faults of documents of these `lengths`, int32 [N]."""

    lengths: Lengths
    found: list[StructureFault] = field(default_factory=list, init=False)

    def add(self, positions: Places, message: str) -> None:
        """A fault at each of these tokens of the batch."""
        if not positions.size:
            return
        ends = np.cumsum(self.lengths, dtype=np.int64)
        documents = np.searchsorted(ends, positions, side="right")
        offsets = positions - (ends - self.lengths)[documents]
        self.found += [
            StructureFault(document=document, offset=offset, message=message)
            for document, offset in zip(documents.tolist(), offsets.tolist(), strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Messages:
    """M messages of N documents of T tokens.

    tokens      int32 [T]
    documents   int64 [M]  the document of each message
    opens       int64 [M]  its <|start|>
    bodies      int64 [M]  its <|message|>; `closes` or more if there is none
    closes      int64 [M]  its end, exclusive
    roles       int32 [M]  the first token of its role, or of the name of a tool
    channels    int32 [M]  the first token of its channel, -1 without one
    named       uint8 [M]  the span that the header names if it is of the assistant, otherwise that of context
    constrains  bool [M]   whether the header has <|constrain|>
    count       N
    """

    tokens: Tokens
    documents: Places
    opens: Places
    bodies: Places
    closes: Places
    roles: Tokens
    channels: Tokens
    named: Flags
    constrains: Marks
    count: int

    @property
    def assistant(self) -> Marks:
        """Which are of the assistant, bool [M]."""
        marks: Marks = self.roles == ASSISTANT
        return marks

    @property
    def headed(self) -> Marks:
        """Which have a <|message|>, bool [M]."""
        return self.bodies < self.closes

    @property
    def closers(self) -> Tokens:
        """The last token of each, int32 [M]."""
        return self.tokens[np.maximum(self.closes - 1, 0)]

    @property
    def numbers(self) -> Places:
        """0 … M - 1."""
        return np.arange(self.opens.size)

    def last_of_each(self, chosen: Marks) -> Places:
        """For each message the number of the last chosen message of its document, or -1. int64 [M]."""
        last = np.full(self.count + 1, -1, dtype=np.int64)
        numbers = np.flatnonzero(chosen)
        last[self.documents[numbers]] = numbers  # for repeated indices the last assignment wins
        places: Places = last[self.documents]
        return places

    def first_of_each(self, chosen: Marks) -> Places:
        """For each message the number of the first chosen message of its document, or M. int64 [M]."""
        first = np.full(self.count + 1, self.opens.size, dtype=np.int64)
        numbers = np.flatnonzero(chosen)[::-1]
        first[self.documents[numbers]] = numbers
        places: Places = first[self.documents]
        return places

    @property
    def begins_run(self) -> Marks:
        """Which begin a run: a series of messages of the assistant in one document. bool [M]."""
        other_before = np.append(True, ~self.assistant[:-1] | (self.documents[1:] != self.documents[:-1]))
        marks: Marks = self.assistant & other_before[: self.opens.size]
        return marks


def read_messages(tokens: Tokens, lengths: Lengths, faults: Faults, *, chat: bool) -> Messages:
    """The messages of N documents that each end in EOD; faults of their headers go to `faults`.

    Args: tokens int32 [T]; lengths int32 [N], sum = T; `chat`: there are messages of tools, and of the channel
    commentary.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    firsts = ends - lengths
    specials = np.flatnonzero(tokens >= EOD)  # one pass over all tokens; a few percent are special
    kinds = tokens[specials]
    opens = specials[kinds == START]
    faults.add(firsts[tokens[firsts] != START], "the document does not begin with <|start|>")
    # A message ends at the next <|start|>, or before the document's EOD.
    closes = np.append(opens[1:], tokens.size)[: opens.size]
    documents = np.searchsorted(ends, opens, side="right")
    closes = np.minimum(closes, ends[documents] - 1)

    bodies = _first_after(specials[kinds == MESSAGE], opens, tokens.size)
    channels = _first_after(specials[kinds == CHANNEL], opens, tokens.size)
    headed = bodies < closes
    faults.add(opens[~headed], "a message has no <|message|>")
    ended = np.isin(tokens[np.maximum(closes - 1, 0)], CLOSERS)
    message = "a message does not end in <|end|>, <|return|> or <|call|>"
    faults.add(np.maximum(closes - 1, opens)[~ended], message)
    _check_specials(specials, kinds, opens, bodies, closes, faults)

    end = max(tokens.size - 1, 0)
    after_opens = np.minimum(opens + 1, end)  # a <|start|> at the very end is read as its own role, which is unknown
    roles = tokens[after_opens]
    assistant = roles == ASSISTANT
    known, names = list(CONTEXT_ROLES.values()), "system, developer, user, assistant"
    if chat:
        known, names = [*known, *TOOLS.values()], f"{names}, or a tool"
    faults.add(after_opens[~assistant & ~np.isin(roles, known)], f"a role is not one of {names}")
    channel = np.where(channels < bodies, tokens[np.minimum(channels + 1, end)], -1)
    named = np.full(opens.size, SPAN_CONTEXT, dtype=np.uint8)
    named[assistant & headed & (channel == ANALYSIS)] = SPAN_ANALYSIS
    named[assistant & headed & (channel == FINAL)] = SPAN_FINAL
    if chat:
        second = tokens[np.minimum(channels + 2, end)]
        named[assistant & headed & (channel == COMMENTARY[0]) & (second == COMMENTARY[1])] = SPAN_COMMENTARY
    where = "analysis, commentary nor final" if chat else "analysis nor final"
    faults.add(opens[assistant & headed & (named == SPAN_CONTEXT)], f"an assistant message is in neither {where}")
    return Messages(
        tokens=tokens,
        documents=documents,
        opens=opens,
        bodies=bodies,
        closes=closes,
        roles=roles,
        channels=channel.astype(np.int32),
        named=named,
        constrains=_first_after(specials[kinds == CONSTRAIN], opens, tokens.size) < bodies,
        count=lengths.size,
    )


def _check_specials(
    specials: Places, kinds: Tokens, opens: Places, bodies: Places, closes: Places, faults: Faults
) -> None:
    """Finds control tokens where the format has none: texts are encoded without them.

    A header has at most one <|channel|> and one <|constrain|>; a text has none, and one that ends it.
    """
    if not opens.size:
        return
    message = np.searchsorted(opens, specials, side="right") - 1
    inside = (message >= 0) & (specials > opens[message]) & (specials < closes[message] - 1)
    in_text = inside & (specials > bodies[message])
    in_header = inside & (specials < bodies[message])
    again = np.append(False, (kinds[1:] == kinds[:-1]) & (message[1:] == message[:-1]))
    wrong = in_text | (in_header & (again | ~np.isin(kinds, (CHANNEL, CONSTRAIN))))
    faults.add(specials[wrong & (kinds != EOD)], "a control token is inside a text or a header")  # EOD: found as such


def _first_after(marks: Places, opens: Places, size: int) -> Places:
    """The first position in `marks` at or after each of `opens`; `size` if there is none."""
    positions = np.append(marks, size)
    return positions[np.searchsorted(positions, opens)]
