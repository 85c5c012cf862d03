"""One row → its checked conversation, by the rules of a profile.

In: the JSON of a row. Out: a `LabelledConversation`. Rows for any model are converted to Harmony messages; all other
rows are checked by `spanloom.conversations.source.structure`.
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
    """Parses one row with the format and the spans of a profile.

    Raises RowRefusedError for an invalid row, and for a conversation that Harmony cannot represent.
    """
    if profile.source.schema_version != ANY_MODEL.schema_version:
        return structure.parse_conversation(messages_json, profile.source, profile.span_of_channel, quotes)
    parsed = conversation.parse_conversation(messages_json, quotes)
    messages = harmony_messages(parsed)
    spans, untrained, truncated = profile.span_of_channel, 0, []
    labels = bytearray(len(messages))
    for index, message in enumerate(messages):
        is_untrained = message.pop("trained", None) is False
        is_truncated = message.pop("truncated", False)
        if "name" in message or "recipient" in message:  # all other header fields are generated
            structure.check_message(index, message)
        if message["role"] == "assistant":
            untrained += is_untrained
            if is_truncated and not is_untrained:
                truncated.append(index)
            labels[index] = SPAN_CONTEXT if is_untrained else spans[message["channel"]]
    return LabelledConversation(
        messages=messages,
        labels=np.frombuffer(labels, dtype=np.uint8),
        weight=1.0 if parsed.weight is None else parsed.weight,
        untrained=untrained,
        truncated=tuple(truncated),
    )
