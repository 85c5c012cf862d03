"""Conditions in addition to filters: on numbers of a trace, and on duplicates.

In: texts of `--where`. Out: `Conditions`, which decide for each candidate, newest first, whether it passes.

    reward >= 0.5             a number in `meta`; `a.b` names a key of a nested object. Traces without it do not pass
    count(steps) <= 40        the number of steps; count(characters): of prompt, steps and answer together
    unique(prompt)            only the newest trace of equal prompts; unique(content): prompt, steps and answer
"""

import hashlib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spanloom.families.traces.trace import Payload
from spanloom.provenance import canonical_json
from spanloom.records.scalars import is_number

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = re.compile(r"\s*(\S.*?)\s*(>=|<=|!=|==|=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")
_UNIQUE = re.compile(r"\s*unique\((prompt|content)\)\s*")
_COUNT = re.compile(r"count\((steps|characters)\)")
SYNTAX = "KEY >= NUMBER, also <=, >, <, =, !=; count(steps), count(characters); unique(prompt), unique(content)"


@dataclass(frozen=True, slots=True)
class Candidate:
    """The input of conditions. `payload` is set if `Conditions.need_payload` is true."""

    meta: Mapping[str, Any]
    steps: int
    characters: int
    payload: Payload | None


@dataclass(frozen=True, slots=True)
class _Number:
    key: str
    compare: Callable[[Any, Any], bool]
    limit: float

    def passes(self, candidate: Candidate) -> bool:
        value = self._value(candidate)
        return is_number(value) and self.compare(value, self.limit)

    def _value(self, candidate: Candidate) -> Any:
        if count := _COUNT.fullmatch(self.key):
            return candidate.steps if count[1] == "steps" else candidate.characters
        if self.key in candidate.meta:
            return candidate.meta[self.key]
        value: Any = candidate.meta
        for name in self.key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


@dataclass(slots=True)
class _Unique:
    """Detects duplicates. Stores a hash of 16 bytes for each trace, in a set."""

    part: str
    seen: set[bytes] = field(default_factory=set)

    def passes(self, candidate: Candidate) -> bool:
        assert candidate.payload is not None, "asked for by need_payload"
        payload = candidate.payload
        content = [payload["prompt"]]
        if self.part == "content":
            content += [*(step["content"] for step in payload["steps"]), payload["final_answer"]]
        digest = hashlib.blake2b(canonical_json(content), digest_size=16).digest()
        new = digest not in self.seen
        self.seen.add(digest)
        return new


class Conditions:
    """All conditions of a build. Those on numbers are tested first: of duplicates, the newest that passes is kept."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Raises ValueError for an invalid condition."""
        parsed = list(map(_parsed, texts))
        self._numbers = [condition for condition in parsed if isinstance(condition, _Number)]
        self._unique = [condition for condition in parsed if isinstance(condition, _Unique)]

    @property
    def need_payload(self) -> bool:
        """Whether a condition needs the texts of a trace."""
        return bool(self._unique)

    def pass_all(self, candidate: Candidate) -> bool:
        """Whether a trace passes. Call it once for each trace, newest first."""
        if not all(number.passes(candidate) for number in self._numbers):
            return False
        # No short circuit: each condition has to see every trace.
        passed = [unique.passes(candidate) for unique in self._unique]
        return all(passed)


def _parsed(text: str) -> _Number | _Unique:
    if unique := _UNIQUE.fullmatch(text):
        return _Unique(unique[1])
    number = _NUMBER.fullmatch(text)
    if number is None or ("(" in number[1] and not _COUNT.fullmatch(number[1])):
        raise ValueError(f"{text!r} is no condition; write {SYNTAX}")
    return _Number(number[1], _OPERATORS[number[2]], float(number[3]))
