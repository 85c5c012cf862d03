"""The texts of a conversation in its documents, without rendering: on all documents, where --source is given.

In: a document's tokens and what is trained of them, the texts of its messages. Out: the texts that are not there. A
template may write a text otherwise than it is, such as without spaces: the model's own proven conversations show
whether this one does, and then nothing is compared.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import AnyStr

import numpy as np
import numpy.typing as npt

from spanloom.families.models.model import Model
from spanloom.families.models.probe.frames import ModelFrames
from spanloom.families.models.verify.messages import PlainConversation, PlainMessage
from spanloom.families.models.verify.reference import ANALYSIS


class Texts:
    """The bytes of tokens, and which texts a document holds."""

    def __init__(self, frames: ModelFrames) -> None:
        self._model: Model = frames.model
        self.kept = self._are_kept(frames)
        """Whether the template writes texts as they are."""
        self._around = self._learned(frames) if self.kept else frozenset()

    def differences(
        self,
        tokens: npt.NDArray[np.int32],
        spans: npt.NDArray[np.uint8],
        answers: Sequence[tuple[Sequence[str], str]],
        prompts: Sequence[str],
        alone: Sequence[Sequence[str] | None] = (),
    ) -> Iterator[str]:
        """What a document lacks, and what is trained beside its texts.

        `tokens` int32 [T]; `spans` uint8 [T], token-aligned; `answers`: reasoning and text of each run, all trained, in
        order; `prompts`: the texts of the messages before the last run; `alone`: of `said_by` for each run, nothing if
        answers are not compared so.
        """
        document, stretches = _Bytes(*self._model.tokenizer.joined_bytes(tokens)), _stretches(spans > 0)
        missing = [*_missing(document, stretches, spans, answers, prompts)]
        yield from (f"the document does not hold the text {text[:40]!r}" for text in missing)
        if not missing and len(stretches) == len(alone):
            yield from (
                f"more is trained than the text {text[:40]!r}" for text in self._beside(document, stretches, alone)
            )

    def _beside(
        self, document: "_Bytes", stretches: Sequence[Sequence[int]], alone: Sequence[Sequence[str] | None]
    ) -> Iterator[str]:
        """The answers beside which more is trained than the template writes around those of the model's own
        conversations. White space is not compared."""
        for (first, last), texts in zip(stretches, alone, strict=True):
            learned = () if texts is None else [around for around in self._around if len(around) == len(texts) + 1]
            if texts is None or not learned:
                continue
            trained, parts = document.of(first, last), [text.encode(errors="replace") for text in texts]
            if any(trained == _woven(around, parts) for around in learned):
                continue
            squeezed, words = _squeezed(_text(trained)), [*map(_squeezed, texts)]
            if not any(
                squeezed == _woven(around, words) for around in self._without_space if len(around) == len(words) + 1
            ):
                yield texts[-1]

    @cached_property
    def _without_space(self) -> frozenset[tuple[str, ...]]:
        """What the template writes around texts, without white space, with each stop token or none at the end."""
        learned = {tuple(_squeezed(_text(piece)) for piece in around) for around in self._around}
        ends = ["", *map(_squeezed, self._model.stops.values())]
        return frozenset((*around[:-1], end) for around in learned for end in (around[-1], *ends))

    def _learned(self, frames: ModelFrames) -> frozenset[tuple[bytes, ...]]:
        """What the template writes before, between and behind the texts of answers without calls."""
        learned = set()
        for conversation, document in frames.documents:
            messages = [conversation.messages[run.run] for run in document.runs]
            stretches = _stretches(document.spans * document.mask > 0)
            if len(stretches) != len(messages):
                continue
            held = _Bytes(*self._model.tokenizer.joined_bytes(document.tokens))
            for (first, last), message in zip(stretches, messages, strict=True):
                texts = [text for text in (message.get("reasoning"), message.get("content")) if text]
                if message.get("content") and not message.get("tool_calls"):
                    learned.add(_around(held.of(first, last), [text.encode() for text in texts]))
        return frozenset(around for around in learned if around is not None)

    def _are_kept(self, frames: ModelFrames) -> bool:
        for conversation, document in frames.documents:
            messages = conversation.messages
            runs = [run.run for run in document.runs]
            answers = [([messages[run].get("reasoning") or ""], messages[run].get("content") or "") for run in runs]
            prompts = [each.get("content") or "" for each in messages[: runs[-1]] if each["role"] != "assistant"]
            if any(self.differences(document.tokens, document.spans * document.mask, answers, prompts)):
                return False
        return bool(frames.documents)


def _missing(
    document: "_Bytes",
    stretches: Sequence[Sequence[int]],
    spans: npt.NDArray[np.uint8],
    answers: Sequence[tuple[Sequence[str], str]],
    prompts: Sequence[str],
) -> Iterator[str]:
    """The texts that a document lacks."""
    if document.holds_all(stretches, spans == ANALYSIS, answers, prompts):
        return
    if answers and len(stretches) != len(answers):  # spans that are not trained cut runs
        whole = _text(b"".join(document.of(first, last) for first, last in stretches))
        yield from (text for reasoning, said in answers for text in (*reasoning, said) if not _holds(whole, text))
    else:
        for (first, last), (reasoning, said) in zip(stretches, answers, strict=bool(answers)):
            labels = spans[first:last]
            thought = _text(document.where(labels == ANALYSIS, first)) if reasoning else ""
            yield from (text for text in reasoning if not _holds(thought, text))
            if not _says(document, first, labels, said):
                yield said
    whole = _text(document.data)
    yield from (text for text in prompts if not _holds(whole, text))


def texts_of(conversation: PlainConversation, runs: Sequence[int]) -> tuple[list[tuple[Sequence[str], str]], list[str]]:
    """Reasoning and text of each run, and the texts of the messages before the last run that are no answers."""
    answers: list[tuple[Sequence[str], str]] = [
        (conversation.messages[run].reasoning, conversation.messages[run].text) for run in runs
    ]
    before = conversation.messages[: runs[-1]]
    return answers, [message.text for message in before if message.role != "assistant"]


def said_by(message: PlainMessage) -> list[str] | None:
    """Reasoning, if there is some, and text of a message; None where the template may write more between them."""
    if message.calls or message.spoken or len(message.reasoning) > 1:
        return None
    return [*message.reasoning, message.text]


@dataclass(frozen=True)
class _Bytes:
    """The bytes of a document's tokens end to end. `edges`: where each begins, with the end of the last, [T + 1]."""

    data: bytes
    edges: npt.NDArray[np.int64]

    def of(self, first: int, last: int) -> bytes:
        """Of tokens [first, last)."""
        return self.data[self.edges[first] : self.edges[last]]

    def holds_all(
        self,
        stretches: Sequence[Sequence[int]],
        is_reasoning: npt.NDArray[np.bool_],
        answers: Sequence[tuple[Sequence[str], str]],
        prompts: Iterable[str],
    ) -> bool:
        """Whether the bytes of all texts are where they belong, so that nothing needs to be read as text. Answers are
        looked for behind the tokens of their reasoning, bool [T]."""
        if answers and len(stretches) != len(answers):
            return False
        counts = np.add.accumulate(is_reasoning, dtype=np.int64) if any(reasoning for reasoning, _ in answers) else None
        for (first, last), (reasoning, said) in zip(stretches, answers, strict=bool(answers)):
            middle = first
            if reasoning:
                assert counts is not None
                middle += int(counts[last - 1] - counts[first - 1]) if first else int(counts[last - 1])
                if not is_reasoning[first:middle].all() or not all(
                    self._has(text, first, middle) for text in reasoning
                ):
                    return False
            if not self._has(said, middle, last):
                return False
        return all(self._has(text, 0, len(self.edges) - 1) for text in prompts)

    def _has(self, text: str, first: int, last: int) -> bool:
        """Whether a text is in the tokens [first, last)."""
        try:
            return self.data.find(text.strip().encode(), int(self.edges[first]), int(self.edges[last])) >= 0
        except UnicodeEncodeError:  # a surrogate
            return False

    def where(self, chosen: npt.NDArray[np.bool_], first: int) -> bytes:
        """Of the tokens that are chosen, bool [N], from the token `first`."""
        return b"".join(self.of(first + begin, first + end) for begin, end in _stretches(chosen))


