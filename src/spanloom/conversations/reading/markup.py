"""Markup in assistant texts, for reasoning and calls that the data set has no keys for: one table, and its readers.

In: the texts of an assistant message. Out: its reasoning and its answer, separated; or a refusal that names the option
that reads the markup.

    option              markup
    --think-tags        THINK_TAGS, SOLUTION_TAGS
    --call-tags STYLE   CALL_STYLES (`spanloom.conversations.reading.call_tags` reads them)
    --text-as-is        also TEMPLATE_SHAPES: what chat templates write, which no other option reads
"""

import re

from spanloom.conversations.reading.flags import SET_ASIDE
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
    ("<|channel>thought", "<channel|>"),
    ("<Think>", "</Think>"),
    ("<THINK>", "</THINK>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<thinking_process>", "</thinking_process>"),
    ("<unused94>thought", "<unused95>"),
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

TEMPLATE_TAGS = (
    "tool_call", "tool_calls", "tool_response", "tool_responses", "tool_output", "tool_outputs", "tool_result",
    "tool_results", "function_call", "function_calls", "function_results", "available_tools", "arg_key", "arg_value",
    "tool_sep", "tool_def_sep", "assistant", "TOOLCALL", "TOOL_CALLS", "TOOL_RESPONSE", "AVAILABLE_TOOLS",
    "start_of_turn", "end_of_turn", "end_of_utterance", "beginning_of_sentence", "end_of_sentence", "begin_of_document",
    "start_of_image", "end_of_image", "im_patch", "sop", "co", "REKA_IMG_TOKEN", "start_function_call",
    "end_function_call", "start_function_response", "end_function_response", "start_function_declaration",
    "end_function_declaration", "tool_use", "tool_code", "longcat_tool_call",
)  # fmt: skip
"""Names of tags that chat templates write and ordinary XML and HTML do not. `<tools>`, `<response>`, `<name>` are
ordinary."""
TEMPLATE_BRACKETS = (
    "INST", "TOOL_CALLS", "TOOL_RESULTS", "AVAILABLE_TOOLS", "SYSTEM_PROMPT", "TOOL_CONTENT", "CALL_ID",
)  # fmt: skip
"""Names in brackets that chat templates write, `[INST]` or `[/INST]`. `[ARGS]` and `[IMG]` are ordinary."""
BB_CODE = frozenset(
    [
        "B",
        "I",
        "U",
        "S",
        "CODE",
        "QUOTE",
        "URL",
        "IMG",
        "LIST",
        "SIZE",
        "COLOR",
        "CENTER",
        "SPOILER",
        "TABLE",
        "TR",
        "TD",
        "TH",
        "LEFT",
        "RIGHT",
        "FONT",
        "VIDEO",
        "MEDIA",
        "EMAIL",
        "HEADING",
        "YOUTUBE",
        "ATTACH",
    ]
)
"""Names of pairs in brackets that are ordinary: `[CODE]…[/CODE]`."""

TEMPLATE_PAIRS = ("tools", "functions", "function", "invoke", "parameters", "parameter", "tool")
"""Names of tags that templates write and ordinary XML rarely: only a whole pair, `<tools>…</tools>`, is markup."""

TEMPLATE_SHAPES = {
    "<|im_end|>": r"<\|[^\s<>|]{1,40}\|>",
    "<|turn>": r"<\|/?[A-Za-z_]{2,30}>",  # Gemma 4
    "<channel|>": r"</?[A-Za-z_]{2,30}\|>",
    "<｜User｜>": r"</?｜[^<>｜\n]{1,60}｜",  # also <｜DSML｜invoke name="f">
    "〈|EOS|〉": r"〈\|[A-Z_]{1,30}\|〉",
    "<<SYS>>": r"<</?SYS>>",
    "<tool_response>": rf"</?(?:{'|'.join(TEMPLATE_TAGS)})(?:\s[^<>\n]{{0,200}})?/?>",
    "<co: 0>": r"<co: \d",
    "<minimax:tool_call>": r"</?(?:seed|minimax|atem|xai):[a-z_]+[\s>]",
    "<invoke name=": r"<invoke name=",
    "<role>HUMAN</role>": r"<role>(?:HUMAN|SYSTEM|ASSISTANT|OBSERVATION)</role>",
    "<extra_id_0>": r"<(?:SPECIAL|extra_id)_\d+>",
    "<unused0>": r"<unused\d{1,3}>",  # Gemma
    '<details type="reasoning"': r'<details type="(?:reasoning|tool_calls|code_interpreter)"',  # Open WebUI
    "✿FUNCTION✿": r"✿(?:FUNCTION|ARGS|RESULT|RETURN)✿",  # Qwen-Agent
    "[INST]": rf"\[/?(?:{'|'.join(TEMPLATE_BRACKETS)})\]",
    "[ARGS]{": r"\[ARGS\]\s*\{",
}
"""What chat templates write, by shape: an example → a regular expression. Besides these, pairs (`[NAME]…[/NAME]` and
`TEMPLATE_PAIRS`) and `</s>`. A text with one of them is rendered, not an answer. Ordinary prose, code and HTML have
none."""

