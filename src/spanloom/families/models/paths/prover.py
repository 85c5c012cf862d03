"""Conversations → documents by the paths of a template, where paths give them.

In: a model, how conversations are proven. Out: for each conversation its documents, equal to those of
`prove_conversation`, or the reason why a path does not give them. A layout (a path, which texts are blank, the prompt)
is used once the full proof has proven a run of it and given the same tokens, mask and spans.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from spanloom.errors import SpanloomError
from spanloom.families.models.conversation import Conversation
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import INLINE, AsGiven, shaped
from spanloom.families.models.model import Model
from spanloom.families.models.paths.clean import clean_tokens
from spanloom.families.models.paths.leaves import NoRule
from spanloom.families.models.paths.runs import NextMessage, PathRun, UnknownCall, Walked
from spanloom.families.models.prove.controls import controls_of
from spanloom.families.models.prove.conversation import Proven, Proving, order_of_variables
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.prove.run import SALTS, ProvenRun, Rendered, alike, prove_run
from spanloom.families.models.prove.turn_end import next_message
from spanloom.supervision import Tokens
from spanloom.tokenizers.chat_template import Rendering
from spanloom.tokenizers.template_paths.paths import Paths

MOST_MESSAGES, MOST_CHARACTERS = 2_000, 4_000_000
"""Of a conversation. A longer one goes to the full proof, where the limits of a rendering hold."""

TRIES = 3
"""Runs of one layout that the full proof may refuse before the layout is given up."""

_ODD = (*(f"Q{salt}" for salt in SALTS), "7300000")
"""What the words of method S are made of: a conversation with one goes to the full proof."""


@dataclass(frozen=True)
class ByPath:
    """The documents of a conversation by path. `texts`: P and F of each run, as the template must write them."""

    proven: Proven
    texts: tuple[tuple[Rendering, str], ...]

    def is_rendered(self, model: Model, choice: int) -> bool:
        """Whether the template writes one of the texts, which `choice` chooses."""
        rendering, text = self.texts[choice % len(self.texts)]
        (rendered,) = model.template.render_all([rendering])
        return rendered == text


class PathProver:
    """The paths of one model in one process. `reason`: why the last conversation did not go by path."""

    def __init__(self, model: Model, proving: Proving) -> None:
        self._model, self._proving = model, proving
        self._paths: dict[int, Paths] = {}
        self._layouts: dict[Any, _Layout] = {}
        self._constants: dict[str, Tokens] = {}
        self.reason = ""
        self._next_ends = False  # whether the marker of the next message ends a turn
        clean = clean_tokens(model.tokenizer.path)
        self._clean = re.compile("|".join(map(re.escape, sorted(clean, key=len, reverse=True))) or "(?!)")
        self._ends = tuple(clean)
        self.unusable = self._why_unusable(clean)

    def _why_unusable(self, clean: frozenset[str]) -> str | None:
        """Why no conversation of this model goes by path, or None."""
        model = self._model
        if not clean >= set(model.stops.values()) or not model.encoder.fast:
            return "the tokenizer may not be cut at its stop tokens"
        if model.undated:
            return "the template may write today's date"
        if model.template.marks_generation:
            return "the template marks what is generated"
        constants = model.template.special_tokens
        now = model.template.now
        try:
            for number, variables in enumerate(self._proving.variables):
                strftime = None if now is None else now.strftime
                self._paths[number] = Paths(model.template.text, {**constants, **variables}, strftime)
        except Exception as fault:  # Unloggable; or what Jinja raises, for which the full proof has words
            return _reason(fault)
        return None

    @property
    def renderings(self) -> int:
        """How many conversations were rendered to learn paths."""
        return sum(paths.renderings for paths in self._paths.values())

    def documents(self, conversation: Conversation) -> ByPath | None:
        """The documents of a conversation, or None if it takes the full proof. Raises TemplateLimitError."""
        try:
            try:
                return self._proven(conversation)
            except NextMessage:
                self._next_ends = True
                return self._proven(conversation)
        except NoRule as fault:
            self.reason = _reason(fault)
        except SpanloomError:
            raise
        except Exception as fault:  # a fault of this package costs time; the full proof decides
            self.reason = f"unexpected: {_reason(fault)}"
        return None

    def _proven(self, conversation: Conversation) -> ByPath:
        model, proving = self._model, self._proving
        if self.unusable is not None:
            raise NoRule(self.unusable)
        _check(model, proving, conversation)
        given = [shaped(message, proving.form, AsGiven()) for message in conversation.messages]
        messages = [{key: value for key, value in message.items() if value is not None} for message in given]
        last = conversation.runs()[-1]
        if self._next_ends:
            following = [] if messages[last + 1 :] else [next_message(given[last])]
            known = [*messages[: last + 2], *following]
        else:
            known = messages[: last + 1]
        walked = {
            number: Walked(model, paths, proving.variables[number], conversation, known)
            for number, paths in self._paths.items()
        }
        runs: list[_Run] = []
        for run in conversation.runs():
            for number in order_of_variables(conversation.messages[run], proving.variables):
                found = _walked_run(walked[number], run)
                if found is not None:
                    runs.append(self._confirmed(number, found, conversation, runs[-1] if runs else None))
                    break
            else:
                raise NoRule("the template does not continue its own prompt")
        proven = Proven(tuple(self._document(chain) for chain in _chains(runs)))
        return ByPath(proven, tuple(text for run in runs for text in _texts_of(run.found, given, conversation.tools)))

    def _confirmed(self, number: int, found: PathRun, conversation: Conversation, before: "_Run | None") -> "_Run":
        """The run with its tokens, if the full proof has proven its layout. `before`: the run before. Raises NoRule."""
        bos = self._model.template.special_tokens.get("bos_token")
        if bos and found.whole.startswith(bos + bos):
            raise NoRule("the text begins with two BOS")
        run = _Run(found, *self._tokens(found, before))
        layout = self._layouts.setdefault((number, found.key), _Layout())
        if layout.thought is None:
            if layout.refused >= TRIES:
                raise NoRule("the full proof refuses this layout")
            proving = self._proving
            rendered = Rendered(self._model, conversation, proving.form, proving.control_texts, proving.eod)
            try:
                proven = prove_run(rendered, found.run, found.variables, served=proving.served)
            except RefusedError:
                layout.refused += 1
                raise NoRule("the full proof refuses this layout") from None
            run.thought = proven.thought
            if not alike(run.proven(), proven):
                layout.refused += 1
                raise NoRule("the full proof gives another run")
            layout.thought = proven.thought
        run.thought = layout.thought
        return run

    def _tokens(self, found: PathRun, before: "_Run | None") -> tuple[Tokens, int, int, Any]:
        """The tokens of F, of P, through the stop, and the spans of the trained ones. Those of the run before are taken
        where F goes on behind its stop. Raises NoRule."""
        whole, known, pieces = found.whole, 0, [np.empty(0, np.int32)]
        if before is not None and before.found.stop <= found.begin and _goes_on(before.found, found):
            known, pieces = before.found.stop, [before.tokens[: before.end]]
        for cut in (found.begin, *found.closings, found.stop):
            if 0 < cut < len(whole) and not self._is_clean(whole, cut):
                raise NoRule("a run or span begins where the text may not be cut")
        places = sorted({known, found.begin, *found.closings, found.stop, len(whole)})
        pieces += [self._ids(whole[begin:end]) for begin, end in pairwise(places)]
        starts = dict(zip(places, np.cumsum([*map(len, pieces)]).tolist(), strict=True))
        tokens = np.concatenate(pieces).astype(np.int32)
        opening = self._ids(whole[found.begin : found.prompt])
        first = starts[found.begin] + len(opening)
        if not np.array_equal(tokens[starts[found.begin] : first], opening):
            raise NoRule("a token spans the end of the prompt")
        end = starts[found.stop]
        spans = np.empty(end - first, np.uint8)
        edges = [first, *(starts[closing] for closing in found.closings), end]
        for (begin, until), span in zip(pairwise(edges), found.numbers, strict=True):
            spans[begin - first : until - first] = span
        return tokens, first, end, spans

    def _is_clean(self, whole: str, cut: int) -> bool:
        """Whether a text may be cut here: a clean token begins or ends."""
        return bool(self._clean.match(whole, cut)) or whole.endswith(self._ends, 0, cut)

    def _ids(self, text: str) -> Tokens:
        ids = self._constants.get(text)
        if ids is None:
            ids = self._model.encoder.ids(text) if text else np.empty(0, np.int32)
            if len(text) < 40 and len(self._constants) < 10_000:
                self._constants[text] = ids
        return ids

    def _document(self, chain: Sequence["_Run"]) -> Document:
        last = chain[-1]
        mask, spans = np.zeros(len(last.tokens), np.uint8), np.zeros(len(last.tokens), np.uint8)
        runs = []
        for run in chain:
            mask[run.first : run.end] = 1
            spans[run.first : run.end] = run.spans
            runs.append(run.proven())
        return Document(text=last.found.whole, tokens=last.tokens, mask=mask, spans=spans, runs=tuple(runs))


class _Layout:
    """A layout: whether it trains an empty thought, once the full proof has proven a run of it; or how often it was
    refused."""

    def __init__(self) -> None:
        self.thought: bool | None = None
        self.refused = 0


class _Run:
    """A run with its tokens: those of F, the number of P's, the end of the trained ones, their spans."""

    def __init__(self, found: PathRun, tokens: Tokens, first: int, end: int, spans: Any) -> None:
        self.found, self.tokens, self.first, self.end, self.spans = found, tokens, first, end, spans
        self.thought = False

    def proven(self) -> ProvenRun:
        """As the full proof gives it."""
        found = self.found
        return ProvenRun(
            run=found.run,
            text=found.whole[: found.stop],
            prompt=found.prompt,
            tokens=self.tokens[: self.end],
            first=self.first,
            end=self.end,
            spans=self.spans,
            tail=found.whole[found.stop :],
            tail_tokens=self.tokens[self.end :],
            variables=found.variables,
            boundary="joined",
            turn_end=found.turn_end,
            trimmed=found.trimmed,
            forgotten=found.forgotten,
            generation=None,
            thought=self.thought,
        )


