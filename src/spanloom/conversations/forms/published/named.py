"""Columns with the names of one known data set, whose question, reasoning and answer are known.

In: a record with exactly these names. Out: its question and answer as messages, made by `columns`.

    Dolly          instruction+context, response
    s1K            question, thinking_trajectories (a list of one), attempt
    OpenThoughts   problem, deepseek_reasoning, deepseek_solution
    Nemotron       input (messages), output; `reasoning` says on or off
    verifiers      prompt, completion (messages); `answer` is the truth that a reward compares with
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spanloom.conversations.forms import columns
from spanloom.conversations.forms.form import Draft, FormKind, Taken, are_messages, listed_or_text
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.turns import RecordRefusedError, Refusal, says_nothing

_DOLLY = {"instruction", "context", "response"}


def _is_dolly(record: Mapping[str, Any], names: KeyMap) -> bool:
    keys = {key for key in record if key not in names.metadata}
    return keys >= _DOLLY and keys <= {*_DOLLY, "category", "id", "system"}


def _is_nemotron(record: Mapping[str, Any], names: KeyMap) -> bool:
    if names.metadata & {"input", "output"}:
        return False
    return are_messages(listed_or_text(record.get("input"))) and isinstance(record.get("output"), str)


def _is_verifiers(record: Mapping[str, Any], names: KeyMap) -> bool:
    if names.metadata & {"prompt", "completion"} or says_nothing(record.get("prompt")):
        return False
    completion = record.get("completion")
    return not says_nothing(completion) and are_messages(listed_or_text(completion))


def _draft_rollout(taken: Taken) -> Draft:
    if (answer := taken.one("answer")) is None or not taken.values["query"]:
        raise RecordRefusedError(Refusal.NO_MESSAGES, "the record has no prompt, or no completion")
    if (
        isinstance(answer, str) and "answer" in taken.left
    ):  # a text may be what the truth is compared with, or the truth
        return columns.draft_of_columns(taken)
    return columns.draft(taken)


def _has(*keys: str) -> Any:
    return lambda record, names: all(key in record and key not in names.metadata for key in keys)


def _draft(taken: Taken) -> Draft:
    values = dict(taken.values)
    if values.setdefault("reasoning", []) and isinstance(trajectories := values["reasoning"][0], list):
        if len(trajectories) != 1:
            raise RecordRefusedError(Refusal.REASONING_TWICE, f"the record has {len(trajectories)} reasonings")
        values["reasoning"] = trajectories
    return columns.draft(replace(taken, values=values))


DOLLY = FormKind(
    name="dolly",
    title="an instruction, its context and its response (Dolly)",
    meanings=columns.MEANINGS,
    recognises=_is_dolly,
    draft=_draft,
    names={"query": ("instruction+context",), "answer": ("response",)},
)

S1K = FormKind(
    name="s1k",
    title="a question, the trajectory of its reasoning and an attempt (s1K)",
    meanings=columns.MEANINGS,
    recognises=_has("question", "thinking_trajectories", "attempt"),
    draft=_draft,
    names={"query": ("question",), "reasoning": ("thinking_trajectories",), "answer": ("attempt",)},
)

OPEN_THOUGHTS = FormKind(
    name="open_thoughts",
    title="a problem with DeepSeek's reasoning and solution (OpenThoughts)",
    meanings=columns.MEANINGS,
    recognises=_has("problem", "deepseek_reasoning", "deepseek_solution"),
    draft=_draft,
    names={"query": ("problem",), "reasoning": ("deepseek_reasoning",), "answer": ("deepseek_solution",)},
)

VERIFIERS = FormKind(
    name="verifiers",
    title="a prompt and its completion as messages (verifiers)",
    meanings=columns.MEANINGS,
    recognises=_is_verifiers,
    draft=_draft_rollout,
    names={"query": ("prompt",), "answer": ("completion",)},
)

NEMOTRON = FormKind(
    name="nemotron",
    title="messages of input, and the output (Nemotron)",
    meanings=tuple(meaning for meaning in columns.MEANINGS if meaning != "reasoning"),
    recognises=_is_nemotron,
    draft=_draft,
    names={"query": ("input",), "answer": ("output",)},
)
