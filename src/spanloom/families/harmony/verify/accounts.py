"""Every row of a source against its documents on disk, without encoding texts again.

In: the rows of a source, the documents of a dataset. Out: findings: documents of another number, with other messages,
texts or labels than the row gives; counts of conversations that the manifest gives otherwise.

    headers, ends          against openai-harmony's, rendered once for each kind of header
    system, developer      against openai-harmony's tokens, rendered once for each text; instructions as a text
    all other texts        the document's tokens decoded, against the source's text
    spans and mask         worked out again from the span of each message

Rendering again shows the rest: whether the tokens of a text are those of the tokenizer, and the prompts of runs.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from openai_harmony import HarmonyEncoding

from spanloom.dataset.validate.placed_documents import first_difference
from spanloom.families.harmony.tokenizer import MESSAGE, START
from spanloom.families.harmony.verify.equal import Wrapper
from spanloom.families.harmony.verify.reference import REFUSALS, ShownDocument, assistant_runs, rendered_tokens
from spanloom.families.harmony.verify.rules import AcceptedRow
from spanloom.families.harmony.verify.texts import message_texts
from spanloom.supervision import SPAN_CONTEXT

_NOTHING = {"role": "user", "content": ""}
"""A message that follows another one, which then is not the last."""

_IN_PLACE = "\N{OBJECT REPLACEMENT CHARACTER} instructions"

_HEADER = ("role", "name", "recipient", "channel", "content_type")

KEPT = 4096
"""Rendered headers, and rendered texts of system and developer messages, that are remembered."""

Arrays = Mapping[str, npt.NDArray[Any]]
"""Of a document, as on disk: tokens int32 [T], lossmask and span uint8 [T]."""


@dataclass
class Wrappers:
    """openai-harmony's tokens of what is not a text of user, assistant or tool."""

    encoding: HarmonyEncoding
    _headers: dict[object, Wrapper | None] = field(default_factory=dict, init=False, repr=False)
    _kept: dict[str, list[list[int]] | None] = field(default_factory=dict, init=False, repr=False)
    _generated: dict[str, list[tuple[Wrapper, str]]] = field(default_factory=dict, init=False, repr=False)

    def account(
        self, messages: Sequence[Mapping[str, Any]], known: dict[tuple[int, bool], tuple[Wrapper, bytes]] | None = None
    ) -> list[tuple[Wrapper, bytes]] | None:
        """The wrapper and the text of each message; None where openai-harmony refuses one, or it is not text alone.

        `known`: those of the same row's messages in other documents, by the identity of the message and whether it is
        the last.
        """
        known = {} if known is None else known
        last = len(messages) - 1
        numbers = [number for number, each in enumerate(messages) if each["role"] in ("system", "developer")]
        generated = iter(self._generated_ones([messages[number] for number in numbers], last=numbers[-1:] == [last]))
        account: list[tuple[Wrapper, bytes]] = []
        try:
            for number, message in enumerate(messages):
                key = id(message), number == last
                if message["role"] in ("system", "developer"):
                    found, text = next(generated)
                    if (instructions := _instructions(message)) is not None:
                        text = text.replace(_IN_PLACE, instructions)
                    elif text:
                        return None
                    account.append((found, text.encode()))
                elif key in known:
                    account.append(known[key])
                else:
                    wrapper, texts = self.header(message, last=number == last), message_texts(message)
                    if wrapper is None or texts is None:
                        return None
                    known[key] = wrapper, "".join(texts).encode()
                    account.append(known[key])
        except (StopIteration, TypeError, UnicodeEncodeError):
            return None
        return account

    def _generated_ones(self, messages: Sequence[Mapping[str, Any]], *, last: bool) -> Sequence[tuple[Wrapper, str]]:
        """The wrappers of system and developer messages, and the text that has instructions, with a word in their
        place; all is wrapper where there are none. Empty if openai-harmony refuses them."""
        in_place = [_in_place(message) for message in messages]
        key = f"{last:d}{json.dumps(in_place)}"
        if key not in self._generated:
            if len(self._generated) >= KEPT:
                self._generated.clear()
            rendered = (self.whole(in_place, last=last) or [])[: len(messages)]
            bodies = [
                tokens.index(MESSAGE) + 1 if own is not message else len(tokens) - 1
                for tokens, own, message in zip(rendered, in_place, messages, strict=False)
            ]
            self._generated[key] = [
                (Wrapper(header=tuple(tokens[:body]), closer=tokens[-1]), self.text(tokens[body:-1]) or "")
                for tokens, body in zip(rendered, bodies, strict=True)
            ]
        return self._generated[key]

    def header(self, message: Mapping[str, Any], *, last: bool) -> Wrapper | None:
        """The tokens of a message up to its text, and the one that ends it; None if openai-harmony refuses it."""
        key = last, repr([message.get(name) for name in _HEADER])
        if key not in self._headers:
            if len(self._headers) >= KEPT:
                self._headers.clear()
            empty = {name: message[name] for name in _HEADER if message.get(name) is not None} | {"content": ""}
            rendered = self.whole([empty], last=last)
            found = None if rendered is None else Wrapper(header=tuple(rendered[0][:-1]), closer=rendered[0][-1])
            self._headers[key] = found
        return self._headers[key]

    def whole(self, messages: Sequence[Mapping[str, Any]], *, last: bool) -> list[list[int]] | None:
        """The tokens of each of these messages; None if openai-harmony refuses them. `last`: nothing follows them."""
        key = f"{last:d}{json.dumps(messages)}"
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            tokens = rendered_tokens([*map(dict, messages), *([] if last else [_NOTHING])], self.encoding)
            self._kept[key] = None if tokens is None else _divided(tokens)
        return self._kept[key]

    def text(self, tokens: Sequence[int]) -> str | None:
        """The text of tokens; None if they are of none."""
        try:
            text: str = self.encoding.decode(tokens, errors="strict")
        except (*REFUSALS, OverflowError):
            return None
        return text