_PLACEHOLDER = re.compile(r"\{\{[A-Za-z_]+\}\}")
"""A placeholder that should have been filled in before training: `I am {{name}}`. Code may contain the same syntax."""
_REACT = re.compile(r"^Action:[^\n]+\s+Action Input:", re.MULTILINE)
"""A tool call written as ReAct text."""

_STRIPPED = re.compile(r"(analysis|commentary).*?assistant(final|commentary)", re.DOTALL)
FUNCTOOLS = "functools["
"""The beginning of a call of Phi-4-mini and Firefunction."""
STRIPPED_STARTS = ("analysis", "commentary")
"""Harmony text whose special tokens a server removed: `analysisHm.assistantfinalYes.`"""
_CALL_MARKS = {mark: style for style, marks in CALL_STYLES.items() for mark in marks}
_ANY_CALL = re.compile("|".join(map(re.escape, _CALL_MARKS)))
_THINKS = tuple(tag for pair in (*THINK_TAGS, *SOLUTION_TAGS) for tag in pair)
_ANY_THINK = re.compile("|".join(map(re.escape, _THINKS)))
_ALL = (*TEMPLATE_SHAPES.values(), *map(re.escape, (*_CALL_MARKS, *_THINKS)))
_BY_START = [
    (start, re.compile("|".join(shape for shape in _ALL if shape.removeprefix("\\")[0] == start))) for start in "<[◁〈✿"
]
"""Patterns of all marks with the same first character: most texts lack the character, and finding that out is fast."""
_ANY_SHAPE = re.compile("|".join(TEMPLATE_SHAPES.values()))
_OPENING_BRACKET = re.compile(r"\[([A-Z][A-Z_]{1,30})\]")
_CLOSING_BRACKET = re.compile(r"\[/([A-Z][A-Z_]{1,30})\]")
_CLOSING_TAG = re.compile(f"</({'|'.join(TEMPLATE_PAIRS)})>")


def may_hold_markup(text: str) -> bool:
    """False for a text that `refuse_markup`, `without_think_tags` and the reader of ToolACE's calls ignore."""
    if text.startswith((*STRIPPED_STARTS, FUNCTOOLS)):
        return True
    for start, marks in _BY_START:
        if start in text and (marks.search(text) is not None or (start in "<[" and _paired_mark(text) is not None)):
            return True
    return "[" in text and text.lstrip().startswith("[")


def template_mark(text: str) -> str | None:
    """The first thing in a text that a chat template or a style of calls writes; None for ordinary text."""
    if text.startswith(FUNCTOOLS):
        return FUNCTOOLS
    for pattern in (_ANY_CALL, _ANY_SHAPE):
        if mark := pattern.search(text):
            return mark[0]
    return _paired_mark(text)


_BEGINS = re.compile(r"\s*(?:<s>|<bos>|<BOS>|\[BOS\])")
_ENDS = re.compile(r"(?:<eos>|<EOS>|<EOT>|\[EOS\])\s*\Z")
"""The beginning and the end of a sequence, at the edges of a text. Elsewhere they are ordinary."""


