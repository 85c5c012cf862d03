"""Texts by path against plain renderings.

In: a template, conversations. Out: how many are equal, and which are not. A conversation is walked first. Only one
whose path is unknown is learned, so that a walked conversation was not learned before. The second program is
`ChatTemplate`, which shares no code with the paths.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError, Rendering
from spanloom.tokenizers.template_paths.expressions import Diverged, UnknownPath, Unloggable
from spanloom.tokenizers.template_paths.paths import Paths
from support.model_material import DAY

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
_BATCH = 50


@dataclass
class Outcomes:
    """`counts`: walked, learned, raise in both, unloggable, diverged; `different`: what differs, as sentences."""

    counts: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)


def compared(
    text: str,
    records: Sequence[Mapping[str, Any]],
    prompts: Sequence[bool] = (False, True),
    variables: Mapping[str, Any] | None = None,
) -> Outcomes:
    """Compares all records, each with each of `prompts`. A template that cannot be logged at all is counted once."""
    outcomes = Outcomes()
    given = [
        Rendering(_without_nulls(record["messages"]), record.get("tools"), variables or {}, prompt=prompt)
        for record in records
        for prompt in prompts
    ]
    try:
        paths = Paths(text, {**TOKENS, **(variables or {})}, DAY.strftime)
    except Unloggable:
        outcomes.counts["unloggable"] += len(given)
        return outcomes
    template = ChatTemplate(text, special_tokens=TOKENS, now=DAY)
    for start in range(0, len(given), _BATCH):
        batch = given[start : start + _BATCH]
        for number, (rendering, plain) in enumerate(zip(batch, template.render_all(batch), strict=True), start):
            _compare(paths, rendering, plain, f"rendering {number}", outcomes)
    return outcomes


def _without_nulls(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if value is not None} for each in messages]


def _compare(paths: Paths, given: Rendering, plain: str | ChatTemplateError, name: str, outcomes: Outcomes) -> None:
    messages, tools = [dict(each) for each in given.messages], given.tools
    how = "walked"
    try:
        try:
            text = paths.text(messages, tools, prompt=given.prompt)
        except UnknownPath:
            how = "learned"
            text = paths.learn(messages, tools, prompt=given.prompt)
    except Unloggable:
        outcomes.counts["unloggable"] += 1
    except Diverged:
        outcomes.counts["diverged"] += 1
    except Exception as fault:
        outcomes.counts["raise in both"] += 1
        if isinstance(plain, str):
            outcomes.different.append(f"{name}: only the path raises {fault!r}")
    else:
        outcomes.counts[how] += 1
        if text != plain:
            outcomes.different.append(f"{name}, {how}: {text!r}, not {plain!r}")
