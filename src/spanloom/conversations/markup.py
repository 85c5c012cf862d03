"""Markup in assistant texts, for reasoning and calls that the data set has no keys for: one table, and its readers.

In: the texts of an assistant message. Out: its reasoning and its answer, separated; or a refusal that names the option
that reads the markup.

    option              markup
    --think-tags        THINK_TAGS, SOLUTION_TAGS
    --call-tags STYLE   CALL_STYLES (`spanloom.conversations.call_tags` reads them)
    --text-as-is        also TEMPLATE_MARKS: tokens of chat templates, which no other option reads
"""

import re

from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError, Refusal

THINK_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("<thoughts>", "</thoughts>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<scratch_pad>", "</scratch_pad>"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Beginning and end of reasoning in a text."""

SOLUTION_TAGS = (("<|begin_of_solution|>", "<|end_of_solution|>"),)
"""Beginning and end of the answer, after reasoning in tags."""

TAG_STARTS = frozenset(opening[0] for opening, _ in THINK_TAGS)
TAG_ENDS = frozenset(closing[-1] for _, closing in THINK_TAGS)
ANSWER_TAGS = ("<answer>", "</answer>")
"""The same, but only if they enclose the whole answer after reasoning in tags. Elsewhere they are text."""

CALL_STYLES: dict[str, tuple[str, ...]] = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "glaive": ("<functioncall>",),
    "mistral": ("[TOOL_CALLS]",),
    "openhands": ("<function=", "</function>"),
    "toolace": (),
}
"""Marks of a call in a text, by the style that `--call-tags` takes. ToolACE's `[f(a=1)]` is found by its shape."""

TEMPLATE_MARKS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|python_tag|>", "<start_of_turn>", "<end_of_turn>",
    "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<|user|>", "<|assistant|>", "<|system|>", "<tool_response>",
    "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜tool▁calls▁begin｜>",
    "<｜begin▁of▁sentence｜>", "<｜tool▁call▁begin｜>", "<｜tool▁outputs▁begin｜>", "[TOOL_RESULTS]",
    "[AVAILABLE_TOOLS]", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call|>", "<|observation|>",
    "<|im_sep|>", "<|header_start|>", "<|header_end|>", "<|eot|>", "<|start_of_role|>", "<|end_of_role|>",
    "<|action_start|>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|START_ACTION|>", "<function_calls>",
    "<invoke name=", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>",
    "<extra_id_0>", "<extra_id_1>",
)  # fmt: skip
"""Tokens of chat templates, those of Harmony and NeMo last. A text with one of them is rendered, not an answer."""

_PLACEHOLDER = re.compile(r"\{\{[A-Za-z_]+\}\}")
"""A placeholder that should have been filled in before training: `I am {{name}}`. Code may contain the same syntax."""
_REACT = re.compile(r"^Action:[^\n]+\s+Action Input:", re.MULTILINE)
"""A tool call written as ReAct text."""

_STRIPPED = re.compile(r"(analysis|commentary).*?assistant(final|commentary)", re.DOTALL)
STRIPPED_STARTS = ("analysis", "commentary")
"""Harmony text whose special tokens a server removed: `analysisHm.assistantfinalYes.`"""
_MARKS = {mark: f"--call-tags {style}" for style, marks in CALL_STYLES.items() for mark in marks}
_MARKS |= dict.fromkeys(TEMPLATE_MARKS, "")
_ANY_MARK = re.compile("|".join(map(re.escape, _MARKS)))
_THINKS = tuple(tag for pair in (*THINK_TAGS, *SOLUTION_TAGS) for tag in pair)
_ANY_THINK = re.compile("|".join(map(re.escape, _THINKS)))
_ALL_MARKS = (*_MARKS, *_THINKS)
_AFTER = {start: "|".join(re.escape(mark[1:]) for mark in _ALL_MARKS if mark[0] == start) for start in "<[◁"}
_BY_START = [(start, re.compile(f"{re.escape(start)}(?:{ends})")) for start, ends in _AFTER.items()]
"""Patterns for all marks with the same first character: `re` searches for one first character much faster."""


def may_hold_markup(text: str) -> bool:
    """False for a text that `refuse_markup`, `without_think_tags` and the reader of ToolACE's calls ignore."""
    if text.startswith(STRIPPED_STARTS):
        return True
    for start, marks in _BY_START:
        if start in text and marks.search(text) is not None:
            return True
    return "[" in text and text.lstrip().startswith("[")


def has_placeholder(text: str) -> bool:
    """Whether a text contains `{{name}}` and no code block."""
    # One character is found several times as fast as two, and most texts have none.
    return "{" in text and "{{" in text and "```" not in text and _PLACEHOLDER.search(text) is not None


