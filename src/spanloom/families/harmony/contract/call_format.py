"""How the header of a call is written: as the model emits it, and as servers show it in the history.

In: messages of a Harmony conversation. Out: the same messages; a call whose header changes is another object. Pure.

    emitted   <|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>
    served    <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>

`constrain` writes every call as it is in the conversation (in `conversations_v1`: `<|constrain|>json`). `json` writes
the served header everywhere. `as-served` writes the emitted header in the run that the model samples, and the served
header in the history before that run.
"""

from typing import Any

CALL_FORMATS = ("constrain", "json", "as-served")
CONSTRAIN = "<|constrain|>"


def served(message: dict[str, Any]) -> dict[str, Any]:
    """A message as servers show it; the same object if nothing changes."""
    kind = message.get("content_type")
    if message["role"] != "assistant" or message.get("recipient") is None or not isinstance(kind, str):
        return message
    if not kind.startswith(CONSTRAIN):
        return message
    return {**message, "content_type": kind.removeprefix(CONSTRAIN)}


def emitted_and_served(
    messages: list[dict[str, Any]], call_format: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages of a conversation as runs emit them, and as later runs see them in their history.

    A message that does not differ is the same object in both lists. Both lists are one object unless with `as-served`.
    """
    if call_format == "constrain":
        return messages, messages
    shown = [served(message) for message in messages]
    return (shown if call_format == "json" else messages), shown
