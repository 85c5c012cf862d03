"""The honest datasets that are forged, and their sources.

In: a folder, the tokenizer. Out: roots and sources, each made once.
"""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from spanloom.families.harmony.build import build
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.harmony.options import BuildOptions
from support import sources
from support.model_datasets import write_conversations

WORDS = ["river", "mount", "tidal", "moons", "house", "train", "green", "brown", "olden", "seven", "eight", "write"]
TOOL = {
    "name": "find",
    "description": "Finds.",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
}
VALID_FRACTION = 0.2
SYNTH = "synth"
"""The name of the dataset of SYNTH KD."""


def conversation(number: int, *, flags: bool = False) -> dict[str, Any]:
    """One to three questions; some have a call, most answers have reasoning. `flags`: untrained, truncated, weight."""
    drawn = random.Random(number)

    def words(count: int) -> str:
        return " ".join(drawn.choices(WORDS, k=count))

    messages: list[dict[str, Any]] = []
    if number % 4 == 3:
        messages.append({"role": "system", "content": f"Answer in {words(1)}."})
    for turn in range(2 if number < 4 else drawn.choice([1, 1, 2, 3])):
        messages.append({"role": "user", "content": f"What about the {words(1)} {number:03d}?"})
        if (number + turn) % 2 == 0:
            call = {"id": f"c{turn}", "name": "find", "arguments": json.dumps({"what": words(1)})}
            spoken = {"content": f"I look at {words(2)}."} if number % 3 == 0 else {}
            messages.append({"role": "assistant", "reasoning": f"Look up {words(2)}.", "tool_calls": [call], **spoken})
            messages.append({"role": "tool", "content": f"Found {words(3)}.", "tool_call_id": f"c{turn}"})
        reasoning = {"reasoning": f"It may be {words(2)}."} if (number + turn) % 3 else {}
        messages.append({"role": "assistant", "content": f"It is {words(2)}.", **reasoning})
        if flags and drawn.random() < 0.3:
            messages[-1][drawn.choice(["trained", "truncated"])] = False
        if flags and drawn.random() < 0.3:
            messages[-1]["truncated"] = True
    if all(message.get("trained") is False for message in messages if message["role"] == "assistant"):
        messages[-1].pop("trained")
    whole = {"messages": messages, "tools": [TOOL], **({"weight": 0.5 + number % 3} if flags else {})}
    name = f"c{number}"
    return {"id": name, "messages_json": json.dumps(whole), "metadata_json": json.dumps({"id": name})}


BAD = {"id": "bad", "messages_json": '{"messages": []}', "metadata_json": '{"id": "bad"}'}

BASES: dict[str, tuple[bool, CutRules]] = {
    "plain": (False, CutRules()),
    "flags": (True, CutRules()),
    "keep": (False, CutRules(history="keep")),
    "prompted": (False, CutRules(mask_generation_prompt=True)),
    "as-served": (False, CutRules(call_format="as-served")),
    "last": (False, CutRules(turns="last")),
    "answers": (False, CutRules(train=("final",))),
}
"""Name → whether the source has flags, and the rules of the build."""


def synth_row(number: int) -> sources.Row:
    """A question with an answer; most have reasoning, some a system text."""
    drawn = random.Random(number)
    words = " ".join(drawn.choices(WORDS, k=2))
    messages = sources.conversation(
        f"What about the {words} {number:03d}?", f"It may be {words}." if number % 4 else None, f"It is {words}."
    )
    if number % 3 == 2:
        messages.insert(0, {"role": "system", "content": f"Answer in {drawn.choice(WORDS)}."})
    return sources.row(f"s-{number}", messages)


def maker(folder: Path, asset: Path) -> Callable[[str], tuple[Path, Path]]:
    """The function that gives root and source of the honest dataset of a name."""

    @cache
    def source(flags: bool) -> Path:
        rows = [conversation(number, flags=flags) for number in range(160)]
        return write_conversations(folder / f"source-{flags}", [[*rows[:60], BAD, *rows[60:80]], rows[80:]])

    @cache
    def made(name: str) -> tuple[Path, Path]:
        if name == SYNTH:
            rows = [synth_row(number) for number in range(60)]
            rows[20] = sources.row("bad", [])
            place, rules = sources.write_source(folder / "synth", [rows[:30], rows[30:]]), None
        else:
            flags, rules = BASES[name]
            place = source(flags)
        options = BuildOptions(
            source=place,
            out=folder / f"root-{name}",
            rules=rules,
            shards=2,
            valid_fraction=VALID_FRACTION,
            workers=1,
            tokenizer=asset,
            max_rejects="100%",
            allow_unknown_sha=True,
            reader="independent",
        )
        result = build(options)
        assert result.report.clean, result.report.findings
        return result.root, place

    return made
