"""Renders one row slowly, with openai-harmony and plain Python loops: the reference for validation and tests.

In: `messages_json`. Out: tokens, loss mask and span of each of its documents, as they must be on disk. Shares no code
with cutting, rendering or writing.
"""

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from openai_harmony import Conversation, HarmonyEncoding, HarmonyError, Message, RenderConversationConfig, Role

from spanloom.errors import is_rust_panic
from spanloom.families.harmony.tokenizer import EOD, START

SPAN_NAMED = {"analysis": 1, "final": 2, "commentary": 3}
DROP_NOTHING = RenderConversationConfig(auto_drop_analysis=False)
REFUSALS = (HarmonyError, RuntimeError, ValueError, TypeError, KeyError, AttributeError)
"""Exceptions of openai-harmony for invalid content."""
DROP_AS_DEFAULT = RenderConversationConfig(auto_drop_analysis=True)
PROMPTS = 12
"""Runs of a document whose prompt is rendered, evenly spaced from the first to the last. The prompts of all runs of a
long turn have a hundred times its tokens."""


@dataclass(frozen=True, kw_only=True)
class DiskSequences:
    """A document as the `.bin` files must hold it: EOD at the end, mask and span shifted to labels.

    messages  its messages
    """

    messages: list[dict[str, Any]]
    tokens: list[int]
    lossmask: list[int]
    span: list[int]


class PromptError(Exception):
    """The tokens before a run differ from openai-harmony's render for its completion."""


class RenderRefusedError(Exception):
    """openai-harmony does not render a document."""


def span_of(message: Mapping[str, Any]) -> int:
    """The span of a message, 0 for all but the assistant's. The channel of another message may be any JSON value."""
    return SPAN_NAMED.get(message["channel"], 0) if message["role"] == "assistant" else 0


def rendered_tokens(messages: list[dict[str, Any]], encoding: HarmonyEncoding) -> list[int] | None:
    """openai-harmony's tokens of a conversation.

    None if it refuses the conversation, or if the tokens do not begin with `<|start|>` or have not one per message.
    """
    try:
        conversation = Conversation(messages=[Message.from_dict(message) for message in messages])
        tokens: list[int] = encoding.render_conversation_for_training(conversation, DROP_NOTHING)
    except REFUSALS:
        return None
    except BaseException as panic:
        if not is_rust_panic(panic):
            raise
        return None
    return tokens if tokens[:1] == [START] and tokens.count(START) == len(messages) else None


def disk_sequences(messages_json: str, encoding: HarmonyEncoding) -> DiskSequences:
    """Renders a whole conversation, labels its messages token by token, appends EOD and shifts the labels.

    Raises RenderRefusedError.
    """
    messages = json.loads(messages_json)["messages"]
    spans = [span_of(message) for message in messages]
    return _sequences(messages, spans, encoding)


def disk_document(document: "ShownDocument", encoding: HarmonyEncoding, config: Mapping[str, Any]) -> DiskSequences:
    """Renders one document of a conversation that is cut, see `shown_documents`.

    openai-harmony also renders the messages before a run for completion. Raises PromptError if the two renders differ,
    and RenderRefusedError.
    """
    runs = document.runs
    prompted = {len(run.shown) for run in runs} if config.get("mask_generation_prompt") else set()
    sequences = _sequences(document.messages, document.spans, encoding, prompted)
    if config["history"] != "keep":
        spread = {round(place * (len(runs) - 1) / max(PROMPTS - 1, 1)) for place in range(PROMPTS)}
        for number in sorted(spread):
            _check_prompt(sequences, runs[number], config["history"], encoding)
    return sequences


def read_conversation(messages_json: str | bytes) -> "Flagged":
    """The messages of a conversation without the key `trained`, and the indices of those where it is false."""
    messages: list[dict[str, Any]] = json.loads(messages_json)["messages"]
    untrained = {at for at, message in enumerate(messages) if message.get("trained") is False}
    kept = [{key: message[key] for key in message if key not in ("trained", "truncated")} for message in messages]
    return kept, untrained


def truncated_messages(messages_json: str | bytes) -> frozenset[int]:
    """The indices of the messages of a conversation that are truncated."""
    messages: list[dict[str, Any]] = json.loads(messages_json)["messages"]
    return frozenset(at for at, message in enumerate(messages) if message.get("truncated") is True)


