"""What is wrong with a conversation according to methods B and S: why it may be refused, and which texts are lost.

In: a `Reference`, a conversation of the source. Out: the classes of refusals that fit it; texts that the template
drops. No code is shared with `prove`. If a text is not found when all texts are replaced, methods B and S cannot tell
why: all classes of such faults fit.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from spanloom.families.models.verify.messages import (
    PlainConversation,
    PlainMessage,
    control_places,
    swapped_tools,
    template_settings,
)
from spanloom.families.models.verify.reference import Reference, UnprovenError
from spanloom.families.models.verify.swaps import Words, swapping
from spanloom.tokenizers.chat_template import ChatTemplateError, TemplateRaisedError

_OTHER_DAY = datetime(2033, 3, 3)
_DEFAULT_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_FRAME = frozenset({"text_dropped", "text_altered", "mixed_texts", "structure_depends_on_text", "trace_changes"})
"""The classes that fit a text that is not found when the texts are replaced."""


def fitting_classes(reference: Reference, conversation: PlainConversation) -> set[str]:
    """The classes that fit a refusal of this conversation; empty if nothing is wrong with it.

    A run is at fault only if it is so under every set of template variables.
    """
    classes = set(_of_whole(reference, conversation))
    own = template_settings(conversation, reference.names)
    for place in conversation.runs():
        by_set = [
            set(_of_run(reference, conversation, place, {**values, **own})) for values in reference.config["variables"]
        ]
        if all(by_set):
            classes = classes.union(*by_set)
    return classes


def lost_texts(
    reference: Reference, conversation: PlainConversation, run: int, variables: Mapping[str, Any]
) -> list[str]:
    """Texts before the run (system, user, tools, tool definitions) that the template drops."""
    words: Words = {}
    put = swapping(words, "", as_long=True)
    places = [at for at in range(run) if conversation.messages[at].role != "assistant"]
    try:
        text = reference.rendered(conversation, run + 1, variables, swap=put, swapped=places)
    except ChatTemplateError:  # the template depends on the texts: render them unchanged
        return [
            each.text
            for each in (conversation.messages[at] for at in places)
            if not _holds(reference.rendered(conversation, run + 1, variables), each.text)
        ]
    lost = [words[word].core for word in words if word not in text]
    if not conversation.tools:
        return lost
    words.clear()
    try:
        text = reference.rendered(conversation, run + 1, variables, tools=swapped_tools(conversation, put))
    except ChatTemplateError:
        return lost
    return lost + [words[word].core for word in words if word not in text]


def most_tokens(reference: Reference, conversation: PlainConversation) -> int | None:
    """About the most tokens that a document of the conversation has, EOD included, over its runs and the sets of
    template variables; None if the template takes none of them. Never fewer than the longest document has: a stop
    token and EOD are added to each text."""
    own = template_settings(conversation, reference.names)
    sizes = []
    for place in conversation.runs():
        for values in reference.config["variables"]:
            try:
                text = reference.rendered(conversation, place + 1, {**values, **own})
            except ChatTemplateError:
                continue
            sizes.append(reference.tokens_of(text) + 2)
    return max(sizes, default=None)


def _holds(text: str, part: str) -> bool:
    return all(line.strip() in text for line in part.splitlines())


def _of_whole(reference: Reference, conversation: PlainConversation) -> Iterator[str]:
    """The classes of faults that do not depend on the run."""
    config = reference.config
    messages = [conversation.messages[place] for place in conversation.runs()]
    thinks = any(message.reasoning for message in messages)
    if thinks and config["form"]["reasoning"] == "inline" and not config["inline_think"]:
        yield "text_dropped"
    if thinks and config["emission"] is not None and "{reasoning}" not in config["emission"]:
        yield "text_dropped"
    identity = conversation.settings.get("model_identity")
    if identity not in (None, _DEFAULT_IDENTITY) and "model_identity" not in reference.names:
        yield "text_dropped"


def _of_run(
    reference: Reference, conversation: PlainConversation, place: int, variables: Mapping[str, Any]
) -> Iterator[str]:
    message = conversation.messages[place]
    if any(special in text for text in _texts(message) for special in {*reference.special, *reference.config["stops"]}):
        yield "special_in_text"
    how, eod = reference.config.get("control_texts", "refuse"), reference.config["eod"]["text"]
    refused = {"refuse": {eod, *reference.special, *reference.config["stops"]}, "as-served": {eod}, "text": set()}[how]
    if any(special in text for text, _ in control_places(conversation, place) for special in refused):
        yield "special_in_text"
    try:
        prompt = reference.rendered(conversation, place, variables, prompt=True)
        whole = reference.rendered(conversation, place + 1, variables)
    except TemplateRaisedError:
        yield "template_raises"
        return
    except ChatTemplateError:
        yield "template_fails"
        return
    bos = reference.template.special_tokens.get("bos_token")
    if bos and prompt.startswith(bos * 2):
        yield "double_bos"
    if reference.config["date"] is None and "strftime_now" in reference.template.text:
        other = reference.rendered(conversation, place, variables, prompt=True, now=_OTHER_DAY)
        if other != prompt:
            yield "undated"
    if lost_texts(reference, conversation, place, variables):
        yield "text_dropped"
    if _is_mixed(reference, conversation, place, variables):
        yield "mixed_texts"
    if not whole.startswith(prompt):
        yield "prompt_not_prefix"
        if not _swaps_all(reference, conversation, place, variables):
            yield from _FRAME
        return
    try:
        texts, tail, names = reference.texts(conversation, place, variables, prompt, whole)
    except UnprovenError:
        yield from _FRAME
        return
    ended = len(whole) - len(tail)
    try:
        plain = reference.plain(conversation, place, variables)
    except ChatTemplateError:
        yield from _FRAME
        return
    if plain is not None and len(plain) != len(whole):
        yield "structure_depends_on_text"
        return
    try:
        ids, offsets, first = reference.encoded(prompt, whole, "joined", plain)
    except UnprovenError:
        if reference.config["boundary"] == "refuse":
            yield "merge_at_boundary"
        ids, offsets, first = reference.encoded(prompt, whole, "served", plain)
    stops = reference.config["stops"]
    if any(ids[at] in stops.values() and offsets[at][0] < ended for at in range(first, len(ids))) or (
        reference.end(ids, offsets, first, ended) is None
        and not _is_ended(reference, conversation, place, variables, tail, names=names)
    ):
        yield "no_turn_end"
    for before, after in pairwise(texts):
        if before.span != after.span and any(
            begin < before.end and end > after.start for begin, end in offsets[first:]
        ):
            yield "token_straddles"


def _is_mixed(reference: Reference, conversation: PlainConversation, place: int, variables: Mapping[str, Any]) -> bool:
    """Whether the completion contains a text of an earlier message."""
    words: Words = {}
    put = swapping(words, "")
    places = range(place)
    try:
        whole = reference.rendered(conversation, place + 1, variables, swap=put, swapped=places, names=False)
        words.clear()
        prompt = reference.rendered(conversation, place, variables, prompt=True, swap=put, swapped=places, names=False)
    except ChatTemplateError:
        return False
    return whole.startswith(prompt) and any(word in whole[len(prompt) :] for word in words)


def _swaps_all(reference: Reference, conversation: PlainConversation, place: int, variables: Mapping[str, Any]) -> bool:
    """Whether each text of the message is in F exactly once, tested with words in place of the texts."""
    words: Words = {}
    try:
        other = reference.rendered(conversation, place + 1, variables, swap=swapping(words, ""))
    except ChatTemplateError:
        return False
    return all(other.count(word) == 1 for word in words)


def _is_ended(
    reference: Reference,
    conversation: PlainConversation,
    place: int,
    variables: Mapping[str, Any],
    tail: str,
    *,
    names: bool,
) -> bool:
    """Whether the next speaker's marker ends the turn."""
    for stop in reference.config["stops"]:
        try:
            reference.check_marker(conversation, place, variables, tail, stop, names=names)
        except UnprovenError:
            continue
        return True
    return False


def _texts(message: PlainMessage) -> list[str]:
    calls = [text for call in message.calls for text in (call["name"], call["arguments"], call["id"] or "")]
    return [message.text, *message.reasoning, *calls]
