"""Over generated records of every form: each text that goes in is in the rows, in the rejects, or counted as dropped;
and what a row holds is in the documents that a build makes of it.

`SPANLOOM_EXAMPLES` says how many records are drawn; nightly draws more.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai_harmony import Conversation, HarmonyEncoding

from spanloom.conversations.forms import key_map, recognise
from spanloom.conversations.outcomes import Read, Rejected
from spanloom.conversations.reading.schemas import not_rendered
from spanloom.errors import SourceError
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import CutRules, cut_conversation
from spanloom.families.harmony.contract.messages import SystemFields, harmony_messages
from spanloom.families.harmony.contract.profile import CHAT_OF_ANY_MODEL
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted, Converter
from spanloom.families.harmony.render.official import render_through_harmony
from support.nightly import drawn

EXAMPLES = int(os.environ.get("SPANLOOM_EXAMPLES", drawn(1500, 150)))

DROPS = (
    "refusal", "reasoning", "reasoning_content", "tool_calls", "tools", "name", "audio", "notes", "id",
    "part:image_url", "role:tool", "role:system", "role:critic", "think", "unprompted", "unanswered",
)  # fmt: skip

LETTERS = st.text(st.sampled_from('ab ü😀"\\\n\u2028<>|'), max_size=6)


class Pieces:
    """Texts of a record: each is told from all others by a number in it."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw, self.all = draw, list[str]()

    def text(self) -> str:
        return self._draw(LETTERS) + self._mark() + self._draw(LETTERS)

    def word(self) -> str:
        """What may stand in a header."""
        return self._mark("w{}w")

    def _mark(self, form: str = "«{}»") -> str:
        mark = form.format(len(self.all))
        self.all.append(mark)
        return mark


@st.composite
def records(draw: Any) -> tuple[Any, list[str]]:
    """A record, and the marks of all texts in it."""
    pieces = Pieces(draw)
    maybe = st.integers(0, 9)

    def often() -> bool:
        return bool(draw(maybe) < 8)

    def rarely() -> bool:
        return bool(draw(maybe) < 1)

    def content() -> Any:
        if often():
            return pieces.text()
        parts: list[Any] = [{"type": "text", "text": pieces.text()}]
        if rarely():
            parts.insert(0, {"type": "thinking", "thinking": pieces.text()})
        if rarely():
            parts.append({"type": "image_url", "image_url": {"url": pieces.text()}})
        if rarely():
            parts.append(pieces.text())
        return parts

    def call(number: int) -> dict[str, Any]:
        arguments = {"q": pieces.text(), "more": [pieces.text()]}
        made: dict[str, Any] = {"name": pieces.word(), "arguments": json.dumps(arguments) if often() else arguments}
        if rarely():
            made["notes"] = pieces.text()
        return {"id": f"c{number}", "type": "function", "function": made} if often() else {**made, "id": f"c{number}"}

    def assistant(calls: int, final: bool) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": content() if final or rarely() else None}
        if draw(st.booleans()):
            message[draw(st.sampled_from(["reasoning", "reasoning_content", "thinking"]))] = pieces.text()
        if rarely() and isinstance(message["content"], str):
            message["content"] = f"<think>\n{pieces.text()}\n</think>\n\n{message['content']}"
        if calls:
            message["tool_calls"] = [call(number) for number in range(calls)]
        for key in ("refusal", "audio", "name"):
            if rarely():
                message[key] = pieces.text()
        if rarely():
            message["weight"] = draw(st.sampled_from([0, 1]))
        return message

    def turns() -> Iterator[dict[str, Any]]:
        if draw(st.booleans()):
            yield {"role": draw(st.sampled_from(["system", "developer"])), "content": content()}
        if rarely():
            yield assistant(0, True)
        for _ in range(draw(st.integers(1, 3))):
            user = {"role": "user", "content": content()}
            yield {**user, "name": pieces.word()} if rarely() else user
            if rarely():
                yield {"role": "critic", "content": pieces.text()}
            calls = draw(st.sampled_from([0, 0, 1, 1, 2]))
            if calls:
                yield assistant(calls, False)
                for number in draw(st.permutations(range(calls))):
                    result = {"role": "tool", "tool_call_id": f"c{number}", "content": content()}
                    yield {**result, "id": pieces.word()} if rarely() else result
            yield assistant(0, True)
        if rarely():
            yield {"role": "user", "content": content()}

    form = draw(st.sampled_from(["openai", "openai", "sharegpt", "columns", "list"]))
    more: dict[str, Any] = {"id": pieces.word()} if often() else {}
    if rarely():
        more["about"] = {"deep": [pieces.text()]}
    if rarely():
        more["system"] = pieces.text()
    if draw(st.booleans()):
        parameters = {"type": "object", "properties": {"q": {"type": "string", "description": pieces.text()}}}
        tool: dict[str, Any] = {"name": pieces.word(), "description": pieces.text(), "parameters": parameters}
        more["tools"] = [{"type": "function", "function": tool}] if often() else json.dumps([tool])
    if form == "columns":
        return {**more, "prompt": pieces.text(), "reasoning": pieces.text(), "response": pieces.text()}, pieces.all
    if form == "sharegpt":
        said = [{"from": "human", "value": pieces.text()}]
        if draw(st.booleans()):
            said.append({"from": "function_call", "value": json.dumps(call(0))})
            said.append({"from": "observation", "value": pieces.text()})
        return {**more, "conversations": [*said, {"from": "gpt", "value": pieces.text()}]}, pieces.all
    made = list(turns())
    return (made if form == "list" else {**more, "messages": made}), [
        mark
        for mark in pieces.all
        if mark in json.dumps(made if form == "list" else {**more, "m": made}, ensure_ascii=False)
    ]