def _check_prompt(document: DiskSequences, run: "ShownRun", history: str, encoding: HarmonyEncoding) -> None:
    """Checks that openai-harmony's render for the completion of a run is the document up to that run."""
    if history == "serve":
        prompt = _prompt(run.shown, encoding, DROP_NOTHING)
    else:
        try:
            prompt = _prompt(run.before, encoding, DROP_AS_DEFAULT)
        except REFUSALS:
            prompt = _prompt(run.shown, encoding, DROP_NOTHING)  # messages that are not shown may be invalid
    after = document.tokens[len(prompt) : len(prompt) + 1]
    if document.tokens[: len(prompt)] != prompt or after != [START]:
        pairs = enumerate(zip(prompt, document.tokens, strict=False))
        at = next((at for at, (wanted, token) in pairs if wanted != token), len(prompt))
        raise PromptError(f"run {run.number}: differs from openai-harmony's render for completion at token {at}")


Flagged = tuple[list[dict[str, Any]], set[int]]
"""The messages of a conversation, and the indices of those marked as not trained."""


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """A trained run.

    before  all messages before it
    shown   those of `before` that its document contains
    run     its own messages
    spans   the span of each of `run`, 0 for a message that is not trained; negative for a truncated one
    places  the indices in the conversation of `shown` and `run`
    """

    number: int
    before: list[dict[str, Any]]
    shown: list[dict[str, Any]]
    run: list[dict[str, Any]]
    spans: list[int]
    places: list[int]


@dataclass(frozen=True, kw_only=True)
class ShownDocument:
    """A document: its trained runs, its messages, their indices in the conversation, and the span of each message, as
    in `ShownRun`.

    `cut`: the number of its first run; 0 for a whole conversation. `divided`: the next document would continue it, but
    for the header of a call.
    """

    cut: int
    runs: list[ShownRun]
    messages: list[dict[str, Any]]
    spans: list[int]
    places: list[int]
    divided: bool = False


def shown_documents(
    flagged: Flagged, config: Mapping[str, Any], truncated: Set[int] = frozenset()
) -> Iterator[ShownDocument]:
    """Cuts a conversation into documents.

    `config`: of the dataset, with history, train and turns; `merge` if runs share documents; `call_format` unless it is
    `constrain`. `truncated`: the indices of truncated messages.
    """
    written = _with_calls(flagged, config.get("call_format"))
    messages, _, _ = written
    document: ShownDocument | None = None
    keeps = config["history"] == "keep"
    for run in _shown_runs(written, config, truncated):
        if document is not None and (keeps or (config.get("merge") and _goes_on(document, run))):
            trained = _trained_until(document)
            between = [0] * (len(run.shown) - trained)
            document = ShownDocument(
                cut=document.cut,
                runs=[*document.runs, run],
                messages=[*run.shown, *run.run],
                spans=[*document.spans[:trained], *between, *run.spans],
                places=run.places,
            )
            continue
        if document is not None:
            divided = bool(config.get("merge")) and _goes_on(document, run, rewritten=True)
            yield replace(document, divided=divided)
        document = ShownDocument(
            cut=0 if keeps else run.number,
            runs=[run],
            messages=[*run.shown, *run.run],
            spans=[*([0] * len(run.shown)), *run.spans],
            places=run.places,
        )
    if document is not None and keeps:  # messages after the last run are part of it too
        behind = messages[len(document.messages) :]
        spans = [*document.spans, *([0] * len(behind))]
        places = [*range(len(messages))]
        document = ShownDocument(cut=0, runs=document.runs, messages=messages, spans=spans, places=places)
    if document is not None:
        yield document


def _trained_until(document: ShownDocument) -> int:
    """The number of messages up to and including the last trained one."""
    return max(at for at, span in enumerate(document.spans, start=1) if span)


def _goes_on(document: ShownDocument, run: ShownRun, *, rewritten: bool = False) -> bool:
    """Whether a run can continue a document: its shown messages begin with those of the document up to the last trained
    one, and render to the same tokens; with `rewritten`, but for the headers of calls."""
    prefix = document.messages[: _trained_until(document)]
    if len(run.shown) < len(prefix) or run.places[: len(prefix)] != document.places[: len(prefix)]:
        return False
    if not rewritten and any(mine is not other for mine, other in zip(prefix, run.shown, strict=False)):
        return False
    if prefix[-1]["channel"] == "final" and len(prefix) == len(document.messages):  # <|return|> would become <|end|>
        return False
    has_system = any(message["role"] == "system" for message in prefix)
    return not has_system or _has_functions(prefix) == _has_functions([*run.shown, *run.run])


def _has_functions(messages: list[dict[str, Any]]) -> bool:
    """Whether functions are defined: openai-harmony then mentions them in the system message."""
    parts = [part for message in messages if type(message.get("content")) is list for part in message["content"]]
    tools = [part.get("tools") for part in parts if type(part) is dict and part.get("type") == "developer_content"]
    functions = [each.get("functions") for each in tools if type(each) is dict]
    return any(type(each) is dict and each.get("tools") for each in functions)


