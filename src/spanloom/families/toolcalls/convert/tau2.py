"""TAU2: simulations of an agent that serves a customer with tools.

In: a record with `messages` (or `traj`), `task_id`, `reward_info`, `info.environment_info.domain_name`. Out: for each
simulation the last turn that calls a tool, or the last turn if none does; with `turns="all"` each assistant turn.

The agent never sees the results of the user simulator's own tools, so they are removed from the context.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from spanloom.families.toolcalls.convert.drafts import Draft, Options
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.tables import RETAIN
from spanloom.families.toolcalls.format.turns import UnusableError, answers_of, turns
from spanloom.records.scalars import is_number

TOOLS = "tau2_native"


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft]:
    """Yields the samples of a simulation. Raises UnusableError without an assistant turn, or for too small a reward."""
    stored = record.get("messages", record.get("traj"))
    if isinstance(stored, list):
        of_user = {"role": "tool", "requestor": "user"}.items()
        stored = [message for message in stored if not (isinstance(message, dict) and of_user <= message.items())]
    messages = turns(stored)
    answers = answers_of(messages)
    if options.turns == "last":
        called = [number for number in answers if PYTHON_TAG in messages[number]["content"]]
        answers = (called or answers)[-1:]
    domain, task = _domain(record), record.get("task_id")
    reward = record.get("reward_info")
    reward = reward.get("reward") if isinstance(reward, dict) else record.get("reward")
    if options.min_reward is not None and not (is_number(reward) and reward >= options.min_reward):
        raise UnusableError("reward below --min-reward")
    about = {"domain": domain, "task_id": task, "trial": record.get("trial"), "reward": reward}
    for answer in answers:
        raw = messages[answer]["content"]
        yield Draft(
            source="tau2",
            id_source="tau2",
            split=RETAIN,
            messages=messages[:answer],
            assistant_raw=raw,
            tools=TOOLS,
            metadata={
                "has_tool_calls": PYTHON_TAG in raw,
                "original": {key: value for key, value in about.items() if value is not None},
            },
            hashed={"domain": domain, "task_id": task},
        )


def _domain(record: Mapping[str, Any]) -> str | None:
    place: Any = record
    for key in ("info", "environment_info", "domain_name"):
        place = place.get(key) if isinstance(place, dict) else None
    domain = place if place is not None else record.get("domain")
    return domain if isinstance(domain, str) else None
