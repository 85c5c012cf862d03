"""The texts of a conversation in its documents, without rendering: on all documents, where --source is given.

In: a document's tokens and what is trained of them, the texts of its messages. Out: the texts that are not there. A
template may write a text otherwise than it is, such as without spaces: the model's own proven conversations show
whether this one does, and then nothing is compared.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt

from spanloom.families.models.model import Model
from spanloom.families.models.probe.frames import ModelFrames
from spanloom.families.models.verify.messages import PlainConversation
from spanloom.families.models.verify.reference import ANALYSIS


class Texts:
    """The bytes of tokens, and which texts a document holds."""

    def __init__(self, frames: ModelFrames) -> None:
        self._model: Model = frames.model
        self.kept = self._are_kept(frames)
        """Whether the template writes texts as they are."""

    def missing(
        self,
        tokens: npt.NDArray[np.int32],
        spans: npt.NDArray[np.uint8],
        answers: Sequence[tuple[Sequence[str], str]],
        prompts: Iterable[str],
    ) -> Iterator[str]:
        """The texts that a document lacks. `tokens` int32 [T]; `spans` uint8 [T], token-aligned; `answers`: reasoning
        and text of each run, all trained, in order; `prompts`: the texts of the messages before the last run."""
        pieces = self._model.tokenizer.pieces(tokens.tolist())
        edges = np.flatnonzero(np.diff((spans > 0).astype(np.int8), prepend=0, append=0))
        stretches = edges.reshape(-1, 2).tolist()
        if answers and len(stretches) != len(answers):  # spans that are not trained cut runs
            whole = "".join(_text(pieces[first:last]) for first, last in stretches)
            yield from (text for reasoning, said in answers for text in (*reasoning, said) if not _holds(whole, text))
        else:
            for (first, last), (reasoning, said) in zip(stretches, answers, strict=bool(answers)):
                own, labels = pieces[first:last], spans[first:last]
                thought = _text(compress(own, (labels == ANALYSIS).tolist()))
                yield from (text for text in reasoning if not _holds(thought, text))
                if not _says(own, labels, said):
                    yield said
        whole = _text(pieces)
        yield from (text for text in prompts if not _holds(whole, text))

    def _are_kept(self, frames: ModelFrames) -> bool:
        for conversation, document in frames.documents:
            messages = conversation.messages
            runs = [run.run for run in document.runs]
            answers = [([messages[run].get("reasoning") or ""], messages[run].get("content") or "") for run in runs]
            prompts = [each.get("content") or "" for each in messages[: runs[-1]] if each["role"] != "assistant"]
            if any(self.missing(document.tokens, document.spans * document.mask, answers, prompts)):
                return False
        return bool(frames.documents)


def texts_of(conversation: PlainConversation, runs: Sequence[int]) -> tuple[list[tuple[Sequence[str], str]], list[str]]:
    """Reasoning and text of each run, and the texts of the messages before the last run that are no answers."""
    answers: list[tuple[Sequence[str], str]] = [
        (conversation.messages[run].reasoning, conversation.messages[run].text) for run in runs
    ]
    before = conversation.messages[: runs[-1]]
    return answers, [message.text for message in before if message.role != "assistant"]


def _says(pieces: Sequence[bytes], spans: npt.NDArray[np.uint8], said: str) -> bool:
    """Whether the tokens behind the reasoning hold a text. A token that begins before it is the reasoning's."""
    behind = spans > ANALYSIS
    rest = _text(compress(pieces, behind.tolist()))
    if _holds(rest, said):
        return True
    first = int(behind.argmax())
    if first == 0:
        return False
    before = _text(pieces[first - 1 : first])
    return 0 < (before + rest).find(unicodedata.normalize("NFC", said).strip()) < len(before)


def _text(pieces: Iterable[bytes]) -> str:
    return unicodedata.normalize("NFC", b"".join(pieces).decode(errors="replace"))


def _holds(text: str, part: str) -> bool:
    return unicodedata.normalize("NFC", part).strip() in text
