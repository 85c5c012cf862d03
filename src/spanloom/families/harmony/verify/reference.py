"""One row the slow way: openai-harmony and plain Python loops, as the reference for validation and tests.

In: `messages_json`. Out: the three sequences of each of its documents, as they must stand on disk. Shares no code with
cutting, rendering or writing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openai_harmony import Conversation, HarmonyEncoding, HarmonyError, Message, RenderConversationConfig, Role

from spanloom.families.harmony.tokenizer import EOD, START

SPAN_NAMED = {"analysis": 1, "final": 2, "commentary": 3}
SPAN_OF: dict[tuple[Any, Any], int] = {("assistant", channel): span for channel, span in SPAN_NAMED.items()}
DROP_NOTHING = RenderConversationConfig(auto_drop_analysis=False)
REFUSALS = (HarmonyError, RuntimeError, ValueError, TypeError, KeyError, AttributeError)
"""What openai-harmony raises for content that it cannot read."""
DROP_AS_DEFAULT = RenderConversationConfig(auto_drop_analysis=True)


@dataclass(frozen=True, kw_only=True)
class DiskSequences:
    """A document as the `.bin` files must hold it: EOD at the end, mask and span shifted to labels.

    cut       which of its conversation's assistant runs it is about; 0 where the conversation is whole
    messages  what it shows
    """

    cut: int
    messages: list[dict[str, Any]]
    tokens: list[int]
    lossmask: list[int]
    span: list[int]


class PromptError(Exception):
    """What stands before a run is not what openai-harmony renders for its completion."""


def disk_sequences(messages_json: str, encoding: HarmonyEncoding) -> DiskSequences:
    """Renders one conversation whole, labels its messages token by token, appends EOD and shifts."""
    messages = json.loads(messages_json)["messages"]
    spans = [SPAN_OF.get((message["role"], message.get("channel")), 0) for message in messages]
    return _sequences(0, messages, spans, encoding)


def disk_documents(messages_json: str, encoding: HarmonyEncoding, config: Mapping[str, Any]) -> Iterator[DiskSequences]:
    """The documents of one conversation that is cut. `config`: that of the dataset, with history, train and turns.

    What stands before a run is rendered by openai-harmony for completion too. Raises PromptError where the two differ.
    """
    messages = json.loads(messages_json)["messages"]
    for number, before, shown, run, spans in shown_documents(messages, config):
        document = _sequences(number, [*shown, *run], spans, encoding)
        if config["history"] != "keep":
            _check_prompt(document, before, shown, config["history"], encoding)
        yield document


def _check_prompt(
    document: DiskSequences,
    before: list[dict[str, Any]],
    shown: list[dict[str, Any]],
    history: str,
    encoding: HarmonyEncoding,
) -> None:
    if history == "serve":
        prompt = _prompt(shown, encoding, DROP_NOTHING)
    else:
        try:
            prompt = _prompt(before, encoding, DROP_AS_DEFAULT)
        except REFUSALS:
            prompt = _prompt(shown, encoding, DROP_NOTHING)  # what is not shown may be anything
    if document.tokens[: len(prompt)] != prompt:
        at = next(at for at, pair in enumerate(zip(prompt, document.tokens, strict=False)) if pair[0] != pair[1])
        raise PromptError(f"run {document.cut}: differs from openai-harmony's render for completion at token {at}")


Shown = tuple[int, list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], list[int]]
"""Of one document: the number of its run, all messages before the run, those of them that it shows, the run, and the
span of each message that it holds."""


def shown_documents(messages: list[dict[str, Any]], config: Mapping[str, Any]) -> Iterator[Shown]:
    """What each document of a conversation that is cut holds. `config` as in `disk_documents`."""
    wanted = {SPAN_NAMED[name] for name in config["train"]}
    runs = _runs(messages)
    if config["turns"] == "last":
        users = [at for at, message in enumerate(messages) if message["role"] == "user" and runs and at < runs[-1][0]]
        runs_trained = [(first, end) for first, end in runs if not users or first > users[-1]]
    else:
        runs_trained = runs
    spans = [0] * len(messages)
    for first, end in runs_trained:
        for at in range(first, end):
            span = SPAN_OF.get((messages[at]["role"], messages[at].get("channel")), 0)
            spans[at] = span if span in wanted else 0
    if config["history"] == "keep":
        if any(spans):
            yield 0, [], [], messages, spans
        return
    for number, (first, end) in enumerate(runs):
        if not any(spans[first:end]):
            continue
        before = messages[:first]
        shown = _as_served(before) if config["history"] == "serve" else _as_openai_harmony(before)
        yield number, before, shown, messages[first:end], [0] * len(shown) + spans[first:end]


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


def _as_served(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the analysis before the last answer."""
    shown: list[dict[str, Any]] = []
    answered = False
    for message in reversed(messages):
        if not (answered and message.get("channel") == "analysis"):
            shown.insert(0, message)
        answered = answered or (message["role"], message.get("channel")) == ("assistant", "final")
    return shown


def _as_openai_harmony(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the analysis before the first answer, where what the assistant said last is one."""
    said = [message.get("channel") for message in messages if message["role"] == "assistant"]
    if not said or said[-1] != "final":
        return messages
    answered = False
    shown = []
    for message in messages:
        answered = answered or message.get("channel") == "final"
        if answered or message.get("channel") != "analysis":
            shown.append(message)
    return shown


def _prompt(messages: list[dict[str, Any]], encoding: HarmonyEncoding, config: RenderConversationConfig) -> list[int]:
    """openai-harmony's render for completion, without `<|start|>assistant`, which the run begins with."""
    conversation = Conversation(messages=[Message.from_dict(message) for message in messages])
    rendered: list[int] = encoding.render_conversation_for_completion(conversation, Role.ASSISTANT, config)
    return rendered[:-2]


def _sequences(cut: int, messages: list[dict[str, Any]], spans: list[int], encoding: HarmonyEncoding) -> DiskSequences:
    conversation = Conversation(messages=[Message.from_dict(message) for message in messages])
    rendered = encoding.render_conversation_for_training(conversation, DROP_NOTHING)
    span: list[int] = []
    message = -1
    for token in rendered:
        if token == START:
            message += 1
        span.append(spans[message])
    span = [*span[1:], 0, 0]
    return DiskSequences(
        cut=cut,
        messages=messages,
        tokens=[*rendered, EOD],
        lossmask=[int(value > 0) for value in span],
        span=span,
    )
