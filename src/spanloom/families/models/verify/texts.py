"""The texts of a conversation in its documents, without rendering: on all documents, where --source is given.

In: a document's tokens and what is trained of them, the texts of its messages. Out: the texts that are not there. A
template may write a text otherwise than it is, such as without spaces: the model's own proven conversations show
whether this one does, and then nothing is compared.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from spanloom.families.models.model import Model
from spanloom.families.models.probe.frames import ModelFrames
from spanloom.families.models.verify.messages import PlainConversation


class Texts:
    """The bytes of tokens, and which texts a document holds."""

    def __init__(self, frames: ModelFrames) -> None:
        self._model: Model = frames.model
        self._pieces: dict[int, bytes] = {}
        self.kept = self._are_kept(frames)
        """Whether the template writes texts as they are."""

    def missing(
        self,
        tokens: npt.NDArray[np.int32],
        trained: npt.NDArray[np.bool_],
        answers: Sequence[Sequence[str]],
        prompts: Iterable[str],
    ) -> Iterator[str]:
        """The texts that a document lacks. `tokens` int32 [T]; `trained` bool [T], token-aligned; `answers`: the
        trained texts of each run, in order; `prompts`: those of the messages before the last run."""
        edges = np.flatnonzero(np.diff(trained.astype(np.int8), prepend=0, append=0))
        stretches = [self._text(tokens[first:last]) for first, last in edges.reshape(-1, 2).tolist()]
        if answers and len(stretches) != len(answers):  # spans that are not trained cut runs
            stretches = ["".join(stretches)] * len(answers)
        for stretch, texts in zip(stretches, answers, strict=bool(answers)):
            yield from (text for text in texts if not _holds(stretch, text))
        whole = self._text(tokens)
        yield from (text for text in prompts if not _holds(whole, text))

    def _text(self, tokens: npt.NDArray[np.int32]) -> str:
        pieces, known = [], self._pieces
        for token in tokens.tolist():
            if token not in known:
                known[token] = self._model.tokenizer.token_bytes(token)
            pieces.append(known[token])
        return unicodedata.normalize("NFC", b"".join(pieces).decode(errors="replace"))

    def _are_kept(self, frames: ModelFrames) -> bool:
        for messages, document in frames.documents:
            runs = [run.run for run in document.runs]
            answers = [[messages[run].get("reasoning") or "", messages[run].get("content") or ""] for run in runs]
            prompts = [each.get("content") or "" for each in messages[: runs[-1]] if each["role"] != "assistant"]
            if any(self.missing(document.tokens, document.mask.astype(np.bool_), answers, prompts)):
                return False
        return bool(frames.documents)


def texts_of(conversation: PlainConversation, runs: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The trained texts of each run, and those of the messages before the last run that are no answers."""
    answers = [[*conversation.messages[run].reasoning, conversation.messages[run].text] for run in runs]
    before = conversation.messages[: runs[-1]]
    return answers, [message.text for message in before if message.role != "assistant"]


def _holds(text: str, part: str) -> bool:
    return unicodedata.normalize("NFC", part).strip() in text
