"""τ²-bench's runs, as one file and as a folder: the policy of a run is the system text, the domain and reward are kept.

The published runs of tau-bench are rewritten as τ²-bench stores them, and held against the originals by a checker
without the converters.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from families.toolcalls.conftest import Run
from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.sources import Converted, convert
from support import tool_messages_checker as checker
from support.cases import beside, cases_of, lines
from support.requirements import TAU_RUNS, absent

Record = dict[str, Any]

REPORTS = cases_of("reports")
POLICY = {"role": "system", "content": "# Policy\nHelp with phones."}
"""The policy of the two inputs."""


def made(place: Path, tmp_path: Path, **options: Any) -> tuple[Converted, list[Record]]:
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    done = convert("tau2", place, out, Options(**options))
    return done, lines(out / "retain/tau2.jsonl")


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def test_the_policy_of_a_run_is_its_system_text(tmp_path: Path) -> None:
    done, (sample,) = made(REPORTS / "tau2_policy.json", tmp_path)
    assert (done.records, dict(done.left_out), done.systems_given) == (1, {}, 0)
    assert sample["messages"][0] == POLICY
    assert sample["metadata"]["original"] == {"domain": "telecom", "task_id": "1", "trial": 0, "reward": 1.0}
    # Two calls in one message; what only the simulated user called and saw is not there, and is counted.
    assert sample["assistant_raw"] == (
        'Let me check two things.<|python_tag|>{"name": "get_line", "parameters": {"id": "L1"}}<|eom_id|>'
        '<|python_tag|>{"name": "get_bill", "parameters": {"id": "B1"}}<|eom_id|>'
    )
    assert "Mobile data is now ON." not in json.dumps(sample)
    assert done.dropped["tools of the user"][0] == 2


@pytest.mark.parametrize("given", ["", "results.json", "simulations"])
def test_a_run_stored_as_a_folder(tmp_path: Path, given: str) -> None:
    done, samples = made(REPORTS / "tau2_dir" / given, tmp_path)
    assert (done.records, dict(done.left_out), done.not_read) == (2, {}, [])
    assert [sample["messages"][0] for sample in samples] == [POLICY] * 2
    assert [sample["metadata"]["original"] for sample in samples] == [
        {"domain": "telecom", "task_id": task, "trial": 0, "reward": 1.0} for task in ("1", "2")
    ]


def test_a_simulation_without_its_file_is_counted(tmp_path: Path) -> None:
    shutil.copytree(REPORTS / "tau2_dir", tmp_path / "run")
    (tmp_path / "run/simulations/s2.json").unlink()
    done, samples = made(tmp_path / "run", tmp_path)
    assert (done.records, dict(done.left_out), len(samples)) == (2, {"no file of the simulation": 1}, 1)
    (reject,) = lines(tmp_path / "out/rejects/tau2.ndjson")
    assert reject["detail"] == "simulations/s2.json, which the index names, is missing"


def test_a_folder_without_an_index_and_a_run_of_speech(tmp_path: Path) -> None:
    """τ²-bench's own test data: a folder of runs of speech, which have ticks, and no index."""
    run = json.loads((REPORTS / "tau2_dir/results.json").read_bytes())
    written(tmp_path / "run/results.json", {key: run[key] for key in ("timestamp", "info", "tasks")})
    simulation = json.loads((REPORTS / "tau2_dir/simulations/s1.json").read_bytes())
    written(tmp_path / "run/simulations/a.json", simulation)
    written(tmp_path / "run/simulations/b.json", {**simulation, "id": "b", "messages": None, "ticks": [{}]})
    done, (sample,) = made(tmp_path / "run", tmp_path)
    assert (done.records, dict(done.left_out)) == (2, {"no messages": 1})
    assert sample["messages"][0] == POLICY


def test_a_simulation_has_a_policy_of_its_own_or_a_system_message(tmp_path: Path) -> None:
    run = json.loads((REPORTS / "tau2_policy.json").read_bytes())
    (simulation,) = run["simulations"]
    own = {**simulation, "task_id": "2", "policy": "Own policy."}
    stored = {
        **simulation,
        "task_id": "3",
        "messages": [{"role": "system", "content": "Stored."}, *simulation["messages"]],
    }
    place = written(tmp_path / "results.json", {**run, "simulations": [simulation, own, stored]})
    _, samples = made(place, tmp_path, system="of the option")
    assert [sample["messages"][0]["content"] for sample in samples] == [POLICY["content"], "Own policy.", "Stored."]
    assert not any("system_given" in sample["metadata"] for sample in samples)


def test_a_null_that_the_model_wrote_stays(tmp_path: Path) -> None:
    value = json.loads((REPORTS / "tau2_policy.json").read_bytes())
    value["simulations"][0]["messages"][8]["tool_calls"][1]["arguments"] = {"id": None}
    _, (sample,) = made(written(tmp_path / "results.json", value), tmp_path)
    assert sample["assistant_raw"].endswith('<|python_tag|>{"name": "get_bill", "parameters": {"id": null}}<|eom_id|>')