def _around(data: bytes, texts: Sequence[bytes]) -> tuple[bytes, ...] | None:
    """What is before, between and behind texts; None where one of them is missing."""
    pieces = []
    for text in texts:
        before, found, data = data.partition(text)
        if not found:
            return None
        pieces.append(before)
    return (*pieces, data)


def _woven(around: Sequence[AnyStr], texts: Sequence[AnyStr]) -> AnyStr:
    """The first of `around`, the first text, the second and so on."""
    return around[0][:0].join(piece for pair in zip(around, texts, strict=False) for piece in pair) + around[-1]


def _squeezed(text: str) -> str:
    """A text without white space."""
    return "".join(_composed(text).split())


def _stretches(chosen: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Where chosen items begin and end that follow one another. Args: bool [N]."""
    padded = np.zeros(chosen.size + 2, np.bool_)
    padded[1:-1] = chosen
    stretches: list[list[int]] = np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2).tolist()
    return stretches


def _says(document: _Bytes, begin: int, spans: npt.NDArray[np.uint8], said: str) -> bool:
    """Whether the tokens behind the reasoning hold a text. A token that begins before it is the reasoning's. `spans`:
    of the answer's tokens, from the token `begin`."""
    behind = spans > ANALYSIS
    rest = _text(document.where(behind, begin))
    if _holds(rest, said):
        return True
    first = int(behind.argmax())
    if first == 0:
        return False
    before = _text(document.of(begin + first - 1, begin + first))
    return 0 < (before + rest).find(_written(said)) < len(before)


def _text(data: bytes) -> str:
    return _composed(data.decode(errors="replace"))


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _written(text: str) -> str:
    """A text as it is looked for."""
    return _composed(text).strip()


def _holds(text: str, part: str) -> bool:
    return _written(part) in text
