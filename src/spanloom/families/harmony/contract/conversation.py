"""One row → its checked conversation, by the rules of a profile.

In: the JSON of a row. Out: what `spanloom.conversations.source.structure` makes of them.
"""

from spanloom.conversations.source import structure
from spanloom.conversations.source.structure import LabelledConversation
from spanloom.families.harmony.contract.profile import SYNTH_KD, Profile


def parse_conversation(
    messages_json: str | bytes | None, quotes: int | None = None, profile: Profile = SYNTH_KD
) -> LabelledConversation:
    """`structure.parse_conversation` with the format and the spans of a profile."""
    return structure.parse_conversation(messages_json, profile.source, profile.span_of_channel, quotes)