def test_without_a_policy_the_remedy_names_system(tmp_path: Path, run: Run) -> None:
    value = json.loads((REPORTS / "tau2_policy.json").read_bytes())
    del value["info"]["environment_info"]["policy"]
    place = written(tmp_path / "results.json", value)
    ended = run("convert", "--from", "tau2", "--input", place, "--out", tmp_path / "out")
    assert json.loads(ended.out)["left_out"] == {"M3": 1}
    assert "--system TEXT|FILE" in ended.err
    ended = run("convert", "--from", "tau2", "--input", place, "--out", tmp_path / "given", "--system", "S")
    assert json.loads(ended.out)["written"]["retain"] == 1


@pytest.mark.parametrize(
    "raw", [{"finish_reason": "length"}, {"choices": [{"finish_reason": "length", "message": {}}], "model": "m"}]
)
def test_an_answer_that_was_cut_off_is_left_out(tmp_path: Path, raw: Record) -> None:
    value = json.loads((REPORTS / "tau2_policy.json").read_bytes())
    value["simulations"][0]["messages"][8]["raw_data"] = raw
    done, samples = made(written(tmp_path / "results.json", value), tmp_path)
    assert (samples, dict(done.left_out)) == ([], {"truncated": 1})


def as_tau2(run: Record) -> Record:
    """A run of tau-bench as a simulation of τ²-bench: the system text as its policy, calls and results in its form."""
    messages = []
    for number, message in enumerate(run["traj"][1:]):
        about = {"turn_idx": number, "timestamp": "t", "cost": 0.0, "usage": None, "raw_data": None}
        calls = [
            {
                "id": call["id"],
                "name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"]),
                "requestor": "assistant",
            }
            for call in message.get("tool_calls") or ()
        ]
        if message["role"] == "tool":
            keys = {
                "id": message["tool_call_id"],
                "content": message["content"],
                "requestor": "assistant",
                "error": False,
            }
        else:
            keys = {"content": message["content"], "tool_calls": calls or None}
        messages.append({"role": message["role"], **keys, **about})
    reward = {"reward": run["reward"]}
    return {"id": f"{run['task_id']}-{run['trial']}", "task_id": run["task_id"], "trial": run["trial"],
            "reward_info": reward, "policy": run["traj"][0]["content"], "messages": messages}  # fmt: skip


@pytest.mark.parametrize("stored", ["file", "folder"])
def test_published_runs_in_both_formats(tmp_path: Path, stored: str) -> None:
    path = beside("SPANLOOM_TAU_RUNS", "families/toolcalls/tau") / "gpt-4o-airline.json"
    runs = json.loads(path.read_bytes()) if path.is_file() else absent(TAU_RUNS, f"{path} is not there")
    simulations = [as_tau2(run) for run in runs]
    about: Record = {"info": {"environment_info": {"domain_name": "airline"}}, "tasks": []}
    if stored == "file":
        written(tmp_path / "run/results.json", {**about, "simulations": simulations})
    else:
        index = [{"id": simulation["id"]} for simulation in simulations]
        written(tmp_path / "run/results.json", {**about, "simulation_index": index})
        for simulation in simulations:
            written(tmp_path / f"run/simulations/{simulation['id']}.json", simulation)
    done, samples = made(tmp_path / "run", tmp_path, turns="all")
    assert set(done.left_out) <= {"duplicate"}
    of_run: dict[Any, list[Record]] = {}
    for sample in samples:
        assert sample["metadata"]["original"].pop("domain") == "airline"
        key = sample["metadata"]["original"]["task_id"], sample["metadata"]["original"]["trial"]
        of_run.setdefault(key, []).append(sample)
    wrong = [
        line
        for run in runs
        for line in checker.wrong_run(of_run.get((run["task_id"], run["trial"]), []), run, every=True)
    ]
    assert wrong == []
    answers = sum(len(checker.answers(run["traj"], calling=True, every=True)) for run in runs)
    assert done.written.total() + done.left_out["duplicate"] == answers


def test_a_system_message_is_read_from_a_file_that_ends(tmp_path: Path, run: Run) -> None:
    value = json.loads((REPORTS / "tau2_policy.json").read_bytes())
    del value["info"]["environment_info"]["policy"]
    place = written(tmp_path / "results.json", value)
    (tmp_path / "system.txt").write_text("From a file.")
    os.mkfifo(tmp_path / "waits")
    ended = run(
        "convert", "--from", "tau2", "--input", place, "--out", tmp_path / "a", "--system", tmp_path / "system.txt"
    )
    assert ended.code == 0
    assert "From a file." in (tmp_path / "a/retain/tau2.jsonl").read_text()
    for number, wrong in enumerate(("waits", ".")):
        system = ("--system", tmp_path / wrong)
        ended = run("convert", "--from", "tau2", "--input", place, "--out", tmp_path / f"b{number}", *system)
        assert ended.code == 1
        assert "not a file" in ended.err
