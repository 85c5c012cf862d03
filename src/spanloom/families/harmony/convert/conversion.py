"""Records of chat data → rows of a `harmony_conversations_v1` shard; what became of each is counted.

In: records in order, each with its file and number. Out: a row, or a `Rejected`; `Counts`. No file is opened here, and
nothing depends on when or where it runs.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spanloom.conversations.flags import NOT_DROPPED
from spanloom.conversations.forms import Form, KeyMap, key_map, read_record
from spanloom.conversations.ids import SeenIds
from spanloom.conversations.markup import CALL_STYLES
from spanloom.conversations.outcomes import Counts, LeftAway, Read, Rejected
from spanloom.conversations.source.rejects import reject_limit
from spanloom.conversations.source.writer import OutputRow
from spanloom.conversations.turns import Dropping, Reading, RecordLeftOutError, RecordRefusedError, Refusal
from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.convert.messages import Message, SystemFields, harmony_messages
from spanloom.families.harmony.convert.rendered import rendered_messages
from spanloom.text import is_utf8


@dataclass(frozen=True, kw_only=True)
class ChatConversion:
    """The options of a conversion. Raises SpanloomError for a value that cannot be used.

    `maps`: `MEANING=KEY`, see `conversations.forms`. `metadata`: keys that are metadata, whatever they look like.
    `think_tags`: True makes analysis of them, False keeps them as text, None refuses them. `call_tags`: the style of
    calls in texts (`conversations.markup.CALL_STYLES`). `text_as_is`: markup stays text. `drop`: keys, `role:NAME`,
    `part:TYPE`, `think`, `unprompted`, `unanswered`. `max_rejects`: how many records may be refused, a number or a
    share such as 0.1%.
    """

    system_fields: SystemFields = field(default_factory=SystemFields)
    maps: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    think_tags: bool | None = None
    call_tags: str | None = None
    text_as_is: bool = False
    calls_in_turn: bool = False
    drop: tuple[str, ...] = ()
    max_rejects: str = defaults.MAX_REJECTS
    rows_per_shard: int = defaults.ROWS_PER_SHARD
    dataset: str | None = None
    license: str | None = None

    def __post_init__(self) -> None:
        if self.rows_per_shard < 1:
            raise SpanloomError(f"a shard cannot hold {self.rows_per_shard} rows", remedy="use 1 or more")
        if self.call_tags is not None and self.call_tags not in CALL_STYLES:
            raise SpanloomError(
                f"--call-tags takes the style of calls, not {self.call_tags!r}",
                remedy=f"use one of: {', '.join(CALL_STYLES)}",
            )
        if flags := sorted(NOT_DROPPED & set(self.drop)):
            raise SpanloomError(
                f"--drop {flags[0]} would train what is marked as not to be trained",
                remedy="leave it away: what its mark says is honoured",
            )
        _ = self.keys
        reject_limit(self.max_rejects, 0)
        for name, value in {**vars(self.system_fields), "dataset": self.dataset, "license": self.license}.items():
            if value is not None and not is_utf8(value):
                raise SpanloomError(f"the option {name} is not UTF-8: {value!r}")

    @property
    def keys(self) -> KeyMap:
        """Which keys of records mean what."""
        return key_map(self.maps, self.metadata)

    @property
    def reading(self) -> Reading:
        """How texts and keys are read."""
        return Reading(
            think_tags=self.think_tags,
            call_tags=self.call_tags,
            text_as_is=self.text_as_is,
            metadata=frozenset(self.metadata),
            rendered=rendered_messages,
        )

    def deciding(self) -> dict[str, Any]:
        """What decides the bytes of the shards. Options that came later are named where they are used."""
        options = asdict(self)
        for name in ("metadata", "call_tags", "text_as_is"):
            value = options.pop(name)
            if value:
                options[name] = sorted(set(value)) if name == "metadata" else value
        del options["max_rejects"], options["dataset"], options["license"]
        # Manifests have `around`: the name that system fields had first.
        return {
            "around": options.pop("system_fields"),
            **options,
            "maps": list(self.maps),
            "drop": sorted(set(self.drop)),
        }


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A record as a conversation: its row, the messages in it, and where the record stands."""

    where: str
    row: OutputRow
    messages: list[Message]


class Converter:
    """Converts records one after the other. `counts` and `ids`: of the records before, where a run goes on."""

    def __init__(self, form: Form, conversion: ChatConversion, counts: Counts | None = None) -> None:
        self._form, self._conversion = form, conversion
        self._dropped, self._reading = frozenset(conversion.drop), conversion.reading
        self.counts = counts or Counts()
        self.ids = SeenIds()

    def convert(self, read: Read) -> Converted | Rejected | LeftAway:
        """What a record becomes. It is counted, whatever it is."""
        counts = self.counts
        counts.read += 1
        counts.files[read.file] += 1
        dropping = Dropping(names=self._dropped)
        try:
            converted = self._converted(read, dropping)
        except RecursionError:
            # What one parser still reads another cannot write: the record is left out of the reject too.
            counts.skipped[Refusal.UNREADABLE.value] += 1
            bare = replace(read, value=None)
            return Rejected(read=bare, reason=Refusal.UNREADABLE.value, detail="it is nested too deep", remedy=None)
        except RecordLeftOutError as left:
            counts.skipped[left.reason.value] += 1
            return LeftAway(read=read, reason=left.reason.value)
        except RecordRefusedError as refused:
            counts.skipped[refused.reason.value] += 1
            if refused.key is not None:
                counts.refused_keys[refused.key] += 1
            return Rejected(read=read, reason=refused.reason.value, detail=refused.detail, remedy=refused.remedy)
        counts.written += 1
        counts.dropped.update(dropping.counts)
        counts.dropped_characters.update(dropping.characters)
        counts.messages.update(_kind_of(message) for message in converted.messages)
        return converted

    def _converted(self, read: Read, dropping: Dropping) -> Converted:
        if read.fault is not None:
            raise RecordRefusedError(Refusal.UNREADABLE, read.fault)
        said = self._conversion
        record = read_record(read.value, self._form, self._reading, dropping)
        messages = harmony_messages(record, said.system_fields, dropping, calls_in_turn=said.calls_in_turn)
        identity = record.id if record.id is not None else f"{read.file}:{read.number}"
        if not self.ids.add(identity):
            raise RecordRefusedError(
                Refusal.ID_REPEATED, f"the id {identity!r} stands in a record before", "--map id= (make ids)"
            )
        self.counts.ids_made += record.id is None
        self.counts.metadata.update(record.rest.keys())
        for said_of_it in record.message_metadata:
            self.counts.metadata.update(f"message.{key}" for key in said_of_it if key != "message")
        metadata: dict[str, Any] = {"id": identity, "source": {"file": read.file, "number": read.number}}
        if record.rest:
            metadata["record"] = record.rest
        if record.message_metadata:
            metadata["message_metadata"] = list(record.message_metadata)
        row: OutputRow = {
            "messages_json": json.dumps({"messages": messages}, ensure_ascii=False).encode(),
            "metadata_json": json.dumps(metadata, ensure_ascii=False),
            "id": identity,
        }
        return Converted(where=read.where, row=row, messages=messages)


def _kind_of(message: Message) -> str:
    """What a message counts as: its role, of the assistant its channel, and calls by themselves."""
    if message["role"] != "assistant":
        return str(message["role"])
    return "call" if "recipient" in message else str(message["channel"])