def _chains(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Runs by documents, as `documents_of_runs` has it. A text is cut at whole tokens, so that equal texts have equal
    tokens."""
    chains: list[list[_Run]] = []
    for run in runs:
        fitting = [chain for chain in chains if _goes_on(chain[-1].found, run.found)]
        if fitting:
            max(fitting, key=lambda chain: chain[-1].end).append(run)
        else:
            chains.append([run])
    return chains


def _goes_on(earlier: PathRun, run: PathRun) -> bool:
    """Whether P begins with the text of an earlier run, through its stop."""
    stop = earlier.stop
    return stop <= run.prompt and run.whole.startswith(earlier.whole[:stop])


def _walked_run(walked: Walked, run: int) -> PathRun | None:
    try:
        return walked.run(run)
    except UnknownCall:
        walked.learn_calls()
        return walked.run(run)


def _check(model: Model, proving: Proving, conversation: Conversation) -> None:
    """Raises NoRule for a conversation that goes to the full proof whatever its path is."""
    messages = conversation.messages
    if not conversation.runs():
        raise NoRule("there is no run")
    if len(messages) > MOST_MESSAGES or sum(map(_length, messages)) > MOST_CHARACTERS:
        raise NoRule("the conversation is long")
    if conversation.variables:
        raise NoRule("the conversation has variables of its own")
    if any(message.get("truncated") for message in messages):
        raise NoRule("a message is truncated")
    if any(message["role"] == "user" and message.get("name") for message in messages):
        raise NoRule("a user has a name")
    if proving.form.reasoning == INLINE and any(message.get("reasoning") for message in messages):
        raise NoRule("the reasoning is written into the content")
    if any(not call["name"].strip() for message in messages for call in message.get("tool_calls") or ()):
        raise NoRule("a call without a name")
    if controls_of(model, conversation, proving.eod):
        raise NoRule("a control token in a text")
    if any(map(_is_odd, (text for message in messages for text in _texts(message)))):
        raise NoRule("an odd text")


def _texts(message: Mapping[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    return [message.get("content") or "", message.get("reasoning") or "", repr(calls) if calls else ""]


def _is_odd(text: str) -> bool:
    return any(word in text for word in _ODD) or not (text.isascii() or _is_text(text))


def _is_text(text: str) -> bool:
    """Whether a text has no surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _length(message: Mapping[str, Any]) -> int:
    return sum(map(len, _texts(message)))


def _texts_of(
    found: PathRun, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> tuple[tuple[Rendering, str], tuple[Rendering, str]]:
    """P and F of a run, each with what the template writes it for."""
    run = found.run
    return (
        (Rendering(messages[:run], tools, found.variables, prompt=True), found.whole[: found.prompt]),
        (Rendering(messages[: run + 1], tools, found.variables), found.written),
    )


def _reason(fault: Exception) -> str:
    """For the count of conversations that do not go by path."""
    text = str(fault) if isinstance(fault, NoRule) else f"{type(fault).__name__}: {fault}"
    return " ".join(text.split())[:80]
