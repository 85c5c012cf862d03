"""What a trace is: prompt, numbered steps, final answer, and what its maker says of it.

In: JSON values. Out: `Trace`, checked; its payload as it is stored; its canonical JSON, and the id that follows.

Limits count code points. Keys that the format does not know are dropped. An index may come as a whole float or a
decimal text, text is never made of anything else.
"""

import json
import sys
from functools import cached_property
from typing import Annotated, Any
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from spanloom.provenance import canonical_json

NAMESPACE = uuid5(NAMESPACE_URL, "spanloom:trace:v1")
"""Of all ids that follow from content."""

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
"""Endings of files that hold traces, a line each."""

MAX_DEPTH = 200
"""Objects and lists of `meta` inside one another: what parses and writes JSON gives up some way beyond."""

Payload = dict[str, Any]
"""A checked trace as JSON: trace_version, prompt, final_answer, steps, meta."""


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "Input should be a valid integer, and true and false are none")
    if isinstance(value, int) and value > sys.float_info.max:
        raise PydanticCustomError("int_type", "Input should be a valid integer that a double can hold")
    return value


def _plain(meta: dict[str, Any]) -> bool:
    """Whether no value has to be looked into, or is a float: JSON has not all of them, and libraries two spellings."""
    return _NOT_PLAIN.isdisjoint(map(type, meta.values()))


_NOT_PLAIN = frozenset((float, dict, list))


def check_json(value: Any) -> None:
    """Raises ValueError for what cannot be stored as JSON: NaN, half a character, too many levels."""
    if type(value) is dict and _plain(value):
        try:
            orjson.dumps(value)
            return
        except TypeError:  # half a character, or an integer beyond 64 bits, which is fine
            pass
    # One iterator a level: a list of all that waits would take several times what the value itself does.
    waiting = [iter((value,))]
    while waiting:
        try:
            value = next(waiting[-1])
        except StopIteration:
            waiting.pop()
            continue
        kind = type(value)
        if kind is str:
            _check_text(value)
        elif kind is float or kind is int:
            if not -sys.float_info.max <= value <= sys.float_info.max:  # NaN is in no order with anything
                raise ValueError("a number is no finite one, or beyond what a double holds")
        elif kind is dict or kind is list:
            if len(waiting) > MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
            if kind is dict:
                for key in value:
                    _check_text(key)
            waiting.append(iter(value.values() if kind is dict else value))


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("a text holds half a character (a lone surrogate)") from None


class Step(BaseModel):
    """One step. `i` is its index, unique in the trace, of no further meaning: steps keep the order of the list."""

    model_config = ConfigDict(frozen=True)

    i: Annotated[int, Field(ge=0), BeforeValidator(_no_boolean)]
    type: Annotated[str, Field(min_length=1, max_length=64)]
    content: Annotated[str, Field(min_length=1, max_length=20_000)]


class Trace(BaseModel):
    """A trace that holds to all rules."""

    model_config = ConfigDict(frozen=True)

    trace_version: Annotated[str, Field(min_length=1, max_length=64)]
    prompt: Annotated[str, Field(min_length=1, max_length=50_000)]
    final_answer: Annotated[str, Field(min_length=1, max_length=50_000)]
    steps: Annotated[list[Step], Field(min_length=1, max_length=1000)]
    meta: dict[str, Any] | None = None

    @field_validator("steps")
    @classmethod
    def _unique(cls, steps: list[Step]) -> list[Step]:
        if len({step.i for step in steps}) != len(steps):
            raise ValueError("step indices must be unique")
        return steps

    @field_validator("meta")
    @classmethod
    def _json(cls, meta: dict[str, Any] | None) -> dict[str, Any] | None:
        check_json(meta)
        return meta

    @cached_property
    def payload(self) -> Payload:
        """What is stored."""
        return {
            "trace_version": self.trace_version,
            "prompt": self.prompt,
            "final_answer": self.final_answer,
            "steps": [{"i": step.i, "type": step.type, "content": step.content} for step in self.steps],
            "meta": self.meta,
        }

    @property
    def char_count(self) -> int:
        """Code points of prompt, answer and steps together."""
        return len(self.prompt) + len(self.final_answer) + sum(len(step.content) for step in self.steps)


def check_trace(value: Any) -> Trace:
    """A JSON value → the trace. Raises ValueError saying what is wrong with it, and where in it."""
    try:
        return Trace.model_validate(value)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        more = f" (and {fault.error_count() - 1} more)" if fault.error_count() > 1 else ""
        raise ValueError(f"{place or 'the trace'}: {first['msg']}{more}") from None


def json_text(value: Any) -> str:
    """Compact JSON as the store keeps it, in the order of the keys.

    A blank at its begin says that an integer is beyond 64 bits: orjson, which is the faster, would make a float of it.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return " " + json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def parse_text(text: str) -> Any:
    """What `json_text` wrote."""
    return json.loads(text) if text.startswith(" ") else orjson.loads(text)


def content_id(canonical: bytes, repeat: int) -> UUID:
    """The id of a trace by its content. `canonical`: its payload's canonical JSON; `repeat`: equal ones before it."""
    return uuid5(NAMESPACE, f"{canonical.decode()}#{repeat}")


def canonical_payload(payload: Payload) -> bytes:
    """The one spelling of a payload: `canonical_json`, by the faster library where that writes the same."""
    meta = payload["meta"]
    if meta is not None and not _plain(meta):
        return canonical_json(payload)
    try:
        return orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits
        return canonical_json(payload)
