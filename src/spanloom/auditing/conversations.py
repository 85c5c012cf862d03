"""Compares documents with the proofs of their source conversations.

In: the documents of a batch, the files of `messages`. Out: for documents with a proven text, the tokens that the model
samples according to the three methods; and the documents with another text.

A document is matched to conversations by its first question. Conversations are proven when a document needs them; a few
proofs are cached. If many conversations have the same question, all are proven once, and the prefixes of their texts
decide which of them a document may be.
"""

from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.auditing.auditor import Auditor
from spanloom.auditing.messages import Messages
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.prove.refusals import Refusal
from spanloom.families.models.prove.run import Rendered
from spanloom.law import classes
from spanloom.law.documents import Documents, Ints
from spanloom.law.frames import Frames
from spanloom.law.grammar import USER
from spanloom.law.judging import Proofs
from spanloom.law.tables import ORDINARY
from spanloom.storage.temporaries import check_temporary_folder

_TextOf = Callable[[list[int]], bytes]

_KEPT = 64
_FEW = 16
"""Up to so many conversations with the same first question are each compared with a document."""


@dataclass
class Compared:
    """Counts of the documents of a batch.

    matched    documents with a conversation
    unmatched  documents without one
    refused    class of the refusal → documents whose conversation is not proven: only frames judge them.
               `not_read`: the row is not a valid conversation
    places     class → tokens of the batch
    """

    matched: int = 0
    unmatched: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[int]] = field(default_factory=dict)


