"""The meanings of a record's keys: known names of data sets, overridden by `--map` and `--metadata`.

In: pairs such as `query=prompt`, names of metadata. Out: a `KeyMap`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from spanloom.conversations.turns import says_nothing
from spanloom.errors import SpanloomError

KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "conversation_id", "uuid", "synth_id"),
    "messages": ("messages", "conversations", "conversation", "turns"),
    "query": ("prompt", "query", "question", "instruction+input", "input", "inputs"),
    "reasoning": ("reasoning_content", "reasoning", "thinking", "synthetic_reasoning"),
    "answer": ("response", "answer", "completion", "output", "synthetic_answer", "targets"),
    "history": ("history", "chat_history", "conversation_history", "dialogue_history", "dialog_history"),
    "system": ("system", "system_prompt", "system_message", "system_instruction"),
    "tools": (
        "tools",
        "functions",
        "available_tools",
        "toolConfig",
        "tool_definitions",
        "tool_defs",
        "tool_schemas",
        "tool_schema",
        "function_definitions",
        "function_schemas",
        "tools_json",
    ),
    "effort": ("reasoning_effort",),
    "identity": ("model_identity",),
    "date": ("conversation_start_date",),
    "cutoff": ("knowledge_cutoff",),
    "kwargs": ("chat_template_kwargs",),
    "weight": ("weight",),
}
"""Meaning → known names of keys; `--map` adds others. Alpaca's `input` belongs to `instruction`: as metadata it would
be missing from the question."""

BESIDE = {
    "effort": "reasoning_effort",
    "identity": "model_identity",
    "date": "conversation_start_date",
    "cutoff": "knowledge_cutoff",
    "kwargs": "chat_template_kwargs",
    "weight": "weight",
}
"""Meanings that any form may have next to the conversation → their names in a conversation."""
OF_MESSAGES = ("trained", "masked")
"""Meanings of keys of messages: `trained` is true for trained messages, `masked` for untrained ones."""
OF_RECORDS = ("preferred",)
"""Meanings of keys of any record: true if its answer is a good one (KTO)."""
MAPPED = (*(name for name in KNOWN_NAMES if name not in ("history", "kwargs")), *OF_MESSAGES, *OF_RECORDS)
_SAME = {"prompt": "query", "response": "answer"}
_ONE_KEY = ("id", "messages", "tools", *BESIDE, *OF_MESSAGES, *OF_RECORDS)


REJECTED = frozenset({"rejected", "rejected_response", "rejected_messages", "non_preferred_output", "response_k"})
"""Answers that were not preferred. No option trains them."""

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class KeyMap:
    """The keys of each meaning: of its `names`, the first that a record has is used.

    A meaning whose only name is empty is ignored. The texts of names joined by `+` are joined with a blank line.
    `mapped`: meanings with keys given by the user. `metadata`: keys without a meaning, whatever their name.
    """

    names: Mapping[str, tuple[str, ...]]
    mapped: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()

    @cached_property
    def beside(self) -> frozenset[str]:
        """The keys of records with a meaning of `BESIDE`."""
        return frozenset(name for meaning in BESIDE for name in self.names.get(meaning, ())) - self.metadata

    @cached_property
    def keys(self) -> dict[str, frozenset[str]]:
        """All keys that may have a meaning."""
        return {
            meaning: frozenset(key for name in names for key in (name, *name.split("+")))
            for meaning, names in self.names.items()
        }

    @cached_property
    def _mapped_keys(self) -> frozenset[str]:
        """The keys to which the user gave a meaning: no other meaning uses them."""
        return frozenset(
            key for meaning in self.mapped for name in self.names[meaning] for key in (name, *name.split("+")) if key
        )

    def found(self, meaning: str, record: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys of the record with this meaning; empty if the record lacks it."""
        if self.keys.get(meaning, _NONE).isdisjoint(record):
            return ()
        for name in self.names.get(meaning, ()):
            if name not in record and "+" not in name:
                continue
            if (
                self.mapped
                and meaning not in self.mapped
                and not self._mapped_keys.isdisjoint((name, *name.split("+")))
            ):
                continue
            keys = (name,) if name in record else tuple(name.split("+"))
            if name and not says_nothing(record.get(keys[0])) and keys[0] not in self.metadata:
                return tuple(key for key in keys if not says_nothing(record.get(key)) and key not in self.metadata)
        return ()

    def of_form(self, names: Mapping[str, tuple[str, ...]]) -> "KeyMap":
        """The same with a form's own names; the user's mappings stay. Made once for each form."""
        made = self._of_forms.get(id(names))
        if made is None or made[0] is not names:
            own = {meaning: value for meaning, value in names.items() if meaning not in self.mapped}
            made = self._of_forms[id(names)] = (names, replace(self, names={**self.names, **own}))
        return made[1]

    @cached_property
    def _of_forms(self) -> dict[int, "tuple[Mapping[str, tuple[str, ...]], KeyMap]"]:
        return {}


def key_map(pairs: Sequence[str], metadata: Sequence[str] = ()) -> KeyMap:
    """The known names, overridden by pairs such as `["query=prompt", "answer=reply"]`. Raises SpanloomError for an
    invalid pair."""
    names = dict(KNOWN_NAMES)
    mapped: set[str] = set()
    for pair in pairs:
        meaning, sign, name = pair.partition("=")
        meaning = _SAME.get(meaning, meaning)
        if not sign or meaning not in MAPPED:
            raise SpanloomError(
                f"--map takes MEANING=KEY, not {pair!r}",
                remedy=f"name one of {', '.join(MAPPED)} first, then the key of your records: --map query=prompt",
            )
        if "+" in name and meaning in _ONE_KEY:
            raise SpanloomError(
                f"--map {pair} joins keys, but {meaning} is no text", remedy="name one key; the others are metadata"
            )
        if meaning != "masked" and REJECTED & set(name.split("+")):
            raise SpanloomError(f"--map {pair} would train an answer that was rejected", remedy="omit it")
        if twice := [
            other for other in mapped - {meaning} if name and set(name.split("+")) & set(names[other][0].split("+"))
        ]:
            raise SpanloomError(
                f"--map gives {name} two meanings, {twice[0]} and {meaning}", remedy="name each key once"
            )
        names[meaning] = (name,)
        mapped.add(meaning)
    return KeyMap(names=names, mapped=frozenset(mapped), metadata=frozenset(metadata))
