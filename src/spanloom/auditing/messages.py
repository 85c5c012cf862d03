"""Reads the source conversations of a dataset once into a file that all workers share.

In: a source folder, or a file or folder that `spanloom convert` reads. Out: in a scratch folder the conversations as
lines, and an index by the digest of their first question. Raises SourceError and RecordError for unreadable input.

Texts are not parsed: reasoning or calls that are written as text were text for the trainer too.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from spanloom.conversations.source.folder import MANIFEST_NAME, first_rows, open_source, read_listing
from spanloom.conversations.source.format import ANY_MODEL
from spanloom.conversations.source.rejects import RowRefusedError
from spanloom.errors import RecordError, SourceError
from spanloom.families.harmony.convert.chat import conversations
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted
from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.source.rows import TemplateWords, read_row
from spanloom.tokenizers.chat_template import ChatTemplate

_AS_IT_IS = ChatConversion(think_tags=False, text_as_is=True, keep_unprompted=True, maps=("id=",))
"""Replaces ids: a repeated id must not refuse a conversation here."""

LINES, QUESTIONS, PLACES, REFUSED = "conversations.jsonl", "questions.npy", "places.npy", "refused.npy"

_Read = tuple[Conversation | None, str, Any]
"""A conversation; or the reason why a row is not one, and its record."""


@dataclass(frozen=True)
class Written:
    """`read`: rows read; `refused`: reason → rows that are not a conversation."""

    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def write_messages(place: Path, folder: Path, template: ChatTemplate) -> Written:
    """Reads the conversations at a place into an existing folder."""
    if not place.exists():
        raise SourceError(
            "the conversations are missing", where=str(place), remedy="give a file of chat data or a source folder"
        )
    words = TemplateWords.of(template)
    rows = _of_source(place, words) if (place / MANIFEST_NAME).is_file() else _of_records(place, words)
    refused: Counter[str] = Counter()
    questions, places, texts = array("Q"), array("Q"), array("Q")
    read = offset = 0
    with (folder / LINES).open("wb") as stream:
        for conversation, reason, record in rows:
            read += 1
            if conversation is None:
                refused[reason] += 1
                texts.extend({digest(text.strip().encode(errors="surrogatepass")) for text in _texts(record)})
                continue
            line = _line(conversation)
            questions.append(digest(question_of(conversation)))
            places.append(offset)
            offset += stream.write(line)
    if not questions:
        raise SourceError(
            f"no row makes a conversation: {', '.join(f'{name} {count:,}' for name, count in refused.items())}",
            where=str(place),
            remedy="`spanloom convert --dry-run` shows the first row of each reason",
        )
    digests = np.frombuffer(questions, np.uint64)
    order = np.argsort(digests, kind="stable")
    np.save(folder / QUESTIONS, digests[order])
    np.save(folder / PLACES, np.frombuffer(places, np.uint64)[order].astype(np.int64))
    np.save(folder / REFUSED, np.unique(np.frombuffer(texts, np.uint64)))
    return Written(read, refused)


class Messages:
    """The files of `write_messages`."""

    def __init__(self, folder: Path) -> None:
        self._stream = (folder / LINES).open("rb")
        self._questions: npt.NDArray[np.uint64] = np.load(folder / QUESTIONS)
        self._places: npt.NDArray[np.int64] = np.load(folder / PLACES)
        self._refused: npt.NDArray[np.uint64] = np.load(folder / REFUSED)

    def asking(self, question: bytes) -> list[int]:
        """The places of conversations with this first question, in reading order."""
        wanted = np.uint64(digest(question))
        first, last = (int(np.searchsorted(self._questions, wanted, side)) for side in ("left", "right"))
        places: list[int] = self._places[first:last].tolist()
        return places

    def in_refused(self, question: bytes) -> bool:
        """Whether a row that is not a conversation has this text."""
        wanted = np.uint64(digest(question))
        at = int(np.searchsorted(self._refused, wanted))
        return at < self._refused.size and bool(self._refused[at] == wanted)

    def at(self, place: int) -> Conversation:
        """The conversation at a place."""
        self._stream.seek(place)
        return read_conversation(json.loads(self._stream.readline()), name="")


def digest(text: bytes) -> int:
    """A 64-bit digest of a text."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def question_of(conversation: Conversation) -> bytes:
    """The first user text, stripped."""
    texts: Iterator[str] = (message["content"] or "" for message in conversation.messages if message["role"] == "user")
    return next(texts, "").strip().encode(errors="surrogatepass")


def _of_source(place: Path, words: TemplateWords) -> Iterator[_Read]:
    """The rows of a source folder."""
    for shard in open_source(place, shards=len(read_listing(place).shards)).shards:
        for rows in first_rows(shard):
            for number, value in enumerate(rows.messages_json):
                text = value.as_py()
                try:
                    name = f"{shard.where}, row {rows.first_row + number}"
                    row = read_row(text, shard.format, words, name=name, any_runs=True)
                except RowRefusedError as refused:
                    yield None, refused.reason.value, _json(text)
                else:
                    yield row.conversation, "", None


def _of_records(place: Path, words: TemplateWords) -> Iterator[_Read]:
    """The records of files. Records that `convert` refuses are accepted if a template accepts the messages."""
    for made in conversations(open_chat([place], _AS_IT_IS), _AS_IT_IS):
        if isinstance(made, Converted):
            try:
                row = read_row(made.row["messages_json"], ANY_MODEL, words, name=made.where, any_runs=True)
            except RowRefusedError as refused:
                yield None, refused.reason.value, _json(made.row["messages_json"])
            else:
                yield row.conversation, "", None
            continue
        record = made.read.value
        try:
            conversation = read_conversation(record if isinstance(record, dict) else {}, name=str(made.read.where))
        except RecordError:
            yield None, made.reason, record
        else:
            yield (conversation, "", None) if conversation.runs() else (None, made.reason, record)


def _line(conversation: Conversation) -> bytes:
    record = {
        "id": conversation.id,
        "messages": list(conversation.messages),
        "tools": conversation.tools,
        "chat_template_kwargs": dict(conversation.variables),
    }
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an integer of more than 64 bits, half of a surrogate pair
        return json.dumps(record).encode() + b"\n"


def _json(text: Any) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
