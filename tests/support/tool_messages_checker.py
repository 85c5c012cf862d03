"""Samples made of OpenAI messages with tool calls, and of runs of tau-bench, held against the records themselves.

In: the records as they were published, and the samples made of them. Out: what is wrong, as lines.

It imports nothing of the converters and goes the other way: the texts of a sample are read back into what was said and
called, and compared with the messages of the record, from the last backwards.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Message = dict[str, Any]
CALL = re.compile(r"<\|python_tag\|>(.*?)<\|eom_id\|>(?=<\|python_tag\|>|$)", re.DOTALL)


class Said(NamedTuple):
    """A message as its reader takes it: who, the text, and the calls as names and arguments."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...]


def said_in_record(message: Message) -> Said:
    """Of a message of the record; arguments as JSON text with sorted keys."""
    calls = []
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        calls.append((call["function"]["name"], json.dumps(arguments, sort_keys=True)))
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content if part.get("text"))
    return Said(message["role"], content or "", tuple(calls) if message["role"] == "assistant" else ())


def said_in_sample(role: str, text: str) -> Said:
    """Of a text of the sample. Raises ValueError where a call in it is no JSON."""
    if role != "assistant":
        return Said(role, text, ())
    calls = [json.loads(part) for part in CALL.findall(text)]
    named = tuple((call["name"], json.dumps(call["parameters"], sort_keys=True)) for call in calls)
    return Said(role, text.split("<|python_tag|>")[0], named)


def heard(record: Sequence[Message]) -> list[Said]:
    """The messages of a record that say or call anything, but what the simulated user's own tools answered."""
    every = [said_in_record(message) for message in record if message.get("requestor", "assistant") != "user"]
    return [message for message in every if message.text.strip() or message.calls]


def answers(record: Sequence[Message], *, calling: bool, every: bool) -> list[int]:
    """Which of `heard` are to be learned: each assistant turn, or the last; with `calling` the last that calls."""
    turns = [at for at, message in enumerate(heard(record)) if message.role == "assistant" and at > 0]
    if every or not turns:
        return turns
    with_calls = [at for at in turns if heard(record)[at].calls]
    return [max(with_calls)] if calling and with_calls else [max(turns)]


def wrong_turns(
    samples: Sequence[dict[str, Any]], record: Sequence[Message], *, calling: bool = False, every: bool = False
) -> Iterator[str]:
    """What is wrong with the turns of the samples of one record.

    Which answer a sample is of follows from how many messages it has; one that another record gave too may be missing.
    """
    known = heard(record)
    wanted = answers(record, calling=calling, every=every)
    for sample in samples:
        texts = [(message["role"], message["content"]) for message in sample["messages"]]
        try:
            shown = [said_in_sample(*each) for each in [*texts, ("assistant", sample["assistant_raw"])]]
        except ValueError as fault:
            yield f"{sample['id']}: a call cannot be read: {fault}"
            continue
        if sample["metadata"].get("system_given"):
            shown = shown[1:]
        answer = len(shown) - 1
        if answer not in wanted:
            yield f"{sample['id']}: it ends in message {answer} of the record, whose answers are {wanted}"
            continue
        wanted.remove(answer)
        for back, (ours, theirs) in enumerate(zip(shown[::-1], known[answer::-1], strict=True), start=1):
            if ours != theirs:
                yield f"{sample['id']}: message {back} from the end is {ours}, in the record it is {theirs}"


def wrong_run(samples: Sequence[dict[str, Any]], record: dict[str, Any], *, every: bool = False) -> Iterator[str]:
    """What is wrong with the samples of one run of tau-bench."""
    yield from wrong_turns(samples, record.get("traj", record.get("messages")), calling=True, every=every)
    for sample in samples:
        original, stated = sample["metadata"]["original"], {key: record[key] for key in ("task_id", "trial", "reward")}
        if original != stated:
            yield f"{sample['id']}: the metadata says {original}, the record {stated}"
        if sample["labels"] != {"split": "retain"} or sample["tools"] != "tau2_native":
            yield f"{sample['id']}: a run is to be retained, with the tools of its domain"


def wrong_own(samples: Sequence[dict[str, Any]], record: dict[str, Any], *, every: bool = False) -> Iterator[str]:
    """What is wrong with the samples of one record of a user's own, whose labels are all in its columns."""
    yield from wrong_turns(samples, record["messages"], every=every)
    named = ("split", "expected_tool", "simulated_tool", "observed_tool", "is_flip_success")
    stated = {key: record[key] for key in named if key in record}
    for sample in samples:
        if sample["labels"] != stated:
            yield f"{sample['id']}: the labels are {sample['labels']}, the record says {stated}"
        if "tools" in record and sample["tools"] != record["tools"]:
            yield f"{sample['id']}: other tools than the record's"
