"""UltraChat: dialogues without tools.

In: a record with `messages` of role and content, or `data`, alternating texts of user and assistant. Out: the last
assistant turn with its context; with `turns="all"` each assistant turn.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from spanloom.families.toolcalls.convert.dialogues import exchanges, read_messages
from spanloom.families.toolcalls.convert.drafts import Draft, Options, UnusableError
from spanloom.families.toolcalls.format.tables import RETAIN


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft | UnusableError]:
    """Yields the samples of one dialogue. Raises UnusableError if it has no assistant turn."""
    stored = record.get("messages")
    if stored is None and isinstance(record.get("data"), list):
        stored = [
            {"role": "assistant" if number % 2 else "user", "content": text}
            for number, text in enumerate(record["data"])
        ]
    name = record.get("prompt_id", record.get("id"))
    for exchange in exchanges(read_messages(stored, options), options):
        if isinstance(exchange, UnusableError):
            yield exchange
            continue
        yield Draft(
            source="ultrachat",
            id_source="ultrachat",
            split=RETAIN,
            messages=exchange.messages,
            assistant_raw=exchange.answer,
            metadata={"has_tool_calls": False, **({"original": {"id": str(name)}} if name is not None else {})},
            dropped=exchange.dropped,
        )