_Written = tuple[list[dict[str, Any]], set[int], list[dict[str, Any]]]
"""`Flagged`, and the messages as later runs see them."""


def _with_calls(flagged: Flagged, call_format: str | None) -> _Written:
    """Writes the headers of calls according to `call_format`. Unchanged messages stay the same objects."""
    messages, untrained = flagged
    if call_format is None:
        return messages, untrained, messages
    shown = []
    for message in messages:
        called = message["role"] == "assistant" and message.get("recipient") is not None
        word = str(message.get("content_type") or "")
        if called and word.startswith("<|constrain|>"):
            message = {**message, "content_type": word[len("<|constrain|>") :]}
        shown.append(message)
    return (shown if call_format == "json" else messages), untrained, shown


def _shown_runs(written: _Written, config: Mapping[str, Any], truncated: Set[int]) -> Iterator[ShownRun]:
    """The runs with a trained message, and the messages that each one sees."""
    messages, untrained, as_shown = written
    wanted = {SPAN_NAMED[name] for name in config["train"]}
    runs = _runs(messages)
    last_turn = 0
    if config["turns"] == "last" and runs:
        last_turn = max((at for at in range(runs[-1][0]) if messages[at]["role"] == "user"), default=0)
    for number, (first, end) in enumerate(runs):
        if first < last_turn:
            continue
        spans = [span_of(messages[at]) for at in range(first, end)]
        spans = [span if span in wanted and at not in untrained else 0 for at, span in enumerate(spans, start=first)]
        spans = [-span if at in truncated else span for at, span in enumerate(spans, start=first)]
        if not any(spans):
            continue
        before = as_shown[:first]
        places = [*range(first)]
        if config["history"] != "keep":
            places = _as_served(before) if config["history"] == "serve" else _as_openai_harmony(before)
        yield ShownRun(
            number=number,
            before=before,
            shown=[before[place] for place in places],
            run=messages[first:end],
            spans=spans,
            places=[*places, *range(first, end)],
        )


def assistant_runs(messages: list[dict[str, Any]]) -> int:
    """The number of runs of a conversation."""
    return len(_runs(messages))


def _runs(messages: list[dict[str, Any]]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        if at and messages[at - 1]["role"] == "assistant":
            runs[-1] = runs[-1][0], at + 1
        else:
            runs.append((at, at + 1))
    return runs


def _as_served(messages: list[dict[str, Any]]) -> list[int]:
    """The indices of all messages but the analysis before the last answer."""
    shown: list[int] = []
    answered = False
    for place, message in reversed([*enumerate(messages)]):
        if not (answered and message.get("channel") == "analysis"):
            shown.append(place)
        answered = answered or (message["role"], message.get("channel")) == ("assistant", "final")
    return shown[::-1]


def _as_openai_harmony(messages: list[dict[str, Any]]) -> list[int]:
    """The indices of all messages but, if the assistant's last message is an answer, the analysis before the first
    answer."""
    channels = [message.get("channel") for message in messages if message["role"] == "assistant"]
    if not channels or channels[-1] != "final":
        return [*range(len(messages))]
    answered = False
    shown = []
    for place, message in enumerate(messages):
        answered = answered or message.get("channel") == "final"
        if answered or message.get("channel") != "analysis":
            shown.append(place)
    return shown


def _prompt(messages: list[dict[str, Any]], encoding: HarmonyEncoding, config: RenderConversationConfig) -> list[int]:
    """openai-harmony's render for completion, without the final `<|start|>assistant`: the run begins with it."""
    conversation = Conversation(messages=[Message.from_dict(message) for message in messages])
    rendered: list[int] = encoding.render_conversation_for_completion(conversation, Role.ASSISTANT, config)
    return rendered[:-2]


def _sequences(
    messages: list[dict[str, Any]],
    spans: list[int],
    encoding: HarmonyEncoding,
    prompted: Set[int] = frozenset(),
) -> DiskSequences:
    """Renders a document. `prompted`: indices of the messages whose `<|start|>assistant` is not trained."""
    rendered = rendered_tokens(messages, encoding)
    if rendered is None:
        raise RenderRefusedError
    span: list[int] = []
    message, place = -1, 0
    for token in rendered:
        if token == START:
            message, place = message + 1, 0
        span.append(0 if message in prompted and place < 2 else abs(spans[message]))
        place += 1
    ends = [at - 1 for at, token in enumerate(rendered) if token == START and at] + [len(rendered) - 1]
    for at, label in zip(ends, spans, strict=True):
        if label < 0:  # truncated: the token that ends the message is not trained
            span[at] = 0
    span = [*span[1:], 0, 0]
    return DiskSequences(
        messages=messages,
        tokens=[*rendered, EOD],
        lossmask=[int(value > 0) for value in span],
        span=span,
    )
