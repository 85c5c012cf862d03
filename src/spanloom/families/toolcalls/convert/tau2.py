"""τ-bench and τ²-bench: simulations of an agent that serves a customer with tools.

In: a record with `messages` (or `traj`), `task_id`, `reward_info`, and its run's `info.environment_info` with
`domain_name` and `policy`. Out: for each simulation the last turn that calls a tool, or the last turn if none does;
with `turns="all"` each assistant turn. The policy is the system text of a simulation without one.

The agent never sees the calls of the user simulator's own tools and their results, so they are left out and counted.

τ²-bench writes a run as one file, `{"info": …, "simulations": […]}`, or as a folder:

    results.json            info, tasks, and perhaps an index of the simulations
    simulations/ID.json     one simulation each
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from spanloom.conversations.reading.flags import is_truncated
from spanloom.conversations.reading.messages import CALL_KEYS, REASONING_KEYS
from spanloom.conversations.turns import Dropping
from spanloom.families.toolcalls.convert.dialogues import as_called, exchanges, read_messages
from spanloom.families.toolcalls.convert.drafts import Draft, Options, UnusableError
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.tables import RETAIN, mapping
from spanloom.records.json_lines import unique_keys
from spanloom.records.scalars import is_number

TOOLS = "tau2_native"
USERS_TOOLS = "tools of the user"
"""The name under which what is left out of the context is counted."""
RESULTS, SIMULATIONS = "results.json", "simulations"

_METADATA = frozenset(
    {
        "turn_idx", "timestamp", "cost", "usage", "raw_data", "generation_time_seconds", "requestor", "error",
        "is_audio", "audio_format", "audio_content", "audio_path", "audio_script_gold", "speech_effects",
        "source_effects", "channel_effects", "turn_taking_action", "utterance_ids", "chunk_id", "source",
        "is_final_chunk", "contains_speech",
    }
)  # fmt: skip
"""Keys of τ²-bench's messages that are no part of the conversation."""


def simulations(file: Path, where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Place and record of each simulation in a value of a file; of a missing one, an error as its record."""
    if not isinstance(value, dict):
        yield where, value
    elif isinstance(value.get("simulations"), list):
        for number, item in enumerate(value["simulations"], start=1):
            record = {**item, "info": value.get("info")} if isinstance(item, dict) else item
            yield f"{file}, simulation {number}", record
    elif is_run_folder(file) and "info" in value:
        index = value.get("simulation_index")
        for entry in index if isinstance(index, list) else []:
            name = entry.get("id") if isinstance(entry, dict) else None
            if not (file.parent / SIMULATIONS / f"{name}.json").is_file():
                detail = f"{SIMULATIONS}/{name}.json, which the index names, is missing"
                yield where, UnusableError("no file of the simulation", detail=detail)
    elif file.parent.name == SIMULATIONS and (info := _info_beside(file)) is not None:
        yield where, {**value, "info": info}
    else:
        yield where, value


def is_run_folder(file: Path) -> bool:
    """Whether a file is the `results.json` of a run that is stored as a folder."""
    return file.name == RESULTS and (file.parent / SIMULATIONS).is_dir()


def _info_beside(simulation: Path) -> Any:
    """The facts about a run in the `results.json` beside its simulations; None if none can be read there."""
    results = simulation.parent.parent / RESULTS
    return _info_of(results, results.stat().st_mtime_ns) if results.is_file() else None


@lru_cache(maxsize=8)
def _info_of(results: Path, _written: int) -> Any:
    """The same, read once for all simulations of a run."""
    try:
        value = unique_keys(results.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value.get("info") if isinstance(value, dict) else None


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft | UnusableError]:
    """Yields the samples of a simulation. Raises UnusableError without an assistant turn, or for too small a reward."""
    stored = record.get("messages", record.get("traj"))
    users_own = Dropping()
    if isinstance(stored, list):
        stored = [_message(message, users_own) for message in stored]
    elif stored is None and record.get("ticks"):
        raise UnusableError("no messages", detail="a run of speech holds ticks, and no messages")
    dialogue = read_messages(stored, options, metadata=_METADATA)
    for name, times in users_own.counts.items():
        dialogue.dropped.counts[name] += times
        dialogue.dropped.characters[name] += users_own.characters[name]
    environment = mapping(mapping(record, "info"), "environment_info")
    policy = record.get("policy") or environment.get("policy")
    has_system = any(message["role"] == "system" for message in dialogue.messages)
    system = [{"role": "system", "content": policy}] if isinstance(policy, str) and policy.strip() else []
    domain, task = environment.get("domain_name", record.get("domain")), record.get("task_id")
    domain = domain if isinstance(domain, str) else None
    reward = record.get("reward_info")
    reward = reward.get("reward") if isinstance(reward, dict) else record.get("reward")
    if options.min_reward is not None and not (is_number(reward) and reward >= options.min_reward):
        raise UnusableError("reward below --min-reward")
    about = {"domain": domain, "task_id": task, "trial": record.get("trial"), "reward": reward}
    for exchange in exchanges(dialogue, options, calling=True):
        if isinstance(exchange, UnusableError):
            yield exchange
            continue
        yield Draft(
            source="tau2",
            id_source="tau2",
            split=RETAIN,
            messages=exchange.messages if has_system else [*system, *exchange.messages],
            assistant_raw=exchange.answer,
            tools=TOOLS,
            metadata={
                "has_tool_calls": PYTHON_TAG in exchange.answer,
                "original": {key: value for key, value in about.items() if value is not None},
            },
            hashed={"domain": domain, "task_id": task},
            dropped=exchange.dropped,
        )


def _message(message: Any, users_own: Dropping) -> Any:
    """A message in OpenAI's form; None for one that the agent does not see, or that says nothing."""
    if not isinstance(message, dict):
        return message
    keys, role = dict(message), message.get("role")
    if role == "tool" and keys.get("requestor") == "user":
        users_own.count(USERS_TOOLS, keys.get("content") or "")
        return None
    if role == "user" and keys.get("tool_calls"):
        users_own.count(USERS_TOOLS, keys.pop("tool_calls"))
    if role == "tool" and "tool_call_id" not in keys:
        keys["tool_call_id"] = keys.pop("id", None)
    if keys.get("tool_calls"):
        keys["tool_calls"] = as_called(keys["tool_calls"], "requestor")
    if _is_cut_off(keys.get("raw_data")):
        keys["finish_reason"] = "length"
    silent = role in ("user", "assistant") and not any(keys.get(key) for key in _SPEAKING)
    return None if silent else keys


_SPEAKING = ("content", "tool_calls", *CALL_KEYS, *REASONING_KEYS)


def _is_cut_off(raw: Any) -> bool:
    """Whether the server's answer, or its first choice, says that a limit of tokens cut it off."""
    choices = raw.get("choices") if isinstance(raw, dict) else None
    answers = [raw, *(choices[:1] if isinstance(choices, list) else [])]
    return any(isinstance(answer, dict) and is_truncated(answer) for answer in answers)
