"""Runs of SWE-agent and OpenHands, as published.

In: a record with a list of messages under `trajectory`, or under `history` next to a `trajectory` of steps. Out: these
messages. A system message may have its text under `system_prompt`; roles are `system`, `user` and `ai`, or OpenAI's.
"""

from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, listed, objects
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.messages import ROLE_KEYS, TEXT_KEYS
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing

NAMES = {
    "id": ("id", "trajectory_id", "traj_id", "uuid"),
    "run": ("trajectory", "history"),
    "query": (),
}


def _key(record: Mapping[str, Any], names: KeyMap) -> str | None:
    """The key of the run: the first whose value is a list of messages."""
    if not names.found("run", record) or "trajectory" not in record:
        return None
    for key in NAMES["run"]:
        first = next(objects(record.get(key)), {})
        if any(name in first for name in ROLE_KEYS):
            return key
    return None


def _draft(taken: Taken) -> Draft:
    held = {**taken.left, **dict(zip(taken.keys["run"], taken.values["run"], strict=True))}
    key = _key(held, taken.names)
    if key is None:
        value = taken.one("run")
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the trajectory is {kind(value)} without messages")
    run = listed(held[key])
    taken.left.update({other: value for other, value in held.items() if other != key})
    taken.left.pop(key, None)
    return Draft(messages=[_message(message) for message in run])


def _message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    keys = dict(message)
    text = keys.pop("system_prompt", None)
    if not says_nothing(text):
        if any(not says_nothing(keys.get(name)) for name in TEXT_KEYS):
            return message
        return {**keys, "content": text}
    return keys


TRAJECTORIES = FormKind(
    name="trajectories",
    title="runs of an agent, as messages under trajectory or history (SWE-agent, OpenHands)",
    meanings=("id", "run", "tools"),
    recognises=lambda record, names: _key(record, names) is not None,
    draft=_draft,
    names=NAMES,
)
