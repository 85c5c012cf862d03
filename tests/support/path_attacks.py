"""Templates that hide state from a log, or read a value past it; and conversations of odd values for them.

In: a seed. Out: a conversation. Each template is well formed; each writes what depends on the conversation.
"""

import json
import random
from pathlib import Path
from typing import Any

ATTACKS: dict[str, str] = json.loads((Path(__file__).parents[1] / "cases/templates/paths.json").read_text("utf-8"))
"""Names and templates."""

_TEXTS = (
    *(
        *("", " ", "a", "A", "ab", "b", "aXb", "12", " 7 ", "-3"),
        *("1.5", "<b>", "a&b", "x y", "a\nb", "%s", "{0}", "\n", "k"),
    ),
    *("k", "é"),
)
_META: tuple[dict[str, Any], ...] = (
    {},
    {"k": {"x": "a"}},
    {"b": 1, "a": "2"},
    {"a": "2", "b": 1},
    {"a": 1, "b": "2"},
    {"k": {"x": "b"}, "a": None, "l": [1, "a", 1.0, True]},
)
_TAGS: tuple[list[str], ...] = ([], ["a"], ["b", "a"], ["a", "a"], ["a", "b", "ab"], ["<b>", "A", "a"])


def odd_record(seed: int) -> dict[str, Any]:
    """One to six messages with odd texts, numbers, lists and dictionaries."""
    draw = random.Random(seed)
    messages = [
        {
            "role": draw.choice(("user", "assistant", "tool")),
            "content": draw.choice(_TEXTS),
            "number": draw.randint(0, 3),
            "real": draw.choice((0.0, 0.5, 1.25)),
            "flag": draw.random() < 0.5,
            "tags": draw.choice(_TAGS),
            "meta": draw.choice(_META),
        }
        for _ in range(draw.randint(1, 6))
    ]
    return {"messages": messages}
