"""Documents, and the tokens that the model samples → findings.

In: `Documents`, their frames, tables; for some documents proofs. Out: `Judged`: for each class its documents, with the
first place in each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spanloom.law import classes
from spanloom.law.beginnings import other_beginnings
from spanloom.law.documents import Bools, Counts, Documents, Ints
from spanloom.law.frames import Frames, Marks, read_frames
from spanloom.law.grammar import ASSISTANT, SYSTEM, TOOL, USER
from spanloom.law.tables import ABSENT, CLOSER, ORDINARY, REASONING, SPACE, UNWRITTEN, Tables


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Findings of a batch.

    found    class → (documents int64 [F], sorted; the first place in each, int64 [F], a token of the batch)
    sampled  bool [T]
    frames   the frames of the batch
    """

    found: Mapping[str, tuple[Ints, Ints]]
    sampled: Bools
    frames: Frames


@dataclass(frozen=True)
class Proofs:
    """Results of proofs: `known` bool [N], the documents that have one; `sampled` bool [T], their sampled tokens."""

    known: Bools
    sampled: Bools


def judge(documents: Documents, tables: Tables, proofs: Proofs | None = None) -> Judged:
    """Judges documents. `duplicate`, `retokenised` and `text_differs` need more than a batch and are added later."""
    marks = Marks.of(documents.tokens, tables)
    frames = read_frames(documents, tables, marks)
    trained = Counts(documents.trained)
    sampled = frames.sampled(documents.tokens.size)
    sampled[frames.either] = documents.trained[frames.either]
    of_token = None
    if proofs is not None:
        of_token = np.repeat(proofs.known, documents.lengths)
        sampled = np.where(of_token, proofs.sampled, sampled)
    findings = _Found(documents)
    whole = _whole_documents(documents, marks, trained, findings)
    _masks(documents, tables, frames, sampled, trained, whole, findings)
    _ends(documents, tables, marks, frames, whole, findings)
    _texts(documents, tables, marks, trained, frames, findings)
    begins, answers = other_beginnings(documents, frames, tables.beginnings)
    of_bos = findings.documents(classes.MISSING_BOS, classes.DOUBLE_BOS)
    findings.add(classes.BEGINNING_DIFFERS, begins[~np.isin(np.searchsorted(documents.ends, begins, "right"), of_bos)])
    findings.add(classes.HISTORY_REWRITTEN, answers)
    return Judged(found=findings.sorted(), sampled=sampled, frames=frames)


class _Found:
    """Places by class."""

    def __init__(self, documents: Documents) -> None:
        self.ends = documents.ends
        self._places: dict[str, list[Ints]] = {}

    def add(self, name: str, places: Ints) -> None:
        if places.size:
            self._places.setdefault(name, []).append(places)

    def documents(self, *names: str) -> Ints:
        """The documents that have one of these classes."""
        places = [part for name in names for part in self._places.get(name, ())]
        return np.searchsorted(self.ends, np.concatenate(places), side="right") if places else np.zeros(0, np.int64)

    def sorted(self) -> dict[str, tuple[Ints, Ints]]:
        by_class = {}
        for name, parts in self._places.items():
            places = np.sort(np.concatenate(parts))
            documents, first = np.unique(np.searchsorted(self.ends, places, side="right"), return_index=True)
            by_class[name] = (documents, places[first])
        return by_class


def _whole_documents(documents: Documents, marks: Marks, counted: Counts, findings: _Found) -> Bools:
    """Finds `no_loss`, `all_trained`, unknown ids, labels. Returns bool [N]: documents whose mask marks no turns.

    `counted`: how many tokens are trained before each place.
    """
    ends, starts = documents.ends, documents.ends - documents.lengths
    none = counted[ends] == counted[starts]
    text = (marks.flags & (ORDINARY | SPACE)) != 0
    untrained = Counts(text & ~documents.trained)
    every = ~none & (untrained[ends] == untrained[starts])
    for number in np.flatnonzero(every).tolist():  # control tokens alone are no text
        every[number] = text[starts[number] : ends[number]].any()
    findings.add(classes.NO_LOSS, starts[none])
    findings.add(classes.ALL_TRAINED, starts[every])
    findings.add(classes.UNKNOWN_IDS, marks.of_flag(ABSENT))
    if documents.differs is not None:
        findings.add(classes.LABELS_DIFFER, np.flatnonzero(documents.differs))
    of_no_turns: Bools = none | every
    return of_no_turns