class Conversations:
    """Conversations in a folder of `messages`, proven on first use."""

    def __init__(self, folder: Path, auditor: Auditor) -> None:
        self._messages, self._auditor = Messages(folder), auditor
        self._kept: OrderedDict[int, Proven | Refusal] = OrderedDict()
        self._many: dict[int, _Many] = {}

    def compare(self, documents: Documents, frames: Frames, flags: npt.NDArray[np.uint8]) -> tuple[Proofs, Compared]:
        """Compares documents with their proofs, and counts the outcomes."""
        compared = Compared()
        known = np.zeros(len(documents), np.bool_)
        sampled = np.zeros(documents.tokens.size, np.bool_)
        ends = documents.ends
        for number in range(len(documents)):
            start, end = int(ends[number] - documents.lengths[number]), int(ends[number])
            tokens = documents.tokens[start:end]
            question = self._first_question(documents, frames, number)
            asking = next(filter(None, map(self._messages.asking, _questions(question))), [])
            if not asking:
                compared.unmatched += 1
                continue
            compared.matched += 1
            proven, refused = self._proven(asking, tokens)
            exact = next((each for each in proven if _begins(tokens, each, flags[start:end])), None)
            if exact is None and not documents.trained[end - 1]:
                exact = next((each for each in proven if self._goes_on(tokens, each, asking, flags[start:end])), None)
            if exact is not None:
                known[number] = True
                core = _core(exact)
                sampled[start : start + core] = exact.mask[:core] != 0
                continue
            if refused is None and any(map(self._messages.in_refused, _questions(question))):
                refused = "not_read"
            name, place = self._other_text(tokens, proven)
            if refused is not None and name in (classes.TEXT_DIFFERS, ""):
                # The document may be that of a conversation which is not proven.
                compared.refused[refused] += 1
            else:
                compared.places.setdefault(name, []).append(start + place)
        return Proofs(known, sampled), compared

    def _proven(self, asking: Sequence[int], tokens: npt.NDArray[np.int32]) -> tuple[list[Document], str | None]:
        """The proven documents that may equal a document, and the reason if a conversation is not proven."""
        refused = None
        if len(asking) > _FEW:
            if asking[0] not in self._many:
                self._many[asking[0]] = _Many(map(self._prove, asking), asking, self._text)
            many = self._many[asking[0]]
            asking, refused = many.alike(self._text(tokens.tolist())), many.refused
        outcomes = [self._outcome(place) for place in asking]
        refusals = [each.kind for each in outcomes if isinstance(each, Refusal)]
        proven = [document for each in outcomes if isinstance(each, Proven) for document in each.documents]
        return proven, refused or next(iter(refusals), None)

    def _outcome(self, place: int) -> Proven | Refusal:
        outcome = self._kept.get(place)
        if outcome is None:
            outcome = self._kept[place] = self._prove(place)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return outcome

    def _prove(self, place: int) -> Proven | Refusal:
        return prove_conversation(self._auditor.model, self._messages.at(place), self._auditor.proving)

    def _first_question(self, documents: Documents, frames: Frames, number: int) -> bytes:
        """The text of the first user message; empty if there is none."""
        own = slice(*np.searchsorted(frames.document, [number, number + 1]))
        questions = np.flatnonzero(frames.roles[own] == USER)
        if not questions.size:
            return b""
        frame = own.start + int(questions[0])
        tokens = documents.tokens[int(frames.headed[frame]) : int(frames.ends[frame])].tolist()
        closers = self._auditor.tables.grammar.closers
        end = next((place for place, token in enumerate(tokens) if token in closers), len(tokens))
        return self._text(tokens[:end])

    def _text(self, tokens: list[int]) -> bytes:
        return b"".join(self._auditor.model.tokenizer.pieces(tokens))

    def _goes_on(
        self, tokens: npt.NDArray[np.int32], document: Document, asking: Sequence[int], flags: npt.NDArray[np.uint8]
    ) -> bool:
        """Whether a document has the messages behind its last answer too, as the template writes them."""
        core = _core(document)
        if not np.array_equal(tokens[:core], document.tokens[:core]):
            return False
        last = int(np.flatnonzero(flags & ORDINARY)[-1]) + 1  # a control token may be behind it
        text, whole = (self._text(tokens[:end].tolist()) for end in (last, tokens.size))
        texts = (each.rstrip() for place in asking for each in self._whole(place))
        return any(whole.startswith(each) and len(each) >= len(text.rstrip()) for each in texts)

    def _whole(self, place: int) -> Iterator[bytes]:
        """The texts of a conversation with what follows its last answer, under each set of variables."""
        conversation = self._messages.at(place)
        if conversation.messages[-1]["role"] == "assistant":
            return
        rendered = Rendered(self._auditor.model, conversation, self._auditor.proving.form)
        for variables in self._auditor.proving.variables:
            try:
                yield rendered.text(rendered.plain, variables, prompt=False).encode(errors="surrogatepass")
            except RefusedError:
                continue

    def _other_text(self, tokens: npt.NDArray[np.int32], proven: list[Document]) -> tuple[str, int]:
        """Why a document differs from all proven ones, and the first token that differs."""
        text = self._text(tokens.tolist())
        best, same = "", -1
        for document in proven:
            core = _core(document)
            wanted = self._text(document.tokens[:core].tolist())
            length = min(core, tokens.size)
            other = np.flatnonzero(tokens[:length] != document.tokens[:length])
            at = int(other[0]) if other.size else length
            if text.startswith(wanted) and at < core:
                return classes.RETOKENISED, min(at, tokens.size - 1)
            if at > same:
                same = at
                best = classes.TRUNCATED if wanted.startswith(text) else classes.TEXT_DIFFERS
        return best, min(same, tokens.size - 1)


def _questions(text: bytes) -> Iterator[bytes]:
    """A text and all its suffixes that begin at a line, stripped of white space.

    Some templates, such as Gemma's, write the system text before the question, in the user message.
    """
    at = 0
    while True:
        if question := text[at:].strip():
            yield question
        at = text.find(b"\n", at) + 1
        if not at:
            return


def _core(document: Document) -> int:
    """The tokens of a document through the stop token of its last run."""
    return document.runs[-1].tokens.size


def _begins(tokens: npt.NDArray[np.int32], document: Document, flags: npt.NDArray[np.uint8]) -> bool:
    """Whether tokens equal those of a document, and no text follows."""
    core = _core(document)
    return (
        tokens.size >= core
        and np.array_equal(tokens[:core], document.tokens[:core])
        and not ((flags[core:] & ORDINARY) != 0).any()
    )


