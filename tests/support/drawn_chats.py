"""Conversations drawn at random, with what real ones have: any order of roles, calls with values of every JSON type,
text with white space, other scripts, JSON, tags and control strings.

In: a seed. Out: a record in the OpenAI form, as `support.mask_reference` and `read_conversation` take it.
"""

import random
from typing import Any

Record = dict[str, Any]

WORDS = (
    "tide",
    "lantern",
    "été",
    "中文 字",
    "🙂‍↔️",
    "שלום",
    "٣",
    "a\\b",
    '"quoted"',
    "it's",
    "{braces}",
    "{{ jinja }}",
    "{% raw %}",
    "<b>bold</b>",
    "&amp;",
    "null",
    "True",
    "7.50",
    "-0",
    "1e5",
    "x" * 40,
    "two  blanks",
    "tab\there",
    "line\nfeed",
    "\n\n",
    "user",
    "assistant:",
    "[INST]",
    "<tool_call>",
    "</s>x",
    "# Tools",
    "```py\nprint(1)\n```",
    "https://a.b/c?d=e",
    "\u00a0",
)
RARE = ("<|im_end|>", "</think>", "<think>", "<|end|>", "<end_of_turn>", "<|user|>", "｜", "<|start|>")
EDGES = ("", "", "", "", " ", "\n", "  \n", "\n\n")
NAMES = ("find_place", "tide_times", "run", "Set-Mode", "a_b_c")


class _Draw:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # A control string would refuse most conversations if all texts could have one.
        self.words = (*WORDS, *RARE) if self.random.random() < 0.1 else WORDS
        self.edged = self.random.random() < 0.3

    def text(self, most: int = 8) -> str:
        text = " ".join(self.random.choices(self.words, k=self.random.randint(1, most)))
        return self.random.choice(EDGES) + text + self.random.choice(EDGES) if self.edged else text.strip() or "yes"

    def value(self, depth: int = 0) -> Any:
        kind = self.random.randrange(8 if depth < 2 else 6)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
        if kind == 7:
            return {name: self.value(depth + 1) for name in self.random.sample(NAMES, self.random.randint(0, 2))}
        return (
            self.text(3),
            self.random.randint(-5, 10**6),
            self.random.random() * 100,
            self.random.random() < 0.5,
            None,
            self.text(2),
        )[kind]

    def tools(self) -> list[dict[str, Any]]:
        tools = []
        for name in self.random.sample(NAMES, self.random.randint(1, 3)):
            properties = {
                key: {"type": self.random.choice(("string", "integer", "boolean")), "description": self.text(4).strip()}
                for key in self.random.sample(("place", "days", "mode", "deep"), self.random.randint(0, 3))
            }
            parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
            function = {"name": name, "description": self.text(5).strip(), "parameters": parameters}
            tools.append({"type": "function", "function": function})
        return tools

    def answer(self, content: str | None) -> dict[str, Any]:
        thought = {"reasoning_content": self.text()} if self.random.random() < 0.4 else {}
        return {"role": "assistant", "content": content, **thought}


def drawn_record(seed: int) -> Record:
    """The conversation of a seed."""
    draw = _Draw(seed)
    chance = draw.random.random
    tools = draw.tools() if chance() < 0.5 else []
    messages: list[Record] = [{"role": "system", "content": draw.text()}] if chance() < 0.5 else []
    number = 0
    for _ in range(draw.random.randint(1, 4)):
        messages.append({"role": "user", "content": draw.text()})
        for _ in range(draw.random.randint(0, 2) if tools else 0):
            calls = []
            for _ in range(2 if chance() < 0.2 else 1):
                number += 1
                function = draw.random.choice(tools)["function"]["name"]
                keys = draw.random.sample(("place", "days", "mode", "deep"), draw.random.randint(0, 3))
                arguments = {key: draw.value() for key in keys}
                calls.append(
                    {
                        "id": f"call{number:05d}",
                        "type": "function",
                        "function": {"name": function, "arguments": arguments},
                    }
                )
            messages.append({**draw.answer(draw.text() if chance() < 0.3 else ""), "tool_calls": calls})
            messages += [
                {
                    "role": "tool",
                    "content": draw.text(),
                    "tool_call_id": call["id"],
                    "name": call["function"]["name"],
                }
                for call in calls
            ]
        if chance() < 0.95:
            messages.append(draw.answer(draw.text()))
    if messages[-1]["role"] != "assistant":
        messages.append(draw.answer(draw.text()))
    return {"id": f"drawn-{seed}", "messages": messages, **({"tools": tools} if tools else {})}