def has_react(text: str) -> bool:
    """Whether a text contains a tool call written as ReAct text (`Action: … Action Input: …`)."""
    return "Action Input:" in text and _REACT.search(text) is not None


def refuse_markup(texts: tuple[str, ...], where: str, reading: Reading) -> None:
    """Raises RecordRefusedError for a text with markup that would be trained as text of the answer.

    Call `without_think_tags` first: it handles the tags of reasoning.
    """
    if reading.text_as_is:
        return
    for text in texts:
        if text.startswith(STRIPPED_STARTS) and (bare := _STRIPPED.match(text)):
            raise RecordRefusedError(
                Refusal.MARKUP,
                f"{where} looks like text of Harmony whose tokens were taken away: {bare[1]}…assistant{bare[2]}",
                "--text-as-is keeps it as text",
            )
        if may_hold_markup(text) and (mark := _ANY_MARK.search(text)):
            option = _MARKS[mark[0]]
            raise RecordRefusedError(
                Refusal.MARKUP,
                f"{where} holds {mark[0]}, which would be trained as text of the answer",
                (f"{option} reads it as calls, " if option else "") + "--text-as-is keeps it as text",
            )


def without_think_tags(
    texts: tuple[str, ...], where: str, reading: Reading, dropping: Dropping
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Reasoning and text of an answer that may begin with reasoning in tags. White space next to tags is removed.

    A closing tag alone counts too: if a template puts the opening tag into the prompt, the answer lacks it.
    """
    tags = reading.think_tags if reading.think_tags is not None else (False if reading.text_as_is else None)
    if tags is False or not (
        held := [mark[0] for text in texts if may_hold_markup(text) for mark in _ANY_THINK.finditer(text)]
    ):
        return (), texts
    opening, closing = next(pair for pair in (*THINK_TAGS, *SOLUTION_TAGS) if held[0] in pair)
    if tags is None and "think" not in dropping.names:
        raise RecordRefusedError(
            Refusal.THINK_TAGS,
            f"{where} holds {opening} or {closing}, which would be trained as text of the answer",
            "--think-tags reads it as analysis, --drop think leaves it out, --text-as-is keeps it as text",
        )
    reasoning, answer = _parted(texts[0], opening, closing)
    more = any(_ANY_THINK.search(text) for text in (answer, *texts[1:]))
    if reasoning is None or opening in reasoning or more:
        raise RecordRefusedError(
            Refusal.THINK_TAGS_UNCLEAR,
            f"{where} does not begin with one {opening}…{closing}, or holds more of them",
            "--text-as-is keeps such tags as text",
        )
    rest = tuple(text for text in (answer, *texts[1:]) if text)
    if not reasoning or dropping.drops("think", reasoning):
        return (), rest
    return (reasoning,), rest


def bare_reasoning(text: str, where: str, reading: Reading) -> str:
    """Reasoning from a key of its own, without the tags that some data sets put around it there too.

    Raises RecordRefusedError if no option says whether the tags are text.
    """
    bare = text.strip()
    pair = next((pair for pair in THINK_TAGS if bare.startswith(pair[0]) or bare.endswith(pair[1])), None)
    if pair is None or reading.think_tags is False or (reading.think_tags is None and reading.text_as_is):
        return text
    if reading.think_tags is None:
        raise RecordRefusedError(
            Refusal.THINK_TAGS,
            f"{where} has {pair[0]} or {pair[1]} around its reasoning, which would be trained as text",
            "--think-tags takes the tags away, --text-as-is keeps them as text",
        )
    return bare.removeprefix(pair[0]).removesuffix(pair[1]).strip()


def _parted(text: str, opening: str, closing: str) -> tuple[str | None, str]:
    """Reasoning and answer of a text; None if the reasoning has no end."""
    if (opening, closing) in SOLUTION_TAGS:
        reasoning, answer = "", text.lstrip()
    else:
        before, end, answer = text.partition(closing)
        if not end:
            return None, text
        reasoning, answer = before.strip().removeprefix(opening).strip(), answer.lstrip()
    begin, end = ANSWER_TAGS
    if reasoning and answer.startswith(begin) and answer.rstrip().endswith(end) and answer.count(begin) == 1:
        answer = answer.removeprefix(begin).rstrip().removesuffix(end).strip()
    for begin, end in SOLUTION_TAGS:
        if answer.startswith(begin):
            answer = answer.removeprefix(begin).rstrip().removesuffix(end).strip()
    return reasoning, answer
