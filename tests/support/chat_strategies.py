"""Conversations drawn from a seed, as harmony_chat takes them: any order of turns and tools, reasoning or none."""

import random
from typing import Any

from support.chat_sources import TOOLS, developer, system
from support.harmony_strategies import SPECIAL_TEXT

WORDS = ("Oslo", "why", "größer", "东京", "🙂", "\n", "  ", "x = 1", "don't", "ﬁ", "e\u0301", "1234567", "\t", "…")
NAMES = ("functions.get_weather", "functions.a", "functions.x.y-z_9", "python", "browser.search")

Message = dict[str, Any]


def text(lots: random.Random) -> str:
    """A few words, empty now and then, sometimes spelled like the format."""
    pieces = WORDS + SPECIAL_TEXT if lots.random() < 0.3 else WORDS
    return " ".join(lots.choice(pieces) for _ in range(lots.choice((0, 1, 2, 3, 5, 9))))


def content(lots: random.Random) -> Any:
    """A text as it may stand in a message: plain, or as parts."""
    if lots.random() < 0.6:
        return text(lots)
    return [{"type": "text", "text": text(lots)} for _ in range(lots.choice((1, 1, 1, 2, 0)))]


def conversation(lots: random.Random) -> list[Message]:
    """Up to five turns with at least one assistant message, in orders that serving produces, and in others."""
    messages: list[Message] = []
    if lots.random() < 0.8:
        effort = lots.choice(("Low", "Medium", "High"))
        messages.append(system(reasoning_effort=effort, model_identity=lots.choice((None, "Me.", text(lots)))))
    if lots.random() < 0.6:
        messages.append(developer(lots.choice((None, text(lots))), TOOLS if lots.random() < 0.5 else None))
    for _ in range(lots.randint(1, 5)):
        if lots.random() < 0.95:
            messages.append({"role": "user", "content": content(lots)})
            if lots.random() < 0.05:
                messages[-1]["name"] = "bob"
        messages += _answer(lots)
        if lots.random() < 0.03:
            messages.append(developer(text(lots), TOOLS if lots.random() < 0.5 else None))
    if not any(message["role"] == "assistant" for message in messages):
        messages.append(_said(lots, "final"))
    if lots.random() < 0.1:
        messages.append({"role": "user", "content": content(lots)})
    return messages


def flagged(lots: random.Random, messages: list[Message]) -> list[Message]:
    """The same messages; in two of three conversations some of the assistant's are marked as not trained, but one."""
    share = lots.choice((0.0, 0.2, 0.6))
    marked = [
        {**message, "trained": False} if message["role"] == "assistant" and lots.random() < share else message
        for message in messages
    ]
    places = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if all("trained" in marked[at] for at in places):
        at = lots.choice(places)
        marked[at] = messages[at]
    return marked


def _answer(lots: random.Random) -> list[Message]:
    """What follows a question: any number of calls with their results, then an answer; or one of these is missing."""
    messages: list[Message] = []
    for _ in range(lots.choice((0, 0, 0, 1, 1, 2, 3))):
        if lots.random() < 0.8:
            messages.append(_said(lots, "analysis"))
        if lots.random() < 0.3:
            messages.append(_said(lots, "commentary"))
        name = lots.choice(NAMES)
        channel = "commentary" if lots.random() < 0.85 else "analysis"
        messages.append({**_said(lots, channel), "recipient": name})
        if lots.random() < 0.7:
            messages[-1]["content_type"] = lots.choice(("<|constrain|>json", "json", "code"))
        if lots.random() < 0.95:
            messages.append({"role": "tool", "name": name, "content": content(lots)})
            if lots.random() < 0.9:
                messages[-1] |= {"recipient": "assistant", "channel": channel}
    if lots.random() < 0.7:
        messages.append(_said(lots, "analysis"))
    if lots.random() < 0.9:
        messages.append(_said(lots, "final"))
    if lots.random() < 0.03:
        messages.append(_said(lots, "final"))
    return messages


def _said(lots: random.Random, channel: str) -> Message:
    return {"role": "assistant", "channel": channel, "content": content(lots)}
