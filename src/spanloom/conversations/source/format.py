"""The definition of a folder of conversations: names of its files, its columns, rules for its rows.

In: nothing. Out: a `SourceFormat`, used to open and read the folder and to check its rows.

    messages_json   {"messages": [...]}, by `conversations.conversation`, or in the form of openai-harmony's JSON
    metadata_json   an object that holds the id too
    the id, and columns of metadata that a format may have

`ANY_MODEL` is the format for any chat data; `CONVERSATIONS` holds it as Harmony messages; `SYNTH` holds SYNTH.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pydantic import BaseModel

from spanloom.conversations.source.manifest import (
    ANY_MODEL_V1,
    CONVERSATIONS_GLOB,
    CONVERSATIONS_V1,
    ConversationsManifest,
)


@dataclass(frozen=True, kw_only=True)
class SourceFormat:
    """The differences between formats of source folders. Formats with the same values are equal, also across processes.

    schema_version   in the manifest of the folder
    converter        the command that writes such a folder
    manifest         the type of its manifest; None if only the list of shards is required
    shard_glob       names of its shards
    shards           the expected number if the caller gives none; None: as many as the manifest lists
    id_column        the column of ids, and the key of the id in `metadata_json`
    id_is_demanded   both columns, `id_column` and `metadata_json`, are required
    metadata_columns further columns, read if present
    roles            allowed roles of messages
    channels         allowed channels of assistant messages; each is a span, numbered from 1
    strict           a message with an unknown key, or a header that cannot be read back, is refused
    """

    schema_version: str
    converter: str
    manifest: type[BaseModel] | None
    shard_glob: str
    shards: int | None
    id_column: str
    id_is_demanded: bool
    metadata_columns: tuple[str, ...]
    roles: tuple[str, ...]
    channels: tuple[str, ...]
    strict: bool

    @cached_property
    def span_of_channel(self) -> dict[str, int]:
        """The span of an assistant message by its channel."""
        return {channel: span for span, channel in enumerate(self.channels, start=1)}

    @property
    def span_names(self) -> tuple[str, ...]:
        """The spans by number. Context has no loss, analysis is the reasoning, final the answer; commentary is the text
        before a tool call, and the calls."""
        return "context", *self.channels

    def shard_name(self, shard: int) -> str:
        """`conversations_shard_03.parquet`"""
        return self.shard_glob.replace("*", f"{shard:02d}")

    def storage(self, shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The section `storage` of a manifest. `shards`: their entries, in order: see `ShardWriter.finish`."""
        total = sum(shard["rows"] for shard in shards)
        return {"format": "parquet", "glob": self.shard_glob, "total_rows": total, "shards": list(shards)}


CONVERSATIONS: Final = SourceFormat(
    schema_version=CONVERSATIONS_V1,
    converter="spanloom convert",
    manifest=ConversationsManifest,
    shard_glob=CONVERSATIONS_GLOB,
    shards=None,
    id_column="id",
    id_is_demanded=True,
    metadata_columns=(),
    roles=("system", "developer", "user", "assistant", "tool"),
    channels=("analysis", "final", "commentary"),
    strict=True,
)
"""`harmony_conversations_v1`: whole conversations of any chat data, as Harmony messages."""

ANY_MODEL: Final = replace(CONVERSATIONS, schema_version=ANY_MODEL_V1)
"""`conversations_v1`: whole conversations of any chat data, independent of any model's format."""

SYNTH: Final = SourceFormat(
    schema_version="synth_harmony_v1",
    converter="spanloom convert-synth",
    manifest=None,
    shard_glob="synth_harmony_shard_*.parquet",
    shards=4,
    id_column="synth_id",
    id_is_demanded=False,
    metadata_columns=("language", "exercise"),
    roles=("system", "developer", "user", "assistant"),
    channels=("analysis", "final"),
    strict=False,
)
"""`synth_harmony_v1`, the locked contract: docs/format.md. SYNTH KD copies its metadata columns to the row table."""

FORMATS: Final = (SYNTH, CONVERSATIONS, ANY_MODEL)


def format_named(schema_version: object) -> SourceFormat | None:
    """The format with this `schema_version`; None if it is not one of `FORMATS`."""
    return next((each for each in FORMATS if each.schema_version == schema_version), None)
