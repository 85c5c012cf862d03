"""Conversations → documents by the paths of a template, where paths give them.

In: a model, how conversations are proven. Out: for each conversation its documents, equal to those of
`prove_conversation`, or the reason why a path does not give them. A layout (a path, which texts are blank, the prompt)
is used once the full proof has proven a run of it and given the same tokens, mask and spans.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from spanloom.errors import SpanloomError
from spanloom.families.models.conversation import Conversation
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import CLOSING, INLINE, AsGiven, shaped
from spanloom.families.models.model import Model
from spanloom.families.models.paths.body import LOOK_BEHIND
from spanloom.families.models.paths.chain import Chain, Run, document_of
from spanloom.families.models.paths.clean import clean_tokens
from spanloom.families.models.paths.independent import Independent
from spanloom.families.models.paths.leaves import NoRule
from spanloom.families.models.paths.runs import NextMessage, PathRun, UnknownCall, Walked
from spanloom.families.models.prove.controls import controls_of
from spanloom.families.models.prove.conversation import Proven, Proving
from spanloom.families.models.prove.fields import BEGINS_OF_WORDS, FIRST_NUMBER
from spanloom.families.models.prove.run import Rendered, prove_run
from spanloom.families.models.prove.turn_end import next_message
from spanloom.supervision import Tokens
from spanloom.text import AnyOf, is_utf8
from spanloom.tokenizers.chat_template import Rendering
from spanloom.tokenizers.rendering.wire import BEGIN_GENERATION, END_GENERATION
from spanloom.tokenizers.template_paths.paths import Paths

MOST_MESSAGES, MOST_CHARACTERS = 2_000, 4_000_000
"""Of a conversation. A longer one goes to the full proof, where the limits of a rendering hold."""

_TEXTS = frozenset({"role", "content"})
_NAMED = frozenset({"tool_calls", "tool_call_id", "name"})
"""Keys of messages with texts besides content and reasoning."""

TRIES = 3
"""Runs of one layout that the full proof may refuse before the layout is given up."""

_ODD = AnyOf((*BEGINS_OF_WORDS, str(FIRST_NUMBER)[:-2], BEGIN_GENERATION, END_GENERATION))
"""What the words and numbers of method S begin with, and the marks of `{% generation %}`: a conversation with one goes
to the full proof."""


@dataclass(frozen=True)
class ByPath:
    """The documents of a conversation by path. `runs`: in order; `messages`, `tools`: as the template takes them."""

    proven: Proven
    runs: Sequence[Run]
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None

    def is_rendered(self, model: Model, choice: int) -> bool:
        """Whether the template writes P or F of a run, which `choice` chooses."""
        run, prompt = self.runs[choice // 2 % len(self.runs)], choice % 2 == 0
        messages = self.messages[: run.found.run if prompt else run.found.run + 1]
        (rendered,) = model.template.render_all([Rendering(messages, self.tools, run.found.variables, prompt=prompt)])
        return rendered == (run.prompt if prompt else run.written)


class PathProver:
    """The paths of one model in one process. `reason`: why the last conversation did not go by path."""

    def __init__(self, model: Model, proving: Proving) -> None:
        self._model, self._proving = model, proving
        self._paths: dict[int, Paths] = {}
        self._independent: dict[int, Independent] = {}
        self._layouts: dict[Any, _Layout] = {}
        self._constants: dict[str, Tokens] = {}
        self.reason = ""
        self._next_ends = False  # whether the marker of the next message ends a turn
        self._controls = model.controls(proving.eod)
        clean = clean_tokens(model.tokenizer)
        self._clean = re.compile("|".join(map(re.escape, sorted(clean, key=len, reverse=True))) or "(?!)")
        self._ends = tuple(clean)
        self.unusable = self._why_unusable(clean)

    def _why_unusable(self, clean: frozenset[str]) -> str | None:
        """Why no conversation of this model goes by path, or None."""
        model = self._model
        if not clean >= set(model.stops.values()) or not model.encoder.fast:
            return "the tokenizer may not be cut at its stop tokens"
        if max(map(len, clean), default=0) > LOOK_BEHIND:
            return "the tokenizer has a long special token"
        if model.undated:
            return "the template may write today's date"
        constants = model.template.special_tokens
        now = model.template.now
        try:
            for number, variables in enumerate(self._proving.variables):
                strftime = None if now is None else now.strftime
                paths = self._paths[number] = Paths(model.template.text, {**constants, **variables}, strftime)
                self._independent[number] = Independent(paths)
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
        _check(model, proving, conversation, self._controls)
        given = [shaped(message, proving.form, AsGiven()) for message in conversation.messages]
        messages = [{key: value for key, value in message.items() if value is not None} for message in given]
        last = conversation.runs()[-1]
        if self._next_ends:
            following = [] if messages[last + 1 :] else [next_message(given[last])]
            known = [*messages[: last + 2], *following]
        else:
            known = messages[: last + 1]
        walked = {
            number: Walked(
                model,
                paths,
                proving.variables[number],
                conversation,
                known,
                self._independent[number],
                inline=proving.form.reasoning == INLINE,
            )
            for number, paths in self._paths.items()
        }
        runs: list[Run] = []
        chains: list[Chain] = []
        for run in conversation.runs():
            for number in proving.orders[bool(conversation.messages[run].get("reasoning"))]:
                found = _walked_run(walked[number], run)
                if found is not None:
                    runs.append(self._confirmed(number, found, conversation, chains))
                    break
            else:
                raise NoRule("the template does not continue its own prompt")
        proven = Proven(tuple(map(document_of, chains)))
        for chain in chains:  # its runs know it: in a cycle, texts would stay until the next collection
            chain.runs.clear()
        return ByPath(proven, runs, given, conversation.tools)

    def _confirmed(self, number: int, found: PathRun, conversation: Conversation, chains: list[Chain]) -> Run:
        """The run with its tokens, if the full proof has proven its layout. It is added to `chains`. Raises NoRule."""
        run = self._added(found, chains)
        layout = self._layouts.get((number, found.key))
        if layout is None:
            layout = self._layouts[number, found.key] = _Layout()
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
            run.thought, run.generation = proven.thought, proven.generation
            if not run.proven(run.chain.whole).equals(proven):
                layout.refused += 1
                raise NoRule("the full proof gives another run")
            layout.thought, layout.generation = proven.thought, proven.generation
        run.thought, run.generation = layout.thought, layout.generation
        return run

    def _added(self, found: PathRun, chains: list[Chain]) -> Run:
        """The run in the document that it goes on, as `documents_of_runs` has it, or in a new one. Raises NoRule.

        A text is cut at whole tokens, so that equal texts have equal tokens.
        """
        fitting = [chain for chain in chains if chain.stop <= found.prompt and chain.begins(found)]
        if fitting:
            chain = max(fitting, key=lambda chain: chain.end)
        else:
            if chains:
                chains[-1].compact()
            chains.append(chain := Chain())
            bos = self._model.template.special_tokens.get("bos_token")
            if bos and found.widen().startswith(bos + bos):
                raise NoRule("the text begins with two BOS")
        known, new, first, end, spans = self._tokens(found, chain)
        run = Run(chain, found, first, end, spans, new[end - known :].copy())
        chain.go_on(run, known, new)
        found.release()
        return run

    def _tokens(self, found: PathRun, chain: Chain) -> tuple[int, Tokens, int, int, Any]:
        """How many tokens are those of the run before in the document, the tokens behind them, how many tokens there
        are of P, how many through the stop, and the spans of the trained ones. Raises NoRule."""
        known, begin = (chain.end, chain.stop) if chain.stop <= found.begin else (0, 0)
        if begin < found.base:
            found.widen()
        text, base = found.text, found.base
        closings = [cut for cut in found.closings if self._is_clean(text, cut - base)]
        for cut in (found.begin, found.stop):
            if 0 < cut < base + len(text) and not self._is_clean(text, cut - base):
                raise NoRule("a run begins or ends where the text may not be cut")
        places = sorted({begin, found.begin, *closings, found.stop, base + len(text)})
        pieces = [self._ids(text[begin - base : end - base]) for begin, end in pairwise(places)]
        starts = dict(zip(places, accumulate(map(len, pieces), initial=known), strict=True))
        tokens = np.concatenate(pieces, dtype=np.int32) if pieces else np.empty(0, np.int32)
        opening = self._ids(text[found.begin - base : found.prompt - base])
        first = starts[found.begin] + len(opening)
        if tokens[starts[found.begin] - known : first - known].tobytes() != opening.tobytes():
            raise NoRule("a token spans the end of the prompt")
        end = starts[found.stop]
        if len(closings) < len(found.closings):
            return known, tokens, first, end, self._spans_by_offsets(found, tokens[first - known : end - known])
        spans = np.empty(end - first, np.uint8)
        edges = [first, *(starts[closing] for closing in closings), end]
        for (begin, until), span in zip(pairwise(edges), found.numbers, strict=True):
            spans[begin - first : until - first] = span
        return known, tokens, first, end, spans

    def _spans_by_offsets(self, found: PathRun, ids: Tokens) -> Any:
        """The spans of the trained tokens, where one begins at no clean token. Raises NoRule."""
        offsets = self._model.encoder.offsets(found.text[found.prompt - found.base : found.stop - found.base], ids)
        if offsets is None:
            raise NoRule("the tokenizer normalizes the text")
        begins, ends = offsets[:, 0] + found.prompt, offsets[:, 1] + found.prompt
        for closing in found.closings:
            if ((begins < closing - len(CLOSING)) & (ends > closing)).any():
                raise NoRule("a token is of two spans")
        return np.array(found.numbers, np.uint8)[np.searchsorted(np.array(found.closings), begins, side="right")]

    def _is_clean(self, text: str, cut: int) -> bool:
        """Whether a text may be cut here: a clean token begins or ends."""
        return bool(self._clean.match(text, cut)) or text.endswith(self._ends, 0, cut)

    def _ids(self, text: str) -> Tokens:
        ids = self._constants.get(text)
        if ids is None:
            ids = self._model.encoder.ids(text) if text else np.empty(0, np.int32)
            if len(text) < 40 and len(self._constants) < 10_000:
                self._constants[text] = ids
        return ids


class _Layout:
    """A layout: whether it trains an empty thought and whether `{% generation %}` marks what is trained, once the full
    proof has proven a run of it; or how often it was refused."""

    def __init__(self) -> None:
        self.thought: bool | None = None
        self.generation: bool | None = None
        self.refused = 0


def _walked_run(walked: Walked, run: int) -> PathRun | None:
    try:
        return walked.run(run)
    except UnknownCall:
        walked.learn_calls()
        return walked.run(run)


def _check(model: Model, proving: Proving, conversation: Conversation, controls: AnyOf) -> None:
    """Raises NoRule for a conversation that goes to the full proof whatever its path is."""
    messages = conversation.messages
    if not conversation.runs():
        raise NoRule("there is no run")
    texts = "\0".join(text for message in messages for text in _texts(message))
    if len(messages) > MOST_MESSAGES or len(texts) > MOST_CHARACTERS:
        raise NoRule("the conversation is long")
    if conversation.variables:
        raise NoRule("the conversation has variables of its own")
    for message in messages:
        if message.keys() <= _TEXTS:
            continue
        if message.get("truncated"):
            raise NoRule("a message is truncated")
        if message["role"] == "user" and message.get("name"):
            raise NoRule("a user has a name")
        if not proving.inline and message.get("reasoning"):
            raise NoRule("the reasoning is not written into the content")
        if any(not call["name"].strip() for call in message.get("tool_calls") or ()):
            raise NoRule("a call without a name")
    named = conversation.tools or any(message.keys() & _NAMED for message in messages)
    if controls_of(model, conversation, proving.eod) if named else controls.within(texts):
        raise NoRule("a control token in a text")
    if _ODD.within(texts) or not (texts.isascii() or is_utf8(texts)):
        raise NoRule("an odd text")


def _texts(message: Mapping[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    texts = [message.get("content") or "", message.get("reasoning") or ""]
    return [*texts, repr(calls)] if calls else texts


def _reason(fault: Exception) -> str:
    """For the count of conversations that do not go by path."""
    text = str(fault) if isinstance(fault, NoRule) else f"{type(fault).__name__}: {fault}"
    return " ".join(text.split())[:80]
