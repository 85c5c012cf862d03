"""The two profiles of Harmony datasets: what differs between SYNTH KD and conversations of any kind, as values.

In: the format of a source, or the family in a dataset's manifest. Out: a `Profile`, which is passed to the code that
opens, checks, renders, splits, writes and verifies.

    synth_kd      synth_harmony_v1           one document per row; everything except context is trained
    harmony_chat  conversations_v1, harmony_conversations_v1
                                             documents of the assistant runs of a row, as a server would show them
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from spanloom.building.recipe import DatasetForm
from spanloom.conversations.source.format import ANY_MODEL, CONVERSATIONS, SYNTH, SourceFormat
from spanloom.conversations.source.structure import ANY_KEYS
from spanloom.dataset.family import Layout
from spanloom.dataset.rows.table import DOCUMENTS_OF_CONVERSATIONS
from spanloom.families.harmony import defaults

ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8", "span": "uint8"}
"""File name part → dtype of its `.bin`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """What differs between the families. A process has one object per profile, also after unpickling.

    family           in a dataset's manifest
    source           the format of the source
    root, capped_root   default output roots of a build without --out
    table_keys       keys of a message that the fast renderer's table covers
    table_tools      the table also covers tool definitions and contents of several parts
    cuts             a row may become several documents
    split_column     column of the row table that is hashed to choose train or valid
    about            the columns that the family adds to the row table, `row` first
    """

    family: str
    source: SourceFormat
    root: str
    capped_root: str
    table_keys: frozenset[str]
    table_tools: bool
    cuts: bool
    split_column: str
    about: pa.Schema

    @property
    def span_names(self) -> tuple[str, ...]:
        return self.source.span_names

    @property
    def form(self) -> DatasetForm:
        """The form of the family's documents, for the machine that makes datasets."""
        layout = Layout(arrays=ARRAY_DTYPES, span_names=self.span_names)
        return DatasetForm(
            family=self.family,
            layout=layout,
            about=self.about,
            split_column=self.split_column,
            id_column=self.source.id_column,
        )

    def __reduce__(self) -> tuple[Callable[[str, str], "Profile"], tuple[str, str]]:
        return profile_of_family, (self.family, self.source.schema_version)


SYNTH_KD = Profile(
    family="synth_kd",
    source=SYNTH,
    root=defaults.ROOT,
    capped_root=defaults.CAPPED_ROOT,
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
    table_keys=ANY_KEYS,
    table_tools=True,
    cuts=True,
    split_column="conversation",
    about=DOCUMENTS_OF_CONVERSATIONS,
)

CHAT_OF_ANY_MODEL = replace(HARMONY_CHAT, source=ANY_MODEL)
"""`HARMONY_CHAT` from conversations in the format for any model."""

PROFILES = (SYNTH_KD, HARMONY_CHAT, CHAT_OF_ANY_MODEL)


def profile_of_source(source: SourceFormat) -> Profile:
    """The profile for a source of this format. Raises KeyError for an unknown format."""
    return {profile.source: profile for profile in PROFILES}[source]


def profile_of_family(family: str, schema_version: str | None = None) -> Profile:
    """The profile of a family whose source has this `schema_version`; otherwise the first profile of the family. Raises
    KeyError for an unknown family."""
    profiles = [profile for profile in PROFILES if profile.family == family]
    if not profiles:
        raise KeyError(family)
    return next((profile for profile in profiles if profile.source.schema_version == schema_version), profiles[0])