def _edge(text: str) -> str | None:
    """A token at the edge of a text; `<s>` that begins it and is closed before its end is HTML's."""
    begins = _BEGINS.match(text)
    if begins and "<s>" in begins[0] and "</s>" in text.rstrip()[:-4]:
        begins = None
    edge = begins or _ENDS.search(text, max(0, len(text) - 16))
    return edge[0].strip() if edge else None


def _paired_mark(text: str) -> str | None:
    """A name in brackets or a tag that is closed; `</s>` that closes no `<s>`; a token at the edge of the text."""
    if edge := _edge(text):
        return edge
    if "[/" in text:
        opened = frozenset(_OPENING_BRACKET.findall(text))
        for name in _CLOSING_BRACKET.findall(text):
            if name not in BB_CODE and name in opened:
                return f"[{name}]"
    if "</" not in text:
        return None
    for name in _CLOSING_TAG.findall(text):
        if f"<{name}>" in text or f"<{name} " in text:
            return f"<{name}>"
    # The end of a sequence of Llama and Mistral; in HTML, the end of a struck text.
    return "</s>" if "</s>" in text and "<s>" not in text and "<s " not in text else None


_TURNS = re.compile(r"(?:\A|\n|[.!?。] )\s*(?:#+ *)?(?:Instruction|Question|User|Human|USER|HUMAN)\s*:")
_ASKS = re.compile(r"(?:\A|\s)(?:(?:#+ *)(?:Response|Answer|Output)|(?:#+ *)?(?:Assistant|ASSISTANT|AI|Bot))\s*:\s*\Z")
_SPEAKS = re.compile(r"\s*(?:assistant|model|bot)?\s*(?:<think>)?\s*", re.IGNORECASE)
_SPOKE = re.compile(
    r"(?:<\|im_start\|>assistant|<\|(?:assistant|Assistant|ASSISTANT)\|>|<start_of_turn>model|<extra_id_1>Assistant"
    r"|<\|start_header_id\|>assistant<\|end_header_id\|>|<\|turn>model)\n|<｜Assistant｜>"
)
"""The beginning of an answer within a rendered text."""
_LONGEST_END = 200


def rendered_mark(question: str, answer: str = "") -> str | None:
    """What shows that a template rendered a question: its end, where the model's answer begins, or an earlier answer
    within it; None for any other text. The question may end with its own answer.

    `<|im_start|>assistant`, `[/INST]`, `<|assistant|>`; `### Response:` after `### Instruction:`, `Assistant:` after
    `Human:`.
    """
    text, own = question.rstrip(), answer.strip()
    ends = [text, text.removesuffix(own)] if own and text.endswith(own) else [text]
    for end in [whole.rstrip()[-_LONGEST_END:] for whole in ends]:
        for mark in _ANY_SHAPE.finditer(end) if any(start in end for start in "<[〈✿") else ():
            if _SPEAKS.fullmatch(end, mark.end()):
                return end[mark.start() :]
        asks = _ASKS.search(end) if end.endswith(":") else None
        if asks and _TURNS.search(text):
            return asks[0].strip()
    if "[/INST]" in text and text.find("[INST]", text.find("[/INST]")) > 0:
        return "[/INST]"
    spoke = _SPOKE.search(text) if "<" in text else None
    return spoke[0].strip() if spoke else None


_REPLIES = re.compile(r"(?:\n\s*|#+ *)(?:Response|Answer|Output|Assistant|ASSISTANT|AI|Bot)\s*:")


def turns_mark(text: str) -> str | None:
    """What begins an answer behind a question in one text, as `### Response:`; None for any other text."""
    asked = _TURNS.search(text)
    replied = _REPLIES.search(text, asked.end()) if asked else None
    return replied[0].strip() if replied else None


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
        if reading.think_tags is False:  # the tags of reasoning are to stay
            text = _ANY_THINK.sub(" ", text)
        for own in reading.own_marks:
            text = text.replace(own, " ")
        if may_hold_markup(text) and (mark := template_mark(text)):
            style = _CALL_MARKS.get(mark)
            raise RecordRefusedError(
                Refusal.MARKUP,
                f"{where} holds {mark}, which would be trained as text of the answer",
                (f"--call-tags {style} reads it as calls, " if style else "") + "--text-as-is keeps it as text",
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
            f"--text-as-is without --think-tags keeps such tags as text; {SET_ASIDE}",
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
