"""The source folders `conversations_v1` and `harmony_conversations_v1`: whole conversations of any chat data, and the
manifest that lists them.

In: what converted the conversations. Out: `ConversationsManifest`, the type of their manifest.json; and the columns of
their shards. `conversations_v1.schema.json` is the same contract for everybody else; a test holds it equal to the JSON
Schema of the type.

    conversations_shard_00.parquet   messages_json · metadata_json · id
    conversations_shard_01.parquet   one row is one whole conversation, uncut
    manifest.json                    written last

`messages_json` of `conversations_v1` is what `spanloom.conversations.conversation` describes. That of
`harmony_conversations_v1` is `{"messages": [...]}` as openai-harmony's `Conversation.to_json` makes it, with one
difference: a field of `system_content` that is to be left out of the render is null. `to_json` drops such a field, and
reading it back fills in openai-harmony's default, such as "You are ChatGPT, …". It may also have `"trained": false` in
messages of the assistant, and a number under `weight` beside the messages.
"""

from typing import Any, Final, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

ANY_MODEL_V1: Final = "conversations_v1"
CONVERSATIONS_V1: Final = "harmony_conversations_v1"
CONVERSATIONS_GLOB: Final = "conversations_shard_*.parquet"

CONVERSATIONS_COLUMNS = pa.schema(
    [
        pa.field("messages_json", pa.large_string(), nullable=False),
        pa.field("metadata_json", pa.large_string(), nullable=False),
        pa.field("id", pa.large_string(), nullable=False),
    ]
)
"""The columns of a shard, as they are to be written. `metadata_json` is a JSON object whose key `id` is the row's `id`;
ids are unique over all shards. Readers take `string` too."""

Count = Field(ge=0)
Sha256 = Field(pattern="^[0-9a-f]{64}$")


class _Section(BaseModel):
    """Immutable. Keys that this version does not know are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, defer_build=True)


class ConvertedFile(_Section):
    """A file that conversations were read from. `path`: as it was given, without the folders above it."""

    path: str
    rows: int = Count
    bytes: int = Count
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")


class Conversion(_Section):
    """How the conversations were made.

    form           what kind of records they were found to be, such as `openai_messages`, `sharegpt`, `columns`
    options        the options that decide the bytes, as given
    model_identity, conversation_start_date, knowledge_cutoff, reasoning_effort
                   of the system message; null leaves the line out of it
    developer      developer instructions of conversations that brought none; null where they have none
    rows_read      records of the input = rows_written + all of `skipped`
    skipped        records that made no conversation, by reason
    dropped        parts of records that are not stored, by what they were: dropped by options, such as
                   `reasoning_content`
    dataset, license   of the data, where the user named them
    places         the inputs at `hf://`, each with the commit that was read
    """

    form: str
    options: dict[str, Any]
    model_identity: str | None
    conversation_start_date: str | None
    knowledge_cutoff: str | None
    reasoning_effort: Literal["Low", "Medium", "High"] | None
    developer: str | None
    rows_read: int = Count
    rows_written: int = Count
    skipped: dict[str, int]
    dropped: dict[str, int]
    sources: tuple[ConvertedFile, ...] = Field(strict=False)
    dataset: str | None = None
    license: str | None = None
    places: tuple[str, ...] | None = Field(default=None, strict=False)


class StoredShard(_Section):
    """One Parquet file, beside the manifest."""

    path: str
    rows: int = Count
    bytes: int = Count
    sha256: str = Sha256


class Storage(_Section):
    """The shards, in order: number 0 is first."""

    format: Literal["parquet"]
    glob: Literal["conversations_shard_*.parquet"]
    total_rows: int = Count
    shards: tuple[StoredShard, ...] = Field(min_length=1, strict=False)


class ConversationsManifest(_Section):
    """manifest.json of a `conversations_v1` or a `harmony_conversations_v1` folder."""

    schema_version: Literal["conversations_v1", "harmony_conversations_v1"]
    conversion: Conversion
    storage: Storage

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return self.model_dump(mode="json", exclude_unset=True)
