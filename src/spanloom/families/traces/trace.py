"""The format of a trace: prompt, numbered steps, final answer and metadata.

In: JSON values. Out: a validated `Trace`; its payload as stored; its canonical JSON and the id derived from it.

Limits count code points. Unknown keys are dropped. A step index may also be a whole float or a decimal string; other
types are not converted to text.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Annotated, Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, field_validator
from pydantic_core import PydanticCustomError

from spanloom.errors import OptionError
from spanloom.families.traces.defaults import MAX_STEP_CHARACTERS
from spanloom.provenance import canonical_json

NAMESPACE = uuid5(NAMESPACE_URL, "spanloom:trace:v1")
"""The UUID namespace of all content ids."""

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
"""Suffixes of files with one trace per line."""

LARGEST_STEP_LIMIT = 1_000_000
"""The largest limit of characters per step that a store can be given."""

FAULTS_SHOWN = 20
"""How many faults of one trace a message lists; the others are only counted."""

_MAX_VERSION, _MAX_TEXT, _MAX_STEPS, _MAX_TYPE = 64, 50_000, 1000, 64

MAX_DEPTH = 200
"""Maximum nesting of objects and lists in `meta`. JSON parsers and writers fail at some depth above it."""

Payload = dict[str, Any]
"""A checked trace as JSON: trace_version, prompt, final_answer, steps, meta."""


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "Input should be a valid integer, and true and false are none")
    if isinstance(value, int) and value > sys.float_info.max:
        raise PydanticCustomError("int_type", "Input should be a valid integer that a double can hold")
    return value


def _plain(meta: dict[str, Any]) -> bool:
    """Whether no value is a container or a float: JSON lacks some floats, and libraries write others differently."""
    return _NOT_PLAIN.isdisjoint(map(type, meta.values()))


_NOT_PLAIN = frozenset((float, dict, list))


def check_json(value: Any) -> None:
    """Raises ValueError for values that cannot be stored as JSON: NaN, numbers beyond a double, lone surrogates, too
    deep nesting."""
    if type(value) is dict and _plain(value):
        try:
            orjson.dumps(value)
            return
        except TypeError:  # a lone surrogate, or an integer beyond 64 bits, which is allowed
            pass
    # One iterator per level: a list of all pending values would take several times the memory of the value itself.
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
            if not -sys.float_info.max <= value <= sys.float_info.max:  # NaN fails every comparison
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
    """One step. `i` is its index, unique in the trace; it does not order the steps: they keep the list's order."""

    model_config = ConfigDict(frozen=True)

    i: Annotated[int, Field(ge=0), BeforeValidator(_no_boolean)]
    type: Annotated[str, Field(min_length=1, max_length=_MAX_TYPE)]
    content: Annotated[str, Field(min_length=1, max_length=MAX_STEP_CHARACTERS)]


class Trace(BaseModel):
    """A valid trace."""

    model_config = ConfigDict(frozen=True)

    trace_version: Annotated[str, Field(min_length=1, max_length=_MAX_VERSION)]
    prompt: Annotated[str, Field(min_length=1, max_length=_MAX_TEXT)]
    final_answer: Annotated[str, Field(min_length=1, max_length=_MAX_TEXT)]
    steps: Annotated[list[Step], Field(min_length=1, max_length=_MAX_STEPS)]
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
        """The trace as it is stored."""
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


def check_step_limit(characters: int) -> int:
    """Returns the limit. Raises OptionError if it is outside 1 to LARGEST_STEP_LIMIT."""
    if not 1 <= characters <= LARGEST_STEP_LIMIT:
        raise OptionError(f"--max-step-characters is 1 to {LARGEST_STEP_LIMIT:,}, not {characters:,}")
    return characters


@cache
def trace_model(max_step_characters: int = MAX_STEP_CHARACTERS) -> type[Trace]:
    """`Trace` with this limit of characters per step."""
    if max_step_characters == MAX_STEP_CHARACTERS:
        return Trace
    content = Annotated[str, Field(min_length=1, max_length=max_step_characters)]
    step = create_model("Step", __base__=Step, content=(content, ...))
    steps = Annotated[list[step], Field(min_length=1, max_length=_MAX_STEPS)]  # type: ignore[valid-type]
    return create_model("Trace", __base__=Trace, steps=(steps, ...))


def check_trace(value: Any, max_step_characters: int = MAX_STEP_CHARACTERS) -> Trace:
    """A JSON value → the trace. Raises ValueError that lists its faults with their places, up to FAULTS_SHOWN."""
    try:
        return trace_model(max_step_characters).model_validate(value)
    except ValidationError as fault:
        errors = fault.errors(include_url=False, include_context=False, include_input=False)
    texts = [
        f"{'.'.join(map(str, error['loc'])) or 'the trace'}: {fault_message(error)}" for error in errors[:FAULTS_SHOWN]
    ]
    if len(errors) > FAULTS_SHOWN:
        texts.append(f"{len(errors) - FAULTS_SHOWN:,} more faults")
    raise ValueError("; ".join(texts))


