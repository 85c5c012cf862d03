"""The fast renderer: headers from a table that openai-harmony itself fills, content through a fast exact encoder.

In: batches of checked conversations. Out: the same bits as the record route, without a loop over tokens.

    message   = prefix of its role and channel · tokens of its text · closer
    document  = messages · EOD

The table is not copied from documentation: each prefix and closer is taken from openai-harmony's render of an empty
message, and structured contents (`system_content`, `developer_content`) are rendered by it once and cached; of
instructions only the text around them. A conversation that the table does not cover is rendered whole by
openai-harmony, and counted: unknown keys; text that openai-harmony may refuse; names, recipients, content types, tools
and several parts of content, unless the profile's table covers them.

Documents that are cuts of one conversation share its messages: each is laid out and encoded once per batch, and
documents are gathered from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from openai_harmony import HarmonyEncoding

from spanloom.conversations.source.structure import LabelledConversation
from spanloom.families.harmony.contract.history import defines_functions
from spanloom.families.harmony.contract.profile import SYNTH_KD, Profile
from spanloom.families.harmony.render.official import (
    RefusedByRendererError,
    RenderedBatch,
    render_one,
    render_through_harmony,
    untrain_ends,
)
from spanloom.families.harmony.render.text_encoder import TextEncoder
from spanloom.families.harmony.tokenizer import EOD, START
from spanloom.supervision import SPAN_CONTEXT, Flags, TokenDocuments, Tokens, joined

MORE_OF_A_HEADER = ("name", "recipient", "content_type")
_NO_MORE = [None, None, None]
_PLAIN_KEYS = frozenset({"role", "channel", "content"})
"""The keys of most messages, whose headers have nothing else."""
TEXT_KEYS = frozenset({"type", "text"})
STRUCTURED = {"system": "system_content", "developer": "developer_content"}
REMEMBERED = 4096
"""Size of the caches of structured messages and of headers. SYNTH has one or two. If each row has its own tools, each
is rendered."""
DEFINES_A_FUNCTION = {
    "role": "developer",
    "content": [
        {
            "type": "developer_content",
            "tools": {"functions": {"name": "functions", "tools": [{"name": "f", "description": ""}]}},
        }
    ],
}

_SOME = "(the instructions of a row)"
"""A placeholder for the instructions of a developer message, to find the text before and after them."""

LONGEST_TEXT = 50_000
"""Characters. openai-harmony refuses some texts of several hundred thousand characters, since its regular expression
overflows. Longer texts than this are rendered by openai-harmony, so that both routes refuse the same rows."""


def may_be_refused(text: str) -> bool:
    """Whether openai-harmony might refuse the text, for instance a lone surrogate; then openai-harmony decides."""
    if len(text) > LONGEST_TEXT:
        return True
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """The tokens around a message's text: `prefix` before it, `closer` after it, one token; `last` instead of it at the
    end of a conversation."""

    prefix: Tokens
    closer: Tokens
    last: Tokens

    @cached_property
    def last_token(self) -> int:
        """`last`, or -1 if it equals `closer`."""
        return -1 if np.array_equal(self.last, self.closer) else int(self.last[0])

    @cached_property
    def around(self) -> tuple[Tokens, Tokens]:
        return self.prefix, self.closer

    @cached_property
    def lengths(self) -> tuple[int, int, int]:
        """Lengths of the three segments of a message; 0 for the text, which is not yet encoded."""
        return self.prefix.size, 0, self.closer.size


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == TEXT_KEYS and part["type"] == "text"


def derive_wrappers(encoding: HarmonyEncoding, profile: Profile = SYNTH_KD) -> dict[tuple[str, str | None], Wrapper]:
    """(role, channel) → the wrapper of a message with no other header fields."""
    roles = [role for role in profile.source.roles if role not in ("assistant", "tool")]
    shapes: list[tuple[str, str | None]] = [(role, None) for role in roles]
    shapes += [("assistant", channel) for channel in profile.source.channels]
    return {
        (role, channel): derive_wrapper({"role": role, **({"channel": channel} if channel else {})}, encoding)
        for role, channel in shapes
    }


def derive_wrapper(header: dict[str, Any], encoding: HarmonyEncoding) -> Wrapper:
    """The wrapper of messages with this header, from openai-harmony's render of two empty ones, which has these parts:

    prefix closer prefix last

    Raises RefusedByRendererError.
    """
    empty = {**header, "content": ""}
    rendered = render_one([empty, empty], encoding)
    first, second = np.split(rendered, 2)
    if not np.array_equal(first[:-1], second[:-1]) or (rendered == START).sum() != 2:
        raise AssertionError(f"openai-harmony renders two equal messages in different ways: {header} {rendered}")
    return Wrapper(prefix=first[:-1], closer=first[-1:], last=second[-1:])


@dataclass
class _Layout:
    """The layout of a batch: messages consist of segments, documents are lists of message numbers.

    A segment is a constant, or a text that is not yet encoded and has length 0 until then (`text_segments`).

    message_firsts  the first segment of each message
    last_tokens     per message: the last token if it ends a document, -1 if that is the usual one
    order           the messages of all documents, concatenated, each document followed by its EOD
    sizes           messages of each document, with its EOD
    labels          uint8, one array per document: the spans of its messages
    numbers         without and with function tools: id() of a message → its number, -1 if the table does not cover it
    """

    lengths: list[int] = field(default_factory=list)
    constants: list[Tokens] = field(default_factory=list)
    text_segments: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    message_firsts: list[int] = field(default_factory=list)
    last_tokens: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[Flags] = field(default_factory=list)
    numbers: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))

    def constant(self, tokens: Tokens) -> None:
        self.constants.append(tokens)
        self.lengths.append(tokens.size)

    def text(self, text: str) -> None:
        self.text_segments.append(len(self.lengths))
        self.lengths.append(0)
        self.texts.append(text)

    def message(self, last_token: int = -1) -> int:
        """Begins a message. Returns its number."""
        self.message_firsts.append(len(self.lengths))
        self.last_tokens.append(last_token)
        return len(self.last_tokens) - 1

    def message_of_text(self, wrapper: Wrapper, text: str) -> int:
        """Adds a message of one text, like `message`, `constant`, `text` and `constant`, but in one call, since most
        messages are such. Returns its number."""
        number, first = len(self.last_tokens), len(self.lengths)
        self.message_firsts.append(first)
        self.last_tokens.append(wrapper.last_token)
        self.constants += wrapper.around
        self.lengths += wrapper.lengths
        self.text_segments.append(first + 1)
        self.texts.append(text)
        return number

    def end_of_document(self) -> int:
        """Adds a message that is only the EOD. Returns its number."""
        number = self.message()
        self.constant(_EOD)
        return number


class FastRenderer:
    """Holds the table, the encoder, and a cache of rendered structured messages. `few`: see `TextEncoder`."""

    def __init__(self, encoding: HarmonyEncoding, asset: Path, profile: Profile = SYNTH_KD, *, few: int = 0) -> None:
        self._encoding, self._profile = encoding, profile
        self._encoder = TextEncoder(encoding, asset, few)
        self._wrappers = derive_wrappers(encoding, profile)
        self._structured = lru_cache(REMEMBERED)(self._render_structured)
        self._header = lru_cache(REMEMBERED)(self._derive_header)
        self._around = lru_cache(REMEMBERED)(self._text_around)

    def render(self, conversations: Sequence[LabelledConversation]) -> RenderedBatch:
        """Renders a batch: the conversations that fit the table at once, the others through openai-harmony."""
        layout = _Layout()
        end = layout.end_of_document() if self._profile.cuts else None
        fitting: list[int] = []
        others: list[int] = []
        for index, conversation in enumerate(conversations):
            numbers = self._numbers(layout, conversation.messages)
            if -1 in numbers:
                others.append(index)
                continue
            fitting.append(index)
            layout.order += numbers
            # If no message is in two documents, each EOD follows its document, and `_assemble` gathers nothing.
            layout.order.append(layout.end_of_document() if end is None else end)
            layout.sizes.append(len(numbers) + 1)
            layout.labels += (conversation.labels, _CONTEXT)
        documents = self._assemble(layout)
        untrain_ends(documents, [conversations[index] for index in fitting])
        if not others:
            return RenderedBatch(documents=documents, kept=fitting, refused=[])
        record = render_through_harmony([conversations[index] for index in others], self._encoding)
        kept = [others[index] for index in record.kept]
        return RenderedBatch(
            documents=joined([documents, record.documents]).taken(np.argsort(fitting + kept)),
            kept=sorted(fitting + kept),
            refused=[(others[index], reason) for index, reason in record.refused],
            fallbacks=len(others),
        )

    def _numbers(self, layout: _Layout, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The number of each message of a document, -1 if the table does not cover it. New messages are laid out. They
        are compared by identity, because they live as long as the batch."""
        ids = [*map(id, messages)]
        # The table covers functions only in developer messages.
        developers = [message for message in messages if message["role"] == "developer"]
        function_tools = self._profile.table_tools and any(map(defines_functions, developers))
        known = layout.numbers[function_tools]
        numbers = [*map(known.get, ids)]
        if None in numbers:
            for message, identity, number in zip(messages, ids, numbers, strict=True):
                if number is None and identity not in known:
                    known[identity] = self._lay_out(layout, message, function_tools)
            numbers = [*map(known.get, ids)]
        return numbers  # type: ignore[return-value]  # each is known now

    def _lay_out(self, layout: _Layout, message: dict[str, Any], function_tools: bool) -> int:
        """Adds a message to the layout, as wrapper and texts or as finished tokens. Returns its number, -1 if the table
        does not cover it."""
        channel, content = message.get("channel"), message.get("content")
        if not (channel is None or isinstance(channel, str)):
            return -1
        if type(content) is list and len(content) == 1 and _PLAIN_KEYS.issuperset(message):
            part = content[0]  # a fast path for most messages; the code below gives the same result
            text = part.get("text") if type(part) is dict and len(part) == 2 and part.get("type") == "text" else None
            if type(text) is str and text.isascii() and len(text) <= LONGEST_TEXT:
                plain = self._wrappers.get((message["role"], channel))
                return -1 if plain is None else layout.message_of_text(plain, text)
        if not self._profile.table_keys.issuperset(message):
            return -1
        wrapper = self._wrapper(message, channel)
        texts: list[Any] = [content]
        if isinstance(content, list):
            if len(content) == 1:
                (part,) = content
                structured = STRUCTURED.get(message["role"])
                if structured is not None and isinstance(part, dict) and part.get("type") == structured:
                    text = self._text_of_instructions(message, part)
                    if text is None:
                        tokens = self._structured_message(message, part, function_tools)
                        if tokens is None:
                            return -1
                        number = layout.message()
                        layout.constant(tokens)
                        return number
                    texts = [text]
                elif _is_text(part):
                    texts = [part["text"]]
            elif self._profile.table_tools and all(map(_is_text, content)):
                texts = [part["text"] for part in content]
        if wrapper is None:
            return -1
        for text in texts:
            if not isinstance(text, str) or may_be_refused(text):
                return -1
        if len(texts) == 1:
            return layout.message_of_text(wrapper, texts[0])
        number = layout.message(wrapper.last_token)
        layout.constant(wrapper.prefix)
        for text in texts:
            layout.text(text)
        layout.constant(wrapper.closer)
        return number

    def _wrapper(self, message: dict[str, Any], channel: str | None) -> Wrapper | None:
        """The tokens around a message's text, or None if the table does not cover its header."""
        if _PLAIN_KEYS.issuperset(message):
            return self._wrappers.get((message["role"], channel))
        more = [message.get(key) for key in MORE_OF_A_HEADER]
        if more == _NO_MORE:
            return self._wrappers.get((message["role"], channel))
        return self._header(message["role"], channel, *more)

    def _derive_header(self, role: str, channel: str | None, *more: str | None) -> Wrapper | None:
        """The wrapper of a header with a name, a recipient or a content type; None if openai-harmony refuses it."""
        named = zip(("role", "channel", *MORE_OF_A_HEADER), (role, channel, *more), strict=True)
        try:
            return derive_wrapper({key: value for key, value in named if value is not None}, self._encoding)
        except RefusedByRendererError:
            return None

    def _text_of_instructions(self, message: dict[str, Any], part: dict[str, Any]) -> str | None:
        """The whole text of a developer message with instructions, headings and tools included; None for others.

        Only the instructions differ in each row, so openai-harmony renders only the text around them, once.
        """
        instructions = part.get("instructions")
        if message["role"] != "developer" or not isinstance(instructions, str) or message.get("channel") is not None:
            return None
        if ("tools" in part and not self._profile.table_tools) or may_be_refused(instructions):
            return None
        try:
            around = self._around(orjson.dumps({**message, "content": [{**part, "instructions": _SOME}]}))
        except TypeError:  # see `_structured_message`
            return None
        return None if around is None else instructions.join(around)

    def _text_around(self, message_json: bytes) -> tuple[str, str] | None:
        """The text of a developer message before and after its instructions, which are `_SOME`."""
        tokens, wrapper = self._render_structured(message_json, False), self._wrapper(orjson.loads(message_json), None)
        if tokens is None or wrapper is None:
            return None
        before, *after = self._encoding.decode(tokens[wrapper.prefix.size : -1].tolist()).split(_SOME)
        return (before, after[0]) if len(after) == 1 else None

    def _structured_message(self, message: dict[str, Any], part: dict[str, Any], function_tools: bool) -> Tokens | None:
        # Function tools also change the text of *other* messages, so the table must cover them.
        if ("tools" in part and not self._profile.table_tools) or message.get("channel") is not None:
            return None
        try:
            return self._structured(orjson.dumps(message), function_tools)
        except TypeError:  # for instance a lone surrogate or a huge integer: the table does not cover it either
            return None

    def _render_structured(self, message_json: bytes, function_tools: bool) -> Tokens | None:
        """A structured message that is followed by another message; None if openai-harmony refuses it.

        `function_tools`: whether a message of the conversation defines functions, which adds a line to a system
        message.
        """
        follower = DEFINES_A_FUNCTION if function_tools else {"role": "user", "content": ""}
        try:
            rendered = render_one([orjson.loads(message_json), follower], self._encoding)
        except RefusedByRendererError:
            return None
        starts = np.flatnonzero(rendered == START)
        return rendered[: starts[1]] if starts.size == 2 else None

    def _assemble(self, layout: _Layout) -> TokenDocuments:
        """Places constants and encoded texts at their segments, and gathers the documents from the messages.

        segments   c t c   lengths [2 3 1]   in text  [0 0 1 1 1 0]
        constants  a b c   texts  x y z      →         a b x y z c
        """
        if not layout.sizes:
            return _NO_DOCUMENTS
        encoded = self._encoder.encode(layout.texts)
        lengths = np.array(layout.lengths, dtype=np.int64)
        lengths[layout.text_segments] = encoded.lengths
        is_text = np.zeros(lengths.size, dtype=np.bool_)
        is_text[layout.text_segments] = True
        in_text = np.repeat(is_text, lengths)
        tokens = np.empty(in_text.size, dtype=np.int32)
        tokens[in_text] = encoded.tokens
        tokens[~in_text] = np.concatenate([_NO_DOCUMENTS.tokens, *layout.constants])

        order = np.array(layout.order, dtype=np.int64)
        message_lengths = np.add.reduceat(lengths, layout.message_firsts)
        if order.size != message_lengths.size or not np.array_equal(order, np.arange(order.size)):
            tokens = _gathered(tokens, message_lengths, order)
            message_lengths = message_lengths[order]
        sizes = np.array(layout.sizes, dtype=np.int64)
        ends = np.cumsum(sizes)
        document_lengths = np.add.reduceat(message_lengths, ends - sizes)
        # An answer right before a document's EOD ends in <|return|>, not <|end|>.
        last_tokens = np.array(layout.last_tokens, dtype=np.int32)[order[ends - 2]]
        places = np.cumsum(document_lengths) - 2
        tokens[places[last_tokens >= 0]] = last_tokens[last_tokens >= 0]
        span_id = np.repeat(np.concatenate(layout.labels), message_lengths)
        return TokenDocuments(
            tokens=tokens,
            loss_mask=(span_id != SPAN_CONTEXT).view(np.uint8),
            span_id=span_id,
            lengths=document_lengths.astype(np.int32),
        )


def _gathered(tokens: Tokens, lengths: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> Tokens:
    """Copies messages into another order, some of them several times.

    Messages that are adjacent in source and target are copied together: an index per token would take longer than
    copying the tokens.

        lengths [2 1 3]   order [0 1 0 2]   tokens a a b c c c   →   a a b · a a · c c c

    Args: int32 [T], int64 [M], int64 [K]. Returns int32.
    """
    ends = np.cumsum(lengths)
    begins = np.append(True, np.diff(order) != 1)
    firsts = (ends - lengths)[order[begins]].tolist()
    lasts = ends[order[np.append(begins[1:], True)]].tolist()
    return np.concatenate([tokens[first:last] for first, last in zip(firsts, lasts, strict=True)])


_EOD = np.array([EOD], dtype=np.int32)
_CONTEXT = np.array([SPAN_CONTEXT], dtype=np.uint8)
_NO_DOCUMENTS = joined([])
