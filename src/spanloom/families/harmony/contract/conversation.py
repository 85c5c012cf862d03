"""One row → its checked conversation, by the rules of a profile.

In: the JSON of a row. Out: what `spanloom.conversations.source.structure` makes of it; a row of `conversations_v1`
becomes the messages of a Harmony conversation first.
"""

import numpy as np

from spanloom.conversations import conversation
from spanloom.conversations.source import structure
from spanloom.conversations.source.format import ANY_MODEL
from spanloom.conversations.source.structure import LabelledConversation
from spanloom.families.harmony.contract.messages import harmony_messages
from spanloom.families.harmony.contract.profile import SYNTH_KD, Profile
from spanloom.supervision import SPAN_CONTEXT


def parse_conversation(
    messages_json: str | bytes | None, quotes: int | None = None, profile: Profile = SYNTH_KD
) -> LabelledConversation:
    """`structure.parse_conversation` with the format and the spans of a profile.

    Raises RowRefusedError, also for a conversation of any model that Harmony cannot hold.
    """
    if profile.source.schema_version != ANY_MODEL.schema_version:
        return structure.parse_conversation(messages_json, profile.source, profile.span_of_channel, quotes)
    parsed = conversation.parse_conversation(messages_json, quotes)
    messages = harmony_messages(parsed)
    spans, untrained = profile.span_of_channel, 0
    labels = bytearray(len(messages))
    for index, message in enumerate(messages):
        is_untrained = message.pop("trained", None) is False
        if "name" in message or "recipient" in message:  # what else a header holds is made here
            structure.check_message(index, message)
        if message["role"] == "assistant":
            untrained += is_untrained
            labels[index] = SPAN_CONTEXT if is_untrained else spans[message["channel"]]
    return LabelledConversation(
        messages=messages,
        labels=np.frombuffer(labels, dtype=np.uint8),
        weight=1.0 if parsed.weight is None else parsed.weight,
        untrained=untrained,
    )
