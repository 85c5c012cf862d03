"""The conversations that a dataset was made from, and what proofs say of its documents.

In: a file of JSON Lines: `messages`, or `prompt` and `completion` as TRL has them. Out: for documents of a batch, which
tokens the model samples by the three methods; documents whose text is another one.

A document belongs to a conversation whose first question it asks. Conversations are proven when a document asks for
them; a few are kept.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from spanloom.audit import classes
from spanloom.audit.auditor import Auditor
from spanloom.audit.documents import Documents, Ints
from spanloom.audit.frames.grammar import USER
from spanloom.audit.frames.reading import Frames
from spanloom.audit.frames.tables import ORDINARY
from spanloom.audit.judging import Proofs
from spanloom.errors import RecordError
from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.prove.refusals import Refusal

_KEPT = 64
_CANDIDATES = 16
"""Conversations with the same first question that are tried for a document."""


@dataclass
class Compared:
    """What became of the documents of a batch.

    matched    documents of which a conversation is there
    unmatched  documents of which none is
    refused    class of the refusal → documents whose conversation is not proven: they are judged by frames alone
    places     class → tokens of the batch
    """

    matched: int = 0
    unmatched: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[int]] = field(default_factory=dict)


class Conversations:
    """A file of conversations, read at the places of its lines. Raises RecordError for a line that is none."""

    def __init__(self, path: Path, auditor: Auditor) -> None:
        self._path, self._auditor = path, auditor
        self._lines: dict[bytes, list[tuple[int, int]]] = {}
        self._kept: OrderedDict[int, Proven | Refusal] = OrderedDict()
        if not path.is_file():
            raise RecordError("the file of conversations is missing", where=str(path), remedy="give JSON Lines")
        offset = 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    conversation = _conversation(line, f"{path}, line {number}")
                    self._lines.setdefault(_question(conversation), []).append((offset, number))
                offset += len(line)

    def compare(self, documents: Documents, frames: Frames, flags: npt.NDArray[np.uint8]) -> tuple[Proofs, Compared]:
        """What proofs say of the documents, and what became of each."""
        compared = Compared()
        known = np.zeros(len(documents), np.bool_)
        sampled = np.zeros(documents.tokens.size, np.bool_)
        ends = documents.ends
        with self._path.open("rb") as stream:
            for number in range(len(documents)):
                start, end = int(ends[number] - documents.lengths[number]), int(ends[number])
                tokens = documents.tokens[start:end]
                question = self._first_question(documents, frames, number)
                lines = self._asking(question)[:_CANDIDATES] if question is not None else []
                if not lines:
                    compared.unmatched += 1
                    continue
                compared.matched += 1
                outcomes = [self._outcome(stream, offset, line) for offset, line in lines]
                proven = [document for each in outcomes if isinstance(each, Proven) for document in each.documents]
                if not proven:
                    compared.refused.update(each.kind for each in outcomes[:1] if isinstance(each, Refusal))
                    continue
                exact = next((each for each in proven if _begins(tokens, each, flags[start:end])), None)
                if exact is not None:
                    known[number] = True
                    core = _core(exact)
                    sampled[start : start + core] = exact.mask[:core] != 0
                    continue
                name, place = self._other_text(tokens, proven)
                compared.places.setdefault(name, []).append(start + place)
        return Proofs(known, sampled), compared

    def _asking(self, question: bytes) -> list[tuple[int, int]]:
        """The lines of conversations with a question, or with what ends it from the beginning of one of its lines.

        Some templates, such as Gemma's, write the system text before the question, in the message of the user.
        """
        at = 0
        while True:
            if lines := self._lines.get(question[at:].strip()):
                return lines
            at = question.find(b"\n", at) + 1
            if not at:
                return []

    def _outcome(self, stream: Any, offset: int, line: int) -> Proven | Refusal:
        outcome = self._kept.get(offset)
        if outcome is None:
            stream.seek(offset)
            conversation = _conversation(stream.readline(), f"{self._path}, line {line}")
            outcome = prove_conversation(self._auditor.model, conversation, self._auditor.proving)
            self._kept[offset] = outcome
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return outcome

    def _first_question(self, documents: Documents, frames: Frames, number: int) -> bytes | None:
        """The text of the first message of the user, without white space around it."""
        own = slice(*np.searchsorted(frames.document, [number, number + 1]))
        asked = np.flatnonzero(frames.roles[own] == USER)
        if not asked.size:
            return None
        frame = own.start + int(asked[0])
        tokens = documents.tokens[int(frames.headed[frame]) : int(frames.ends[frame])].tolist()
        closers = self._auditor.tables.grammar.closers
        end = next((place for place, token in enumerate(tokens) if token in closers), len(tokens))
        return self._text(tokens[:end]).strip()

    def _text(self, tokens: list[int]) -> bytes:
        return b"".join(map(self._auditor.model.tokenizer.token_bytes, tokens))

    def _other_text(self, tokens: npt.NDArray[np.int32], proven: list[Document]) -> tuple[str, int]:
        """Why a document is none of those that are proven, and the token where it begins to be another one."""
        text = self._text(tokens.tolist())
        best, same = "", -1
        for document in proven:
            core = _core(document)
            wanted = self._text(document.tokens[:core].tolist())
            length = min(core, tokens.size)
            other = np.flatnonzero(tokens[:length] != document.tokens[:length])
            at = int(other[0]) if other.size else length
            if text.startswith(wanted):
                return classes.RETOKENISED, min(at, tokens.size - 1)
            if at > same:
                same = at
                best = classes.TRUNCATED if wanted.startswith(text) else classes.TEXT_DIFFERS
        return best, min(same, tokens.size - 1)


def _core(document: Document) -> int:
    """The tokens of a document through the stop token of its last run."""
    return document.runs[-1].tokens.size


def _begins(tokens: npt.NDArray[np.int32], document: Document, flags: npt.NDArray[np.uint8]) -> bool:
    """Whether tokens are those of a document, and no text follows."""
    core = _core(document)
    return (
        tokens.size >= core
        and np.array_equal(tokens[:core], document.tokens[:core])
        and not ((flags[core:] & ORDINARY) != 0).any()
    )


def _conversation(line: bytes, where: str) -> Conversation:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        raise RecordError(f"the line is not JSON: {fault}", where=where, remedy="give JSON Lines") from None
    if not isinstance(record, dict):
        raise RecordError("the line holds no JSON object", where=where, remedy="give an object with `messages`")
    return read_conversation(_with_messages(record), name=where)


def _with_messages(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record of `prompt` and `completion`, lists of messages, as one of `messages`."""
    parts = [record.get("prompt"), record.get("completion")]
    if "messages" not in record and all(isinstance(part, list) for part in parts):
        return {**record, "messages": [message for part in parts for message in part or ()]}
    return record


def _question(conversation: Conversation) -> bytes:
    texts: Iterator[str] = (message["content"] or "" for message in conversation.messages if message["role"] == "user")
    return next(texts, "").strip().encode(errors="surrogatepass")


def merged(found: Mapping[str, tuple[Ints, Ints]], places: Mapping[str, list[int]], ends: Ints) -> dict[str, Any]:
    """Findings of a batch with more places. Documents whose text frames explain are not reported to differ."""
    explained = [
        found[name][0]
        for name in (classes.HISTORY_REWRITTEN, classes.DOUBLE_BOS, classes.MISSING_BOS, classes.SPECIAL_IN_TEXT)
        if name in found
    ]
    known = np.concatenate(explained) if explained else np.zeros(0, np.int64)
    result = dict(found)
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