class _Many:
    """Many conversations with the same first question, by digests of the prefixes of their texts.

    `refused`: why one of them is not proven, None if all are. A document takes about 200 bytes of memory; the texts are
    in a file.
    """

    def __init__(self, outcomes: Iterator[Proven | Refusal], places: Sequence[int], text_of: _TextOf) -> None:
        self.refused: str | None = None
        check_temporary_folder()
        self._file = TemporaryFile()  # noqa: SIM115
        self._places, self._sizes = array("q"), array("q")
        self._lengths: set[int] = set()
        whole, begins = (array("Q"), array("Q")), (array("Q"), array("Q"))
        for place, outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, Refusal):
                self.refused = self.refused or outcome.kind
                continue
            for document in outcome.documents:
                text = text_of(document.tokens[: _core(document)].tolist())
                *parts, last = _beginnings(text, [*_powers(text), len(text)])
                whole[0].append(last)
                whole[1].append(len(self._places))
                begins[0].extend(parts)
                begins[1].extend([len(self._places)] * len(parts))
                self._places.append(place)
                self._sizes.append(self._file.write(text))
                self._lengths.add(len(text))
        self._starts = np.cumsum([0, *self._sizes]).tolist()
        self._whole, self._begins = _by_digest(*whole), _by_digest(*begins)

    def alike(self, text: bytes) -> list[int]:
        """Conversations whose text is a prefix of the document's; otherwise the one with the longest common prefix."""
        fitting = sorted(length for length in self._lengths if length <= len(text))
        if whole := [number for begin in _beginnings(text, fitting) for number in _with_digest(self._whole, begin)]:
            return sorted({self._places[number] for number in whole})
        for begin in reversed(_beginnings(text, _powers(text))):
            if shared := _with_digest(self._begins, begin):
                return [self._places[max(shared, key=lambda number: (self._same(number, text), -number))]]
        return self._places[:1].tolist()

    def _same(self, number: int, text: bytes) -> int:
        """The length in bytes of the common prefix of a text and that of a document."""
        self._file.seek(self._starts[number])
        wanted = np.frombuffer(self._file.read(self._sizes[number])[: len(text)], np.uint8)
        other = np.flatnonzero(wanted != np.frombuffer(text, np.uint8)[: wanted.size])
        return int(other[0]) if other.size else wanted.size


_Digests = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
"""Sorted digests, and an index for each."""


def _by_digest(digests: "array[int]", places: "array[int]") -> _Digests:
    keys, values = np.frombuffer(digests, np.uint64), np.frombuffer(places, np.uint64)
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]


def _with_digest(digests: _Digests, wanted: int) -> list[int]:
    keys, places = digests
    key = np.uint64(wanted)
    candidates: list[int] = places[np.searchsorted(keys, key) : np.searchsorted(keys, key, side="right")].tolist()
    return candidates


def _powers(text: bytes) -> list[int]:
    """1, 2, 4 … and the length of a text."""
    return [1 << bit for bit in range(len(text).bit_length())]


def _beginnings(text: bytes, lengths: Sequence[int]) -> list[int]:
    """The digests of the prefixes of a text with these ascending lengths."""
    hashed, at, beginnings = blake2b(digest_size=8), 0, []
    for length in lengths:
        hashed.update(text[at:length])
        at = length
        beginnings.append(int.from_bytes(hashed.digest(), "little"))
    return beginnings


_EXPLAIN = (
    classes.HISTORY_REWRITTEN,
    classes.DOUBLE_BOS,
    classes.MISSING_BOS,
    classes.BEGINNING_DIFFERS,
    classes.SPECIAL_IN_TEXT,
)
"""Classes that say why a text differs."""


def merged(matches: Mapping[str, tuple[Ints, Ints]], places: Mapping[str, list[int]], ends: Ints) -> dict[str, Any]:
    """Adds places to the findings of a batch. Documents whose text the frames explain are not reported as different."""
    explained = [matches[name][0] for name in _EXPLAIN if name in matches]
    known = np.concatenate(explained) if explained else np.zeros(0, np.int64)
    result = dict(matches)
    for name, added in places.items():
        tokens = np.sort(np.array(added, np.int64))
        documents = np.searchsorted(ends, tokens, side="right")
        if name == classes.TEXT_DIFFERS:
            keep = ~np.isin(documents, known)
            documents, tokens = documents[keep], tokens[keep]
        if name in result:
            documents = np.concatenate([result[name][0], documents])
            tokens = np.concatenate([result[name][1], tokens])
        documents, first = np.unique(documents, return_index=True)
        if documents.size:
            result[name] = (documents, tokens[first])
    return result