def _masks(
    documents: Documents,
    tables: Tables,
    frames: Frames,
    sampled: Bools,
    counted: Counts,
    whole: Bools,
    findings: _Found,
) -> None:
    """Finds tokens that are trained but not sampled, and sampled but not trained."""
    wrong = np.flatnonzero(documents.trained & ~sampled)
    wrong = wrong[~whole[np.searchsorted(findings.ends, wrong, side="right")]]
    frame = frames.frame_of(wrong)
    roles, run = frames.roles[frame], frames.run_of[frame]
    findings.add(classes.CONTEXT_TRAINED, wrong[(roles == SYSTEM) | (roles == USER)])
    findings.add(classes.TOOL_RESULT_TRAINED, wrong[roles == TOOL])
    own = roles == ASSISTANT
    behind = own & (wrong >= frames.stops[run]) & frames.stopped[run] if frames.stops.size else own
    before = own & (wrong < frames.begins[run]) if frames.stops.size else own
    findings.add(classes.BEHIND_STOP_TRAINED, wrong[behind])
    findings.add(classes.PROMPT_TRAINED, wrong[before])
    # Proofs know: the model samples this answer in another document, where the template writes it otherwise.
    findings.add(classes.HISTORY_REWRITTEN, wrong[own & ~behind & ~before])

    trained = counted[frames.stops] - counted[frames.begins]
    size = frames.stops - frames.begins
    document = frames.document[frames.first] if frames.first.size else frames.first
    judged = ~whole[document] if document.size else np.zeros(0, np.bool_)
    expected = Counts(sampled)
    proven = expected[frames.stops] - expected[frames.begins] == size
    judged &= proven
    untrained = judged & (trained == 0) & (size > 0)
    # No prompt leads to an answer before the first question.
    questions = np.flatnonzero(frames.roles == USER)
    first_user = np.full(len(documents), np.iinfo(np.int64).max)
    np.minimum.at(first_user, frames.document[questions], frames.starts[questions])
    untrained &= frames.starts[frames.first] > first_user[document] if document.size else untrained
    later = _trained_later(document, trained > 0)
    findings.add(classes.HISTORY_UNTRAINED, frames.begins[untrained & later])
    findings.add(classes.COMPLETION_UNTRAINED, frames.begins[untrained & ~later])
    some = np.flatnonzero(judged & (trained > 0))
    stop_lost = some[frames.stopped[some] & ~documents.trained[np.maximum(frames.stops[some] - 1, 0)]]
    findings.add(classes.STOP_UNTRAINED, frames.stops[stop_lost] - 1)
    # The stop token aside, all of the run is to be trained.
    body = size - frames.stopped
    last = frames.stops - frames.stopped
    partly = some[(counted[last] - counted[frames.begins])[some] < body[some]]
    for number in partly.tolist():
        begin = int(frames.begins[number])
        inside = documents.trained[begin : int(last[number])]
        findings.add(classes.COMPLETION_UNTRAINED, np.array([begin + int(np.argmin(inside))]))
    # A trained run without a stop token, where more of the document follows.
    open_runs = some[~frames.stopped[some]]
    ends_document = frames.stops[open_runs] >= findings.ends[document[open_runs]]
    at_end = ends_document & tables.grammar.stop_last
    findings.add(classes.TRUNCATED, frames.stops[open_runs[at_end]] - 1)
    findings.add(classes.STOP_UNTRAINED, frames.stops[open_runs[~at_end]] - 1)


def _trained_later(document: Ints, trained: Bools) -> Bools:
    """Whether a later run of the same document is trained."""
    if not document.size:
        return trained
    place = np.where(trained, np.arange(document.size), -1)
    latest = np.full(int(document.max()) + 1, -1)
    np.maximum.at(latest, document, place)
    later: Bools = latest[document] > np.arange(document.size)
    return later