@st.composite
def schemas(draw: Any, pieces: Pieces | None = None, deep: int = 3) -> tuple[dict[str, Any], list[str]]:
    """A JSON schema of parameters, and the marks of all texts in it."""
    pieces = pieces or Pieces(draw)
    word = pieces.word
    types = ["object", "object", "string", "integer", "array", "dict", None, ["string", "null"], ["array", "null"]]
    values: dict[str, Callable[[], Any]] = {
        "description": word,
        "title": word,
        "default": lambda: draw(st.sampled_from([word, lambda: [word()], lambda: 1]))(),
        "examples": lambda: draw(st.sampled_from([word, lambda: [word(), {"x": word()}]]))(),
        "enum": lambda: draw(st.sampled_from([word, lambda: [word(), 1], lambda: [1, 2]]))(),
        "nullable": lambda: True,
        "pattern": word,
        "$ref": word,
        "const": word,
        "minimum": lambda: 3,
        "additionalProperties": lambda: {"description": word()},
        "required": lambda: ["a"],
    }

    def inner() -> Any:
        return draw(schemas(pieces, deep - 1))[0]

    if deep:
        values |= {
            "properties": lambda: {word(): inner() for _ in range(draw(st.integers(0, 2)))},
            "items": inner,
            "oneOf": lambda: [inner() for _ in range(draw(st.integers(0, 2)))],
            "anyOf": lambda: [inner()],
        }
    made = {key: value() for key, value in values.items() if draw(st.integers(0, 3)) == 0 or key == "properties"}
    said = draw(st.sampled_from(types))
    return made if said is None else {"type": said, **made}, pieces.all


