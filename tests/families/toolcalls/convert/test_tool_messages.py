"""Samples of tau-bench's runs and of OpenAI messages, held against the records by a checker without the converters.

The published runs are read where they are at hand ($SPANLOOM_TAU_RUNS); the small ones below always.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.sources import Converted, convert
from support import tool_messages_checker as checker
from support.cases import beside, lines
from support.requirements import TAU_RUNS, absent

Record = dict[str, Any]


def call(number: int, name: str, arguments: Any) -> Record:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


HELLO = [{"role": "system", "content": "Follow the policy."}, {"role": "user", "content": "Cancel my flight."}]
OTHERS = [HELLO[0], {"role": "user", "content": "Cancel my flights."}]
SHORT_RUN: list[Record] = [
    {"role": "assistant", "content": None, "tool_calls": [call(1, "find", '{"user": "mia", "n": 1}')]},
    {"role": "tool", "tool_call_id": "call_1", "name": "find", "content": ""},
    {"role": "tool", "tool_call_id": "call_2", "requestor": "user", "content": "the user's own"},
    {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "the other."}]},
    {
        "role": "assistant",
        "content": "Both.",
        "tool_calls": [call(3, "cancel", {"text": "a <|eom_id|> within"}), call(4, "cancel", '{"id": "é"}')],
    },
    {"role": "tool", "tool_call_id": "call_3", "content": "done"},
    {"role": "assistant", "content": "They are cancelled."},
]
SMALL: list[Record] = [
    {"task_id": 0, "trial": 0, "reward": 1.0, "info": {}, "traj": [*HELLO, *SHORT_RUN]},
    {"task_id": 1, "trial": 0, "reward": 0.0, "info": {}, "traj": [*OTHERS, *SHORT_RUN]},
    {"task_id": 2, "trial": 0, "reward": 0.5, "info": {}, "traj": [*HELLO, SHORT_RUN[-1]]},
]


@pytest.fixture(params=["small", "published"])
def runs(request: pytest.FixtureRequest) -> list[Record]:
    if request.param == "small":
        return deepcopy(SMALL)
    path = beside("SPANLOOM_TAU_RUNS", "families/toolcalls/tau") / "gpt-4o-airline.json"
    return list(json.loads(path.read_bytes())) if path.is_file() else absent(TAU_RUNS, f"{path} is not there")


def converted(source: Any, records: list[Record], folder: Path, **options: Any) -> tuple[Converted, list[Record]]:
    """What a conversion counts, and its samples."""
    folder.mkdir()
    (folder / "in.json").write_text(json.dumps(records))
    done = convert(source, folder / "in.json", folder / "out", Options(**options))
    files = sorted(folder.glob("out/*/*.jsonl"))
    return done, [sample for file in files for sample in lines(file)]


def by_record(samples: list[Record], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Record]]]:
    """The samples of each record, by the keys of its `metadata.original`."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for sample in samples:
        groups.setdefault(tuple(sample["metadata"]["original"][key] for key in keys), []).append(sample)
    return iter(groups.items())


def all_accounted_for(done: Converted, of_each: list[int]) -> None:
    """Each answer is a sample, or a duplicate of one: runs that went alike up to an answer."""
    assert set(done.left_out) <= {"duplicate"}
    assert done.written.total() + done.left_out["duplicate"] == sum(of_each)


@pytest.mark.parametrize("every", [False, True])
def test_runs_of_tau(runs: list[Record], tmp_path: Path, every: bool) -> None:
    done, samples = converted("tau2", runs, tmp_path / "all", turns="all" if every else "last")
    made = dict(by_record(samples, "task_id", "trial"))
    assert [
        line for run in runs for line in checker.wrong_run(made[run["task_id"], run["trial"]], run, every=every)
    ] == []
    all_accounted_for(done, [len(checker.answers(run["traj"], calling=True, every=every)) for run in runs])


@pytest.mark.parametrize("least", [0.5, 1.0])
def test_runs_of_tau_with_a_reward(runs: list[Record], tmp_path: Path, least: float) -> None:
    done, samples = converted("tau2", runs, tmp_path / "some", min_reward=least)
    enough = {(run["task_id"], run["trial"]) for run in runs if run["reward"] >= least}
    assert {key for key, _ in by_record(samples, "task_id", "trial")} == enough
    assert dict(done.left_out) == {"reward below --min-reward": len(runs) - len(enough)}


@pytest.mark.parametrize("every", [False, True])
def test_messages_of_ones_own(runs: list[Record], tmp_path: Path, every: bool) -> None:
    records = [
        {
            "id": f"{run['task_id']}/{run['trial']}",
            "split": "retain",
            "tools": [{"type": "function", "function": {"name": "cancel"}}],
            # The tools of the simulated user are tau's alone.
            "messages": [message for message in run["traj"] if "requestor" not in message],
        }
        for run in runs
    ]
    called = max(at for at, message in enumerate(records[0]["messages"]) if message.get("tool_calls"))
    name = records[0]["messages"][called]["tool_calls"][-1]["function"]["name"]
    flip = {"expected_tool": "other", "simulated_tool": name, "observed_tool": name, "is_flip_success": True}
    flipped = {**records[0], **flip, "id": "flipped", "split": "harmful"}
    flipped["messages"] = [{"role": "system", "content": "Another."}, *flipped["messages"][1 : called + 1]]
    if not every:  # the labels are of the last turn, so only that one is harmful
        records.append(flipped)
    done, samples = converted("messages", records, tmp_path / "own", turns="all" if every else "last")
    made = dict(by_record(samples, "id"))
    assert [line for one in records for line in checker.wrong_own(made[(one["id"],)], one, every=every)] == []
    all_accounted_for(done, [len(checker.answers(one["messages"], calling=False, every=every)) for one in records])


SPOILED: dict[str, Callable[[Record], None]] = {
    "a message less": lambda sample: sample["messages"].pop(1),
    "another text": lambda sample: sample["messages"][1].update(content="Cancel no flight."),
    "another argument": lambda sample: sample.update(assistant_raw=sample["assistant_raw"].replace("within", "beside")),
    "a call less": lambda sample: sample.update(
        assistant_raw=sample["assistant_raw"][: sample["assistant_raw"].rindex("<|python_tag|>")]
    ),
    "no JSON": lambda sample: sample.update(assistant_raw=sample["assistant_raw"].replace("{", "(")),
    "another turn": lambda sample: sample.update(assistant_raw="They are cancelled."),
    "another reward": lambda sample: sample["metadata"]["original"].update(reward=0.5),
    "another split": lambda sample: sample["labels"].update(split="harmful"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_the_checker_finds(tmp_path: Path, name: str) -> None:
    _, (sample, *_) = converted("tau2", SMALL, tmp_path / "made")
    assert list(checker.wrong_run([sample], SMALL[0])) == []
    SPOILED[name](sample)
    assert list(checker.wrong_run([sample], SMALL[0])) != []
