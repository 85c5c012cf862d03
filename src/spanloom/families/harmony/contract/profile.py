"""The two profiles of Harmony datasets: what differs between SYNTH KD and conversations of any kind, as values.

In: what a source's manifest, or a dataset's, says of itself. Out: a `Profile`, which is handed down to whatever opens,
checks, renders, splits, writes and verifies.

    synth_kd      synth_harmony_v1           one document a row, all of it trained but context
    harmony_chat  conversations_v1, harmony_conversations_v1
                                             documents of the assistant runs of a row, as a server would show them
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from spanloom.conversations.source.format import ANY_MODEL, CONVERSATIONS, SourceFormat
from spanloom.conversations.source.structure import ANY_KEYS
from spanloom.dataset.rows.table import DOCUMENTS_OF_CONVERSATIONS
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract import spans


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """What differs between the families. Each is one object in a process, also where it comes from another one.

    family           in a dataset's manifest
    source           the format of the source
    root, capped_root   where a build goes without --out
    span_of_channel  of an assistant message
    span_names       `span_names[span_id]`
    table_keys       keys of a message that the fast renderer's table covers
    table_tools      it covers definitions of tools and contents of several parts too
    cuts             a row may become several documents
    split_column     of the row table: what is hashed to choose train or valid
    about            the columns of the row table that the family brings, `row` first
    """

    family: str
    source: SourceFormat
    root: str
    capped_root: str
    span_of_channel: Mapping[str, int]
    span_names: tuple[str, ...]
    table_keys: frozenset[str]
    table_tools: bool
    cuts: bool
    split_column: str
    about: pa.Schema

    def __reduce__(self) -> tuple[Callable[[str, str], "Profile"], tuple[str, str]]:
        return profile_of_family, (self.family, self.source.schema_version)


SYNTH = SourceFormat(
    schema_version="synth_harmony_v1",
    converter="spanloom convert-synth",
    manifest=None,
    shard_glob="synth_harmony_shard_*.parquet",
    shards=defaults.SHARDS,
    id_column="synth_id",
    id_is_demanded=False,
    metadata_columns=("language", "exercise"),
    roles=("system", "developer", "user", "assistant"),
    strict=False,
)
"""`synth_harmony_v1`, the locked contract: docs/format.md. Its columns of metadata travel to the row table."""

SYNTH_KD = Profile(
    family="synth_kd",
    source=SYNTH,
    root=defaults.ROOT,
    capped_root=defaults.CAPPED_ROOT,
    span_of_channel={"analysis": spans.SPAN_ANALYSIS, "final": spans.SPAN_FINAL},
    span_names=spans.SPAN_NAMES,
    table_keys=frozenset({"role", "content", "channel"}),
    table_tools=False,
    cuts=False,
    split_column="synth_id",
    about=pa.schema(
        [
            pa.field("row", pa.int64(), nullable=False),
            pa.field("synth_id", pa.string(), nullable=False),
            pa.field("language", pa.string()),
            pa.field("exercise", pa.string()),
        ]
    ),
)

HARMONY_CHAT = Profile(
    family="harmony_chat",
    source=CONVERSATIONS,
    root=defaults.CHAT_ROOT,
    capped_root=defaults.CAPPED_CHAT_ROOT,
    span_of_channel={"analysis": spans.SPAN_ANALYSIS, "final": spans.SPAN_FINAL, "commentary": spans.SPAN_COMMENTARY},
    span_names=spans.CHAT_SPAN_NAMES,
    table_keys=ANY_KEYS,
    table_tools=True,
    cuts=True,
    split_column="conversation",
    about=DOCUMENTS_OF_CONVERSATIONS,
)

CHAT_OF_ANY_MODEL = replace(HARMONY_CHAT, source=ANY_MODEL)
"""The same from conversations that belong to the format of no model."""

PROFILES = (SYNTH_KD, HARMONY_CHAT, CHAT_OF_ANY_MODEL)


def profile_of_source(source: SourceFormat) -> Profile:
    """The profile that a source of this format is built with. Raises KeyError for another format."""
    return {profile.source: profile for profile in PROFILES}[source]


def profile_of_family(family: str, schema_version: str | None = None) -> Profile:
    """The profile of a dataset; of the source with this `schema_version`, else the first of the family. Raises KeyError
    for another family."""
    profiles = [profile for profile in PROFILES if profile.family == family]
    if not profiles:
        raise KeyError(family)
    return next((profile for profile in profiles if profile.source.schema_version == schema_version), profiles[0])
