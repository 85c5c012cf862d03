"""Forty conversations of our own that find faults of chat templates: what `probe` renders.

Out: `Conversation`s in four groups: single turns, several turns, reasoning, tools. Each is named after what it tests.
"""

from collections.abc import Iterator
from typing import Any

from spanloom.families.models.conversation import Conversation, read_conversation

SINGLE, SEVERAL, REASONING, TOOLS = "single turn", "several turns", "reasoning", "tools"

_FUNCTIONS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "tide_times",
            "description": "When the tide is high in a harbour.",
            "parameters": {
                "type": "object",
                "properties": {
                    "harbour": {"type": "string", "description": "Its name"},
                    "days": {"type": "integer"},
                },
                "required": ["harbour"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "find_recipe",
            "description": 'Looks a recipe up by "words" & <tags>.',
            "parameters": {
                "type": "object",
                "properties": {"words": {"type": "string"}, "most": {"type": ["integer", "null"]}},
                "required": [],
            },
        },
    },
]


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def _answer(text: str | None, thought: str | None = None, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "reasoning": thought, "tool_calls": calls}


def _call(name: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    return {"id": f"id{number:07d}", "name": name, "arguments": arguments}


def _result(text: str, name: str = "tide_times", number: int = 1) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"id{number:07d}", "name": name, "content": text}


def _tides(harbour: str = "Brest", **more: Any) -> list[dict[str, Any]]:
    return [_call("tide_times", harbour=harbour, **more)]


_ASKED = _user("When is high tide in Brest?")