@settings(max_examples=EXAMPLES // 5, suppress_health_check=list(HealthCheck))
@given(drawn=schemas())
def test_what_is_not_rendered_of_parameters_is_counted_and_nothing_else(
    drawn: tuple[dict[str, Any], list[str]], encoding: HarmonyEncoding
) -> None:
    parameters, marks = drawn
    record = {"prompt": "Q", "response": "A", "tools": [{"name": "f", "parameters": parameters}]}
    done, converter = convert(record, ChatConversion())
    assert isinstance(done, Converted)
    conversation = Conversation.from_json(json.dumps({"messages": harmony_messages(done.conversation)}))
    text = encoding.decode(encoding.render_conversation(conversation))
    missing = [mark for mark in marks if mark not in text]
    counts = converter.counts
    assert bool(counts.not_rendered) or not missing
    assert not counts.dropped
    assert all(name.startswith("parameters.") for name in counts.not_rendered)
    stored = json.dumps(json.loads(done.row["messages_json"] or "")["tools"], ensure_ascii=False)
    assert all(mark in stored for mark in marks), "a schema is stored as it came"
    told = json.dumps([value for _, value in not_rendered(parameters)])
    assert {mark for mark in marks if mark in told} == set(missing)


def strings(value: Any) -> Iterator[str]:
    """All texts of a JSON value; those that are JSON themselves taken apart as well."""
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):
            try:
                yield from strings(json.loads(value))
            except ValueError:
                return
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def convert(record: Any, conversion: ChatConversion) -> tuple[Converted | Rejected, Converter]:
    converter = Converter(recognise(record, key_map(()), "here"), conversion)
    return converter.convert(Read(file="f", number=1, where="here", value=record)), converter


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(
    drawn=records(),
    drop=st.sets(st.sampled_from(DROPS), max_size=8),
    think_tags=st.sampled_from([None, True, False]),
    calls_in_turn=st.booleans(),
)
def test_every_text_is_in_a_row_in_a_reject_or_counted(
    drawn: tuple[Any, list[str]], drop: set[str], think_tags: bool | None, calls_in_turn: bool
) -> None:
    record, marks = drawn
    conversion = ChatConversion(
        drop=tuple(sorted(drop)),
        think_tags=think_tags,
        calls_in_turn=calls_in_turn,
        system_fields=SystemFields(developer="D"),
    )
    try:
        done, converter = convert(record, conversion)
    except SourceError:
        return
    counts = converter.counts
    assert counts.read == counts.written + counts.skipped.total() == 1
    if isinstance(done, Rejected):
        line = json.loads(done.as_json_line())
        assert line["record"] == record
        assert line["reason"] in counts.skipped
        assert not counts.dropped, "what a reject holds is not counted as dropped too"
        return
    whole = json.loads(done.row["messages_json"] or "")
    metadata = json.loads(done.row["metadata_json"] or "")
    kept = list(strings([whole, metadata]))
    missing = [mark for mark in marks if not any(mark in text for text in kept)]
    assert counts.dropped_characters.total() >= sum(map(len, missing))
    assert bool(counts.dropped) or not missing
    assert set(counts.dropped) <= drop
    answers = [message for message in whole["messages"] if message["role"] == "assistant"]
    assert any(message.get("trained", True) for message in answers)
    for message in answers:
        assert any(message.get(key) for key in ("content", "reasoning", "tool_calls")), "no turn is empty"


@settings(max_examples=EXAMPLES // 3, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=records())
def test_without_options_nothing_is_missing_from_a_row(drawn: tuple[Any, list[str]]) -> None:
    """Whole texts, not only their marks: a text of the record is in the row as it is."""
    record, _ = drawn
    try:
        done, converter = convert(record, ChatConversion(calls_in_turn=True))
    except SourceError:
        return
    if isinstance(done, Rejected):
        return
    assert not converter.counts.dropped
    row = [json.loads(done.row[name] or "") for name in ("messages_json", "metadata_json")]
    kept = list(strings(row))
    structure = {"function", "text", "thinking", "system", "developer", "user", "assistant", "tool", "human", "gpt"}
    for text in strings(record):
        if "«" in text and text not in structure and text[:1] not in ("{", "["):
            assert any(text in other for other in kept), text


@settings(max_examples=EXAMPLES // 5, suppress_health_check=list(HealthCheck))
@given(drawn=records())
def test_every_message_of_a_row_is_in_a_document_as_openai_harmony_renders_it(
    drawn: tuple[Any, list[str]], encoding: HarmonyEncoding
) -> None:
    record, _ = drawn
    try:
        done, _ = convert(record, ChatConversion(calls_in_turn=True))
    except SourceError:
        return
    if isinstance(done, Rejected) or done.fault is not None:
        return
    if not all(message.trained for message in done.conversation.messages):
        return
    conversation = parse_conversation(done.row["messages_json"], profile=CHAT_OF_ANY_MODEL)
    made = cut_conversation(conversation, CutRules())
    assert made.left_out == 0
    rendered = render_through_harmony([cut.shown for cut in made.cuts], encoding)
    assert rendered.refused == []
    assert sum(cut.runs for cut in made.cuts) == made.runs
    text = encoding.decode(rendered.documents.tokens.tolist())
    for message in harmony_messages(done.conversation):
        if message["role"] in ("user", "assistant", "tool"):
            assert "".join(part["text"] for part in message["content"]) in text