Difference = tuple[int | None, str]
"""The offset in the document, and what is wrong there."""


def _divided(tokens: list[int]) -> list[list[int]]:
    """The tokens of each message."""
    opens = [at for at, token in enumerate(tokens) if token == START]
    return [tokens[first:end] for first, end in pairwise([*opens, len(tokens)])]


def document_differences(
    document: ShownDocument, arrays: Arrays, wrappers: Wrappers, *, prompted: bool
) -> Iterator[Difference]:
    """The first message of a document that differs from the source's, and the first wrong label.

    `prompted`: the `<|start|>assistant` at the begin of a trained run is not trained.
    """
    tokens, messages = arrays["tokens"], document.messages
    opens = np.flatnonzero(tokens == START)
    if opens.size != len(messages):
        yield None, f"{opens.size} messages begin in the document, the source has {len(messages)}"
        return
    ends = np.append(opens[1:], tokens.size - 1)  # EOD is the last token
    stored = tokens.tolist()
    parts = [stored[first:end] for first, end in zip(opens.tolist(), ends.tolist(), strict=True)]
    if (differs := next(_message_differences(messages, parts, wrappers), None)) is not None:
        number, offset, what = differs
        message = f"message {number} ({messages[number]['role']})"
        refused = f"openai-harmony refuses {message} of the source"
        yield int(opens[number]) + offset, refused if what is None else f"{what} of {message} is not the source's"
        return
    expected = _labels(document, tokens, opens, ends, prompted=prompted)
    for name, values in (("span", expected), ("lossmask", expected != SPAN_CONTEXT)):
        if (different := np.flatnonzero(arrays[name] != values)).size:
            at = int(different[0])
            yield at, f"{name} is {arrays[name][at]}, the source gives {int(values[at])}"
            return


