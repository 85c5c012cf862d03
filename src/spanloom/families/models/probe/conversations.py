"""The conversations to probe: the forty of `sample`, or those of a file.

In: None, or a file of JSON Lines. Out: groups and conversations.
"""

import json
from pathlib import Path

from spanloom.errors import RecordError
from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.samples.conversations import sample_conversations


def probed_conversations(file: Path | None) -> list[tuple[str, Conversation]]:
    """The conversations of a file, with the `group` of each record; without a file, those of `sample`.

    Raises RecordError for a missing file or an invalid line.
    """
    if file is None:
        return list(sample_conversations())
    if not file.is_file():
        raise RecordError("the file of conversations is missing", where=str(file), remedy="give a file of JSON Lines")
    conversations = []
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as fault:
            raise RecordError(f"the line is not JSON: {fault}", where=where, remedy="give JSON Lines") from None
        if not isinstance(record, dict):
            raise RecordError("the line is not a JSON object", where=where, remedy="give an object with `messages`")
        conversations.append((str(record.get("group", "all")), read_conversation(record, name=where)))
    return conversations
