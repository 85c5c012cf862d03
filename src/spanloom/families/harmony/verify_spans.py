"""Spans read off finished tokens alone, for validation.

In: flat tokens and document lengths. Out: the span of every token as the wrappers say it, and documents whose wrappers
make no sense. Shares no code with rendering: there, labels come from the messages; here, from the header tokens.

    <|start|> assistant <|channel|> final <|message|> … <|return|>     a header runs from <|start|> to <|message|>
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.families.harmony.spans import SPAN_ANALYSIS, SPAN_FINAL
from spanloom.families.harmony.tokenizer import CALL, CHANNEL, END, EOD, MESSAGE, RETURN, START
from spanloom.supervision import SPAN_CONTEXT, Flags, Lengths, Tokens

# The words of a header are one token each; a test holds them against the tokenizer.
ASSISTANT = 173781
CONTEXT_ROLES = {"user": 1428, "system": 17360, "developer": 77944}
ANALYSIS, FINAL = 35644, 17196
CLOSERS = (END, RETURN, CALL)


@dataclass(frozen=True, kw_only=True)
class StructureFault:
    """Document `document` of the batch breaks the format at token `offset`."""

    document: int
    offset: int
    message: str


def spans_from_wrappers(tokens: Tokens, lengths: Lengths) -> tuple[Flags, list[StructureFault]]:
    """Token-aligned spans of N documents that each end in EOD.

    Args: tokens int32 [T]; lengths int32 [N], sum = T. Returns uint8 [T] and the faults; where there is a fault the
    spans of that message are 0.
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

    specials = np.flatnonzero(tokens >= EOD)  # one look at all tokens; the wrappers are a few in a hundred
    kinds = tokens[specials]
    opens = specials[kinds == START]
    fault(firsts[tokens[firsts] != START], "the document does not begin with <|start|>")
    # A message ends where the next one opens, or before the document's EOD.
    closes = np.append(opens[1:], tokens.size)[: opens.size]
    closes = np.minimum(closes, ends[np.searchsorted(ends, opens, side="right")] - 1)

    bodies = _first_after(specials[kinds == MESSAGE], opens, tokens.size)
    channels = _first_after(specials[kinds == CHANNEL], opens, tokens.size)
    headed = bodies < closes
    fault(opens[~headed], "a message has no <|message|>")
    ended = np.isin(tokens[np.maximum(closes - 1, 0)], CLOSERS)
    fault(np.maximum(closes - 1, opens)[~ended], "a message does not end in <|end|>, <|return|> or <|call|>")

    end = max(tokens.size - 1, 0)
    after_opens = np.minimum(opens + 1, end)  # a start that is the last token of all is no role, and stands for one
    roles = tokens[after_opens]
    assistant = roles == ASSISTANT
    fault(
        after_opens[~assistant & ~np.isin(roles, list(CONTEXT_ROLES.values()))],
        "a role is none of system, developer, user, assistant",
    )
    said = np.where(channels < bodies, tokens[np.minimum(channels + 1, end)], -1)
    labels = np.full(opens.size, SPAN_CONTEXT, dtype=np.uint8)
    labels[assistant & headed & (said == ANALYSIS)] = SPAN_ANALYSIS
    labels[assistant & headed & (said == FINAL)] = SPAN_FINAL
    fault(opens[assistant & headed & (labels == SPAN_CONTEXT)], "an assistant message is in neither analysis nor final")

    # Nothing up to the first message, then in turns what a message is, and what comes between it and the next.
    edges = np.concatenate([[0], np.column_stack([opens, closes]).reshape(-1), [tokens.size]])
    painted = np.concatenate([[0], np.column_stack([labels, np.zeros_like(labels)]).reshape(-1)]).astype(np.uint8)
    return np.repeat(painted, np.diff(edges)), faults


def _first_after(marks: npt.NDArray[np.int64], opens: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The first of the positions `marks` after each of `opens`; `size` where there is none."""
    positions = np.append(marks, size)
    return positions[np.searchsorted(positions, opens)]
