"""One row → its checked conversation, by the rules of a profile.

In: the JSON of a row. Out: a `LabelledConversation`, checked by `spanloom.conversations.source.structure`. Rows for any
model are converted to Harmony messages first.
"""

from spanloom.conversations import conversation
from spanloom.conversations.source import structure
from spanloom.conversations.source.format import ANY_MODEL
from spanloom.conversations.source.structure import LabelledConversation
from spanloom.families.harmony.contract.messages import harmony_messages
from spanloom.families.harmony.contract.profile import SYNTH_KD, Profile


def parse_conversation(
    messages_json: str | bytes | None, quotes: int | None = None, profile: Profile = SYNTH_KD
) -> LabelledConversation:
    """Parses one row with the format and the spans of a profile.

    Raises RowRefusedError for an invalid row, and for a conversation that Harmony cannot represent.
    """
    if profile.source.schema_version != ANY_MODEL.schema_version:
        return structure.parse_conversation(messages_json, profile.source, quotes)
    parsed = conversation.parse_conversation(messages_json, quotes)
    return structure.labelled(harmony_messages(parsed), profile.source, parsed.weight, made=True)
