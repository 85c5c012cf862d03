"""Why a conversation is refused: the class, the fault, the run, the remedy."""

from dataclasses import dataclass

TEMPLATE_RAISES = "template_raises"
TEMPLATE_FAILS = "template_fails"
TEXT_DROPPED = "text_dropped"
TEXT_ALTERED = "text_altered"
PROMPT_NOT_PREFIX = "prompt_not_prefix"
MERGE_AT_BOUNDARY = "merge_at_boundary"
MIXED_TEXTS = "mixed_texts"
NO_TURN_END = "no_turn_end"
TOKEN_STRADDLES = "token_straddles"
SPECIAL_IN_TEXT = "special_in_text"
STRUCTURE_DEPENDS_ON_TEXT = "structure_depends_on_text"
TRACE_CHANGES = "trace_changes"
DOUBLE_BOS = "double_bos"
UNDATED = "undated"
DEFAULT_SYSTEM = "default_system"

CALLS_DROPPED = "write tools and calls as text: --inline-calls hermes; or give a template that writes them"
BESIDE_DROPPED = "split it off as a message before the calls: --text-beside-calls split; or take it out"
"""Remedies of dropped texts of tools and calls, and of those beside calls."""

REMEDIES = {
    TEMPLATE_RAISES: "leave such conversations out, or change them into what the template takes",
    TEMPLATE_FAILS: "give another template, or leave such conversations out",
    TEXT_DROPPED: "give a template that writes it, or take it out of the conversation",
    TEXT_ALTERED: "give a template that writes texts as they are, or change the text",
    PROMPT_NOT_PREFIX: "try --thinking on or off; `spanloom model probe DIR` finds what to declare with --emission",
    MERGE_AT_BOUNDARY: "encode prompt and completion apart, as servers do: --boundary served",
    MIXED_TEXTS: "give a template that writes messages in their order",
    NO_TURN_END: "declare the token that ends the turn: --stop",
    TOKEN_STRADDLES: "give another tokenizer, or train one span of the two",
    SPECIAL_IN_TEXT: "leave such conversations out, or write the control token otherwise",
    STRUCTURE_DEPENDS_ON_TEXT: "leave such conversations out, or change the text",
    TRACE_CHANGES: "report the template",
    DOUBLE_BOS: "take the BOS out of the template or out of the text",
    UNDATED: "give the date: --date 2025-01-31",
    DEFAULT_SYSTEM: "give each conversation a system message",
}
"""Class → what the user can do. The keys are all classes."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """`kind`: a key of `REMEDIES`; `run`: the place of the assistant's message, from 0."""

    kind: str
    message: str
    run: int
    remedy: str
