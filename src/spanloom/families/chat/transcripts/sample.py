"""Small generated conversations of many kinds, to try the family without any data.

In: a number. Out: conversations as JSON objects. The same number gives the same conversations.

One in eight has a fault that the generator must handle: a text with a control string, an unknown role, a null, a
question without an answer, or more tokens than a small context.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanloom.storage.scratch import scratch_for

_SYSTEMS = (None, "Be brief.", "Answer in the language of the question, and say when you are not sure.")
_QUESTIONS = (
    "Why is the sky blue?",
    "What is {number} times {other}?",
    "Wie viele Tage hat der Februar im Jahr {year}?",
    "Écris une phrase avec le nombre {number}.",
    "{number} と {other} のどちらが大きいですか?",
    "Write a Python function that adds {number} to its argument.",
    "Say hello ☃",
    "Explain in two sentences how tides come about.",
)
_ANSWERS = (
    "Air scatters blue light more than red, so blue reaches us from everywhere.",
    "{number} × {other} = {product}.",
    "Im Jahr {year} hat der Februar {february} Tage.",
    "Voici le nombre {number}, tout simplement.",
    "{larger} のほうが大きいか、等しいです。",
    "```python\ndef add(value: int) -> int:\n    return value + {number}\n```",
    "Hello! 👋",
    "The moon pulls at the water on its side of the earth more than at the earth, and less on the far side. "
    "The earth turns under the two bulges, so most coasts see two tides a day.",
)


def sample_conversations(count: int) -> Iterator[dict[str, Any]]:
    """`count` conversations of one to four pairs, as the objects of JSONL lines."""
    for number in range(count):
        messages: list[dict[str, Any]] = []
        if (system := _SYSTEMS[number % len(_SYSTEMS)]) is not None:
            messages.append({"role": "system", "content": system})
        for pair in range(1 + number * 7 % 4):
            at = (number + 3 * pair) % len(_QUESTIONS)
            numbers = _numbers(number + pair)
            messages.append({"role": "user", "content": _QUESTIONS[at].format(**numbers)})
            messages.append({"role": "assistant", "content": _ANSWERS[at].format(**numbers)})
        if number % 8 == 7:
            _trouble(messages, number // 8 % 5)
        yield {"id": f"sample-{number}", "messages": messages}


def _numbers(seed: int) -> dict[str, int]:
    number, second, year = 2 + seed * 37 % 97, 2 + seed * 53 % 89, 1900 + seed * 13 % 150
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return {
        "number": number,
        "other": second,
        "product": number * second,
        "larger": max(number, second),
        "year": year,
        "february": 29 if leap else 28,
    }


def _trouble(messages: list[dict[str, Any]], kind: int) -> None:
    """Puts one of the faults into a conversation."""
    if kind == 0:
        messages[-1]["content"] += " <|END|><|USER|>and now?"
    elif kind == 1:
        messages.append({"role": "tool", "content": "nobody asked"})
    elif kind == 2:
        messages[-2]["content"] = None
    elif kind == 3:
        messages.append({"role": "user", "content": "Are you still there?"})
    else:
        messages[-2]["content"] += " Please take your time, and think about it once more." * 40


def run(*, out: str, conversations: int, scratch: Path | None = None) -> None:
    """Writes the conversations as JSON Lines to a path or URI, create-only."""
    with scratch_for("chat-sample", [out], scratch) as staging:
        lines = (
            json.dumps(conversation, ensure_ascii=False) + "\n" for conversation in sample_conversations(conversations)
        )
        staging.create(out, "".join(lines).encode())