def _ends(
    documents: Documents,
    tables: Tables,
    marks: Marks,
    frames: Frames,
    whole: Bools,
    findings: _Found,
) -> None:
    """Finds faults of BOS, and documents that end inside a context message, or inside an answer that is not marked."""
    starts = documents.ends - documents.lengths
    first = documents.tokens[starts]
    bos = tables.grammar.bos
    if bos is not None:
        findings.add(classes.MISSING_BOS, starts[first != bos])
        two = documents.lengths > 1
        second = documents.tokens[starts[two] + 1]
        findings.add(classes.DOUBLE_BOS, starts[two][(first[two] == bos) & (second == bos)])
    last = np.searchsorted(frames.document, np.arange(len(documents)), side="right") - 1
    closers = marks.of_flag(CLOSER)
    begins = np.minimum(frames.headed[last], frames.ends[last])
    in_last = np.searchsorted(closers, frames.ends[last]) - np.searchsorted(closers, begins)
    open_end = np.isin(frames.roles[last], list(tables.grammar.closed)) & (in_last == 0)
    # The first frame of a document has no header: it may hold what the template writes before all messages.
    open_end &= frames.headed[last] > frames.starts[last]
    answers = (frames.roles[last] == ASSISTANT) & whole & tables.grammar.stop_last
    runs = frames.run_of[last]
    answers &= ~frames.stopped[runs] if runs.size and frames.stopped.size else answers
    findings.add(classes.TRUNCATED, documents.ends[open_end | answers] - 1)


def _texts(
    documents: Documents, tables: Tables, marks: Marks, counted: Counts, frames: Frames, findings: _Found
) -> None:
    """Finds control tokens in places where the template writes none, and reasoning in history."""
    flags = marks.flags
    findings.add(classes.SPECIAL_IN_TEXT, marks.of_flag(UNWRITTEN))
    # Behind the token that closes a message is white space alone.
    closers = np.append(marks.of_flag(CLOSER), documents.tokens.size)
    ordinary = Counts((flags & ORDINARY) != 0)
    closed = closers[np.searchsorted(closers, frames.headed)]
    # A frame without a header may hold several texts that the template writes before all messages.
    inside = (closed < frames.ends) & (frames.headed > frames.starts)
    behind = ordinary[frames.ends[inside]] - ordinary[closed[inside] + 1]
    # Another control token behind it belongs to the template: tools are written between messages by some.
    goes_on = (flags[np.minimum(closed[inside] + 1, flags.size - 1)] & (ORDINARY | SPACE)) != 0
    if not tables.grammar.text_behind:
        findings.add(classes.SPECIAL_IN_TEXT, closed[inside][(behind > 0) & goes_on])
    if tables.grammar.reasoning is not None:
        findings.add(classes.HISTORY_REWRITTEN, _reasoning_in_history(documents, tables, marks, counted, frames))


def _reasoning_in_history(documents: Documents, tables: Tables, marks: Marks, counted: Counts, frames: Frames) -> Ints:
    """Where reasoning begins that precedes the question of a trained run."""
    core = tables.grammar.reasoning
    assert core is not None
    places = marks.of_flag(REASONING)
    fits = places + len(core) <= documents.tokens.size
    for offset, token in enumerate(core):
        fits[fits] = documents.tokens[places[fits] + offset] == token
    places = places[fits]
    if not places.size or not frames.first.size:
        return places[:0]
    trained = counted[frames.stops] - counted[frames.begins] > 0
    last_trained = np.full(len(documents), -1)
    np.maximum.at(last_trained, frames.document[frames.first[trained]], frames.starts[frames.first[trained]])
    questions = np.flatnonzero(frames.roles == USER)
    before = questions[frames.starts[questions] < last_trained[frames.document[questions]]]
    question = np.full(len(documents), -1)
    np.maximum.at(question, frames.document[before], frames.starts[before])
    frame = frames.frame_of(places)
    kept: Ints = places[(frames.roles[frame] == ASSISTANT) & (places < question[frames.document[frame]])]
    return kept