class CheckedTrace(NamedTuple):
    """A valid trace as it is stored. `char_count`: see `Trace`; `text`: the payload as JSON; `meta_text`: only its
    meta, or None without one; `flat`: whether meta contains no float, list or object."""

    payload: Payload
    char_count: int
    text: str
    meta_text: str | None
    flat: bool


def checked_trace(value: Any, max_step_characters: int = MAX_STEP_CHARACTERS) -> CheckedTrace:
    """Checks like `check_trace`, in a fifth of the time if no value has to be converted. Raises the same errors."""
    if (plain := _plain_trace(value, max_step_characters)) is not None:
        return plain
    trace = check_trace(value, max_step_characters)
    meta_text = None if trace.meta is None else json_text(trace.meta)
    flat = trace.meta is None or _plain(trace.meta)
    return CheckedTrace(trace.payload, trace.char_count, json_text(trace.payload), meta_text, flat)


def fault_message(error: Mapping[str, Any]) -> str:
    """The message of a pydantic error; for a step that is too long, with the option that allows more."""
    message = str(error["msg"])
    if error["type"] == "string_too_long" and error["loc"][-1] == "content":
        message += f" (the limit of the store; --max-step-characters allows up to {LARGEST_STEP_LIMIT:,})"
    return message


def _plain_trace(value: Any, max_step_characters: int) -> CheckedTrace | None:
    """The trace of a value whose fields all have the exact types; None for any other, which `check_trace` checks.

    Every value accepted here is accepted by `check_trace` too, with the same payload.
    """
    try:
        version, prompt, answer = value["trace_version"], value["prompt"], value["final_answer"]
        steps, meta = value["steps"], value.get("meta")
        if not (type(value) is dict and type(version) is type(prompt) is type(answer) is str and type(steps) is list):
            return None
        chars, answer_chars = len(prompt), len(answer)
        if not (
            0 < len(version) <= _MAX_VERSION
            and 0 < chars <= _MAX_TEXT
            and 0 < answer_chars <= _MAX_TEXT
            and 0 < len(steps) <= _MAX_STEPS
        ):
            return None
        chars += answer_chars
        indices, kept = set(), []
        for step in steps:
            index, kind, content = step["i"], step["type"], step["content"]
            if not (type(step) is dict and type(index) is int and type(kind) is type(content) is str):
                return None
            step_chars = len(content)
            if not (0 <= index < _BEYOND_64_BITS and 0 < len(kind) <= _MAX_TYPE and step_chars > 0):
                return None
            if step_chars > max_step_characters:
                return None
            chars += step_chars
            indices.add(index)
            kept.append({"i": index, "type": kind, "content": content})
        if len(indices) != len(kept):
            return None
        payload = {"trace_version": version, "prompt": prompt, "final_answer": answer, "steps": kept, "meta": meta}
        if meta is None:
            return CheckedTrace(payload, chars, orjson.dumps(payload).decode(), None, True)
        if type(meta) is not dict:
            return None
        flat = _plain(meta)
        if not flat:
            check_json(meta)
        # The JSON of meta is needed on its own too: it is encoded once and inserted into the JSON of the payload.
        meta_text = orjson.dumps(meta)
        payload["meta"] = orjson.Fragment(meta_text)
        text = orjson.dumps(payload)
        payload["meta"] = meta
    except (KeyError, TypeError, ValueError, AttributeError):
        # A missing key, a value of another type, a lone surrogate, or an integer beyond 64 bits in meta.
        return None
    return CheckedTrace(payload, chars, text.decode(), meta_text.decode(), flat)


_BEYOND_64_BITS = 2**64


def json_text(value: Any) -> str:
    """Compact JSON for the store, with the keys in their order.

    A leading blank marks an integer beyond 64 bits: orjson is faster, but would read that integer as a float.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return " " + json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def parse_text(text: str) -> Any:
    """Parses the output of `json_text`."""
    return json.loads(text) if text.startswith(" ") else orjson.loads(text)


def numbered_id_text(canonical: bytes, repeats: dict[bytes, int]) -> str:
    """The content id of a trace: `uuid5(NAMESPACE, f"{canonical}#{repeat}")`, computed in a third of the time.

    `canonical`: the canonical JSON of the payload. `repeats`: the number of equal contents so far, by a hash of the
    content; updated here.
    """
    hashed = hashlib.sha1(_NAMESPACE_BYTES + canonical + b"#", usedforsecurity=False)
    content = hashed.digest()
    repeat = repeats.get(content, 0)
    repeats[content] = repeat + 1
    hashed.update(b"%d" % repeat)
    text = hashed.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


_NAMESPACE_BYTES = NAMESPACE.bytes
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""RFC 9562: the two highest bits of this digit are 10."""


def canonical_trace(trace: CheckedTrace) -> bytes:
    """The `canonical_json` of a payload; written by the faster orjson if the bytes are the same."""
    if not trace.flat:
        return canonical_json(trace.payload)
    try:
        return orjson.dumps(trace.payload, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits
        return canonical_json(trace.payload)
