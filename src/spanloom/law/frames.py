"""Documents → frames, runs, and the tokens that the model samples, derived from the tokens alone.

In: `Documents`, tables. Out: `Frames`. All of it is array code: Python loops run over frames, not tokens.

A document begins with a system frame; each header begins another frame. A run is the assistant's output from a prompt
to the first stop token. It may have several consecutive frames without a stop token between, as with gpt-oss.

    tokens   S u \\n h i E \\n S a \\n y o E \\n      S = <|im_start|>, E = <|im_end|>
    frames   user           | assistant            run: from y through E; the last \\n comes after the stop
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.law.documents import Bools, Documents, Ints
from spanloom.law.grammar import ASSISTANT, SYSTEM, TOOL, USER, Grammar
from spanloom.law.tables import HEADER, RARE, SPACE, STOP, Tables
from spanloom.supervision import ranges


@dataclass(frozen=True, kw_only=True)
class Frames:
    """K frames and R runs of N documents of T tokens.

    starts    int64 [K]  first token of each frame
    ends      int64 [K]  end of each frame, exclusive
    headed    int64 [K]  end of its header, exclusive
    roles     uint8 [K]
    document  int64 [K]
    run_of    int64 [K]  its run, -1 for frames of context
    begins    int64 [R]  first token of each run that the model samples: after header and prefill
    stops     int64 [R]  end after the stop token, or of a run without one, exclusive
    stopped   bool [R]   whether it has one
    first     int64 [R]  its first frame; `last`: its last one
    either    int64 [E]  tokens that the model may or may not sample: tokens alone cannot decide it
    """

    starts: Ints
    ends: Ints
    headed: Ints
    roles: npt.NDArray[np.uint8]
    document: Ints
    run_of: Ints
    begins: Ints
    stops: Ints
    stopped: Bools
    first: Ints
    last: Ints
    either: Ints

    def sampled(self, tokens: int) -> Bools:
        """The tokens that the model samples, bool [T]."""
        edges = np.concatenate([[0], np.column_stack([self.begins, self.stops]).ravel(), [tokens]])
        sampled: Bools = np.repeat(np.resize([False, True], edges.size - 1), np.diff(edges))
        return sampled

    def frame_of(self, places: Ints) -> Ints:
        """The frame of each token."""
        return np.searchsorted(self.starts, places, side="right") - 1


@dataclass(frozen=True)
class Marks:
    """`flags` uint8 [T], those of tokens; `places` int64 [M], where one is rare; `found` uint8 [M], the flags there."""

    flags: npt.NDArray[np.uint8]
    places: Ints
    found: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, tokens: npt.NDArray[np.int32], tables: Tables) -> "Marks":
        flags = tables.of(tokens)
        places = np.flatnonzero((flags & RARE) != 0)  # of bool: four times as fast as of numbers
        return cls(flags, places, flags[places])

    def of_flag(self, flag: int) -> Ints:
        """The places that have a rare flag."""
        places: Ints = self.places[(self.found & flag) != 0]
        return places


def read_frames(documents: Documents, tables: Tables, marks: Marks) -> Frames:
    """The frames of documents. `marks`: of their tokens."""
    flags = marks.flags
    tokens, grammar = documents.tokens, tables.grammar
    ends = documents.ends
    opens = ends - documents.lengths
    at, roles, headed = _headers(tokens, tables, marks.of_flag(HEADER), ends)
    # A document begins with a frame of its own where no header is at its first token.
    bare = opens[~np.isin(opens, at, assume_unique=True)]
    order = np.argsort(np.concatenate([at, bare]), kind="stable")
    starts = np.concatenate([at, bare])[order]
    roles = np.concatenate([roles, np.full(bare.size, SYSTEM, np.uint8)])[order]
    headed = np.concatenate([headed, bare])[order]
    document = np.searchsorted(ends, starts, side="right")
    closes = np.append(starts[1:], tokens.size)
    headed, either = _tails(tokens, grammar, flags, at, headed, starts, closes, roles)
    return _with_runs(documents, tables, marks.of_flag(STOP), starts, closes, headed, roles, document, either)


def _headers(
    tokens: npt.NDArray[np.int32], tables: Tables, candidates: Ints, ends: Ints
) -> tuple[Ints, npt.NDArray[np.uint8], Ints]:
    """First tokens of headers, their roles, and the ends of their cores. The longest match wins."""
    role = np.full(candidates.size, 255, np.uint8)
    size = np.zeros(candidates.size, np.int64)
    limit = ends[np.searchsorted(ends, candidates, side="right")] if candidates.size else candidates
    for header in tables.grammar.headers:  # short ones first
        fits = candidates + len(header.core) <= limit
        for offset, token in enumerate(header.core):
            fits[fits] = tokens[candidates[fits] + offset] == token
        if header.next_byte is not None:
            behind = candidates + len(header.core)
            followed = fits & (behind < limit)
            fits[followed] = tables.first_bytes_of(tokens[behind[followed]]) == header.next_byte
        role[fits], size[fits] = header.role, len(header.core)
    has_role = role != 255
    return candidates[has_role], role[has_role], (candidates + size)[has_role]


def _tails(
    tokens: npt.NDArray[np.int32],
    grammar: Grammar,
    flags: npt.NDArray[np.uint8],
    at: Ints,
    headed: Ints,
    starts: Ints,
    closes: Ints,
    roles: npt.NDArray[np.uint8],
) -> tuple[Ints, Ints]:
    """Headers with the white space after them, and white-space tokens that extend into the text."""
    headed = headed.copy()
    either: list[Ints] = []
    is_header = np.isin(starts, at, assume_unique=True)
    for role in {header.role for header in grammar.headers}:
        own = np.flatnonzero(is_header & (roles == role))
        tails = {header.tail for header in grammar.headers if header.role == role and header.tail}
        for tail in tails:
            fits = headed[own] + len(tail) <= closes[own]
            for offset, token in enumerate(tail):
                fits[fits] = tokens[headed[own[fits]] + offset] == token
            # White space that is not the header's own is one token with that of the text.
            other = own[~fits & (headed[own] < closes[own])]
            joined = other[(flags[headed[other]] & SPACE) != 0]
            either.append(headed[joined])
            headed[own[fits]] += len(tail)
    return headed, np.concatenate(either) if either else np.zeros(0, np.int64)


def _with_runs(
    documents: Documents,
    tables: Tables,
    stops_at: Ints,
    starts: Ints,
    ends: Ints,
    headed: Ints,
    roles: npt.NDArray[np.uint8],
    document: Ints,
    either: Ints,
) -> Frames:
    tokens = documents.tokens
    closes = documents.ends[document]
    places = np.append(stops_at, tokens.size)
    is_assistant = roles == ASSISTANT
    stop = places[np.searchsorted(places, headed)]
    # The marker of the next speaker may be the stop token: then it is the first token of the next frame.
    has_stop = is_assistant & (stop <= ends) & (stop < closes)
    goes_on = is_assistant[:-1] & is_assistant[1:] & ~has_stop[:-1] & (document[:-1] == document[1:])
    begins_run = is_assistant.copy()
    begins_run[1:] &= ~goes_on
    ends_run = is_assistant.copy()
    ends_run[:-1] &= ~goes_on
    first, last = np.flatnonzero(begins_run), np.flatnonzero(ends_run)
    run_of = np.where(is_assistant, np.cumsum(begins_run) - 1, -1)
    stopped = has_stop[last]
    stops = np.where(stopped, stop[last] + 1, ends[last])
    least, most = _prefilled(tokens, tables.grammar, headed, roles, first, closes[first])
    begins = np.minimum(headed[first] + most, stops)
    # What some variables of the template supply and others let the model sample.
    least = most if tables.supplied else least
    variable = ranges(np.minimum(headed[first] + least, begins), np.maximum(begins - headed[first] - least, 0))
    return Frames(
        starts=starts,
        ends=ends,
        headed=headed,
        roles=roles,
        document=document,
        run_of=run_of,
        begins=begins,
        stops=stops,
        stopped=stopped,
        first=first,
        last=last,
        either=np.concatenate([either, variable]),
    )


def _prefilled(
    tokens: npt.NDArray[np.int32],
    grammar: Grammar,
    headed: Ints,
    roles: npt.NDArray[np.uint8],
    first: Ints,
    closes: Ints,
) -> tuple[Ints, Ints]:
    """Minimum and maximum number of tokens that the generation prompt adds after the header of each run."""
    begins = headed[first]
    before = np.where(roles[first - 1] == TOOL, TOOL, USER)
    least = np.full(begins.size, np.iinfo(np.int64).max)
    most = np.zeros(begins.size, np.int64)
    for role, prefills in grammar.prefills.items():
        for prefill in prefills:
            fits = (before == role) & (begins + len(prefill) <= closes)
            for offset, token in enumerate(prefill):
                fits[fits] = tokens[begins[fits] + offset] == token
            most[fits] = len(prefill)  # short ones first
            least[fits] = np.minimum(least[fits], len(prefill))
    return np.minimum(least, most), most
