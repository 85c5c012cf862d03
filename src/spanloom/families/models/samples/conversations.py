"""Forty conversations of our own that find faults of chat templates: what `probe` renders.

Out: `Conversation`s in four groups: single turns, several turns, reasoning, tools. Each is named after what it tests.
They are lines of `conversations.jsonl` beside this module, with the id `GROUP: NAME`.
"""

import json
from collections.abc import Iterator
from importlib.resources import files

from spanloom.families.models.conversation import Conversation, read_conversation


def sample_conversations() -> Iterator[tuple[str, Conversation]]:
    """The forty conversations, each with its group."""
    lines = files(__package__).joinpath("conversations.jsonl").read_bytes().splitlines()
    for record in map(json.loads, lines):
        group, _, name = record["id"].partition(": ")
        yield group, read_conversation(record, name=name)