_RECORDS: dict[str, dict[str, list[dict[str, Any]]]] = {
    SINGLE: {
        "short answer": [_user("Name a river in Poland."), _answer("The Vistula.")],
        "system message": [_system("Answer in a few words."), _user("Good morning"), _answer("Good morning to you!")],
        "white space around": [_user("  quote me "), _answer("   three spaces before, two behind  ")],
        "line feeds around": [_user("a haiku"), _answer("\n\nfrost on the railing\n\nno footprints yet\n\n")],
        "one character": [_user("Which grade?"), _answer("B")],
        "numbers": [_user("The first primes?"), _answer("2 3 5 7 11 13 17 19 23 and 1,000,003; 2.71828")],
        "answer repeats question": [_user("say ahoy"), _answer("say ahoy")],
        "many scripts": [_user("ü ß 日本語 🦊"), _answer("ü 日本語です。🧑‍🚀🦊 \u00a0\u200dשלום e\u0301")],
        "source code": [_user("a loop"), _answer('```c\nfor (int i = 0; i < 3; i++) {\n\tputs("a\\n");\n}\n```')],
        "template syntax": [_user("{% set x = 1 %}{{ x }}"), _answer("{{ eos_token }}{% if true %}{# hm #}")],
        "names of roles": [_user("user:\nassistant:"), _answer("system\nuser\nassistant: [INST] ### Answer:")],
        "control tokens": [_user("How do turns end?"), _answer("By <|im_end|>, <|eot_id|>, <end_of_turn> or </s>.")],
        "thinking tag": [_user("Which tag closes a thought?"), _answer("It is </think> in many models.")],
        "reasoning once": [_user("7 times 8?"), _answer("56", "Seven eights are fifty-six.")],
        "reasoning, white space": [_user("7 times 8?"), _answer("\n\n56 ", "\n Seven eights.\n\n")],
        "reasoning, thinking tag": [_user("7 times 8?"), _answer("56", "Do I write </think> yet? Not yet.")],
    },
    SEVERAL: {
        "two turns": [_user("Hello"), _answer("Hello, what is it?"), _user("Nothing"), _answer("Until later")],
        "three turns, system": [
            _system("Be kind."),
            _user("k"),
            _answer("l"),
            _user("m"),
            _answer("n"),
            _user("o"),
            _answer("p"),
        ],
        "equal turns": [_user("ping"), _answer("pong"), _user("ping"), _answer("pong"), _user("ping"), _answer("pong")],
        "white space in turns": [_user("go"), _answer(" left \n"), _user("and"), _answer("\nright")],
        "assistant begins": [_answer("What can I do?"), _user("Sing"), _answer("La la la")],
        "two questions": [_user("First this."), _user("Then that."), _answer("This, then that.")],
    },
    REASONING: {
        "two turns": [_user("9-4?"), _answer("5", "Take four."), _user("8-6?"), _answer("2", "Take six.")],
        "three turns": [
            _system("Consider well."),
            _user("u?"),
            _answer("v", "t1"),
            _user("w?"),
            _answer("x", "t2"),
            _user("y?"),
            _answer("z", "t3"),
        ],
        "in the first alone": [_user("9-4?"), _answer("5", "Take four."), _user("fine"), _answer("Any time.")],
        "in the last alone": [_user("hello"), _answer("hello there"), _user("9-4?"), _answer("5", "Take four.")],
        "empty reasoning": [_user("hello"), _answer("hello there", ""), _user("9-4?"), _answer("5", "Take four.")],
        "several lines": [
            _user("how?"),
            _answer("first\n\nsecond", "a line\n\nanother\n* one\n* two"),
            _user("so?"),
            _answer("done", "left\n\nright"),
        ],
    },
    TOOLS: {
        "one call": [_ASKED, _answer("", calls=_tides()), _result("At 6:12, 7 °C"), _answer("At twelve past six.")],
        "text before the call": [
            _ASKED,
            _answer("I will check.", calls=_tides()),
            _result("6:12"),
            _answer("At twelve past six."),
        ],
        "null content": [_user("Tide?"), _answer(None, calls=_tides()), _result("6:12"), _answer("6:12.")],
        "two calls at once": [
            _user("The tide, and a soup?"),
            _answer("", calls=[*_tides(), _call("find_recipe", 2, words="soup", most=None)]),
            _result("6:12"),
            _result("Leek soup", "find_recipe", 2),
            _answer("6:12, and leek soup."),
        ],
        "letters that JSON escapes": [
            _user("find it"),
            _answer("", calls=[_call("find_recipe", words='a "dish" \\ <i>&\'ü🦊\nend', most=5)]),
            _result('{"found": [3, 4.0, false, null]}', "find_recipe"),
            _answer("Here it is."),
        ],
        "no arguments": [
            _user("any"),
            _answer("", calls=[_call("find_recipe")]),
            _result("[]", "find_recipe"),
            _answer("None."),
        ],
        "arguments of all types": [
            _user("all"),
            _answer("", calls=[_call("tide_times", harbour="Kiel", days=4, more={"x": [2, "six", True], "y": 0.5})]),
            _result("5:40"),
            _answer("At 5:40."),
        ],
        "call at the end": [_user("Tide?"), _answer("", calls=_tides())],
        "two calls in turn": [
            _user("Brest?"),
            _answer("", calls=_tides()),
            _result("6:12"),
            _answer("", calls=_tides("Kiel")),
            _result("5:40"),
            _answer("6:12 and 5:40."),
        ],
        "calls in two turns": [
            _system("Help sailors."),
            _user("Brest?"),
            _answer("", calls=_tides()),
            _result("6:12"),
            _answer("6:12."),
            _user("Kiel?"),
            _answer("", calls=_tides("Kiel")),
            _result("5:40"),
            _answer("5:40."),
        ],
        "reasoning before the call": [
            _user("Brest?"),
            _answer("", "The table knows.", _tides()),
            _result("6:12"),
            _answer("At 6:12.", "It says 6:12."),
        ],
        "reasoning, calls, two turns": [
            _user("Brest?"),
            _answer("", "Ask the table.", _tides()),
            _result("6:12"),
            _answer("6:12.", "Tell them."),
            _user("Kiel?"),
            _answer("", "Ask again.", _tides("Kiel")),
            _result("5:40"),
            _answer("5:40.", "Ready."),
        ],
    },
}


def sample_conversations() -> Iterator[tuple[str, Conversation]]:
    """The forty conversations, each with its group. The id is `GROUP: NAME`."""
    for group, records in _RECORDS.items():
        for name, messages in records.items():
            record = {"id": f"{group}: {name}", "messages": messages, "tools": _FUNCTIONS if group == TOOLS else None}
            yield group, read_conversation(record, name=name)