def _message_differences(
    messages: Sequence[Mapping[str, Any]], parts: Sequence[list[int]], wrappers: Wrappers
) -> Iterator[tuple[int, int, str | None]]:
    """Number of a message, offset in it, and what differs there; None if openai-harmony refuses the message."""
    texts = [None if each["role"] in ("system", "developer") else message_texts(each) for each in messages]
    last = len(messages) - 1
    generated = [number for number, of_message in enumerate(texts) if of_message is None]
    rendered: list[list[int]] | None = []
    if generated:
        rendered = wrappers.whole([_in_place(messages[number]) for number in generated], last=generated[-1] == last)
    if rendered is None:
        yield generated[0], 0, None
    for number, wanted in zip(generated, rendered or (), strict=False):
        own, instructions = parts[number], _instructions(messages[number])
        if instructions is None:
            if own != wanted:
                yield number, first_difference(own, wanted), "the text"
            continue
        body = wanted.index(MESSAGE) + 1
        text = (wrappers.text(wanted[body:-1]) or "").replace(_IN_PLACE, instructions)
        if own[:body] != wanted[:body] or own[-1] != wanted[-1] or wrappers.text(own[body:-1]) != text:
            yield number, body, "the text"
    for number, (message, own, of_message) in enumerate(zip(messages, parts, texts, strict=True)):
        if of_message is None:
            continue
        if (wrapper := wrappers.header(message, last=number == last)) is None:
            yield number, 0, None
            continue
        header, closer = list(wrapper.header), wrapper.closer
        if own[: len(header)] != header:
            yield number, first_difference(own[: len(header)], header), "the header"
        elif own[-1] != closer or len(own) == len(header):
            yield number, len(own) - 1, "the end"
        elif wrappers.text(own[len(header) : -1]) != "".join(of_message):
            yield number, len(header), "the text"


def _instructions(message: Mapping[str, Any]) -> str | None:
    """The instructions of a developer message, which may differ in each row, where they are rendered as they are."""
    content = message.get("content")
    part = content[0] if message["role"] == "developer" and type(content) is list and len(content) == 1 else None
    text = part.get("instructions") if type(part) is dict else None
    return text if type(text) is str and text and text == text.strip() and _IN_PLACE not in text else None


def _in_place(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with another text in place of its instructions, so that it is rendered once for many rows."""
    if _instructions(message) is None:
        return message
    return {**message, "content": [{**message["content"][0], "instructions": _IN_PLACE}]}


def _labels(
    document: ShownDocument,
    tokens: npt.NDArray[np.int32],
    opens: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    *,
    prompted: bool,
) -> npt.NDArray[np.uint8]:
    """The span of each label, uint8 [T]. `opens`, `ends` int64 [M]: the tokens of each message."""
    span = np.zeros(tokens.size, dtype=np.uint8)
    span[int(opens[0]) : int(ends[-1])] = np.repeat(np.abs(document.spans), ends - opens)
    span[(ends - 1)[np.array(document.spans) < 0]] = SPAN_CONTEXT  # truncated: what ends the message is not trained
    if prompted:
        begins = opens[[len(run.shown) for run in document.runs]]
        span[begins] = span[np.minimum(begins + 1, tokens.size - 1)] = SPAN_CONTEXT
    return np.append(span[1:], np.uint8(0))


@dataclass
class Counts:
    """Adds up what the manifest says of conversations under `cutting`."""

    counted: Counter[str] = field(default_factory=Counter, init=False)

    def add(self, row: AcceptedRow, lengths: Sequence[int]) -> None:
        """Counts a conversation. `lengths`: the tokens of each of its documents on disk."""
        shown = {place for document in row.documents for place in document.places}
        divided = [document.divided for document in row.documents]
        self.counted.update(
            conversations=1,
            runs=assistant_runs(row.messages),
            documents=len(row.documents),
            left_out_messages=len(row.messages) - len(shown),
            untrained_messages=len(row.untrained),
            truncated_messages=sum(span < 0 for document in row.documents for span in document.spans),
            divided_documents=sum(divided),
            divided_tokens=sum(length for length, is_divided in zip(lengths, divided, strict=False) if is_divided),
        )

    def differences(self, stated: Mapping[str, int], *, rewritten: bool) -> Iterator[str]:
        """What the manifest says otherwise. `rewritten`: calls are shown otherwise than they are trained."""
        for name, count in self.counted.items():
            if (rewritten or not name.startswith("divided")) and stated.get(name, 0) != count:
                yield f"cutting.{name} is {stated.get(name, 0)}, the source's conversations give {count}"
