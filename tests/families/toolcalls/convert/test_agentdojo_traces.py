"""AgentDojo's published traces → samples, held against the traces by a checker without the converter's code."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.sources import convert
from spanloom.families.toolcalls.format.source import files_below
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.validation import validate_files
from support.agentdojo_checker import KEYS, aim_of, first_shown, traces_of, wrong_labels, wrong_texts
from support.cases import beside, lines
from support.each import each
from support.requirements import AGENTDOJO, absent


class Run(NamedTuple):
    """The files of traces, the folder of samples made from them, and the numbers that were printed."""

    files: list[Path]
    out: Path
    numbers: dict[str, Any]

    def samples(self, split: str) -> list[dict[str, Any]]:
        return [sample for file in sorted((self.out / split).glob("*.jsonl")) for sample in lines(file)]


@pytest.fixture(scope="session")
def agentdojo_traces(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One conversion of all files, without goals, which come with no trace."""
    folder = beside("SPANLOOM_TOOLCALLS_AGENTDOJO", "families/toolcalls/agentdojo")
    files = sorted(folder.glob("*.jsonl.gz")) or absent(AGENTDOJO, f"{folder} holds none")
    out = tmp_path_factory.mktemp("agentdojo")
    numbers = convert("agentdojo", folder, out, Options(goals={})).as_dict()
    return Run(files, out, numbers)


@each("split", ["harmful", "retain"])
def test_no_sample_has_a_wrong_label(agentdojo_traces: Run, split: str) -> None:
    traces = traces_of(agentdojo_traces.files)
    wrong = {
        sample["id"]: found
        for sample in agentdojo_traces.samples(split)
        if (found := list(wrong_labels(sample, traces)))
    }
    assert not wrong


def test_no_sample_has_a_thought_or_lacks_another_text(agentdojo_traces: Run) -> None:
    traces = traces_of(agentdojo_traces.files)
    samples = [*agentdojo_traces.samples("harmful"), *agentdojo_traces.samples("retain")]
    of_each = [(sample, traces[tuple(sample["metadata"]["original"][key] for key in KEYS)]) for sample in samples]
    assert [line for sample, trace in of_each for line in wrong_texts(sample, trace)] == []
    thoughts = [
        thought
        for _, trace in of_each
        for message in trace["messages"]
        if message["role"] == "assistant"
        for thought in re.findall(r"<thinking>(.*?)</thinking>", message["content"] or "", re.DOTALL)
    ]
    assert len(thoughts) > 200
    assert (
        sum(len(re.sub(r"\s", "", thought)) for thought in thoughts)
        <= agentdojo_traces.numbers["dropped"]["reasoning"]["characters"]
    )
    # A text of a trace that keeps its thoughts is found.
    sample, trace = next(pair for pair in of_each if "<thinking>" in str(pair[1]["messages"]))
    kept = [message["content"] for message in trace["messages"] if message["role"] == "assistant"]
    spoiled = {**sample, "messages": [{"role": "assistant", "content": text or "-"} for text in kept]}
    assert list(wrong_texts(spoiled, {"messages": [*trace["messages"], {"role": "assistant", "content": "-"}]}))


def test_four_of_five_attacks_become_samples_that_succeeded_and_that_were_resisted(agentdojo_traces: Run) -> None:
    told = [trace for trace in traces_of(agentdojo_traces.files).values() if trace["metadata"]["security"] is True]
    assert len(agentdojo_traces.samples("harmful")) >= 0.79 * len(told)
    # Of traces that show an injection, are told as resisted and never name its aim again, most become samples too.
    plain = 0
    for trace in traces_of(agentdojo_traces.files).values():
        shown = first_shown(trace["messages"])
        if shown is None or trace["metadata"]["security"]:
            continue
        aim = aim_of(trace["messages"][shown]["content"])
        behind = trace["messages"][shown + 1 :]
        plain += bool(behind) and aim not in json.dumps(
            [message for message in behind if message["role"] == "assistant"]
        )
    safe = [sample for sample in agentdojo_traces.samples("retain") if sample["labels"].get("is_adversarial_safe")]
    assert len(safe) >= 0.8 * plain


def test_every_record_is_counted_once(agentdojo_traces: Run) -> None:
    records = sum(len(gzip.decompress(file.read_bytes()).splitlines()) for file in agentdojo_traces.files)
    numbers = agentdojo_traces.numbers
    assert numbers["records"] == records
    assert sum(numbers["written"].values()) + sum(numbers["left_out"].values()) == records
    assert sum(row["records"] for row in numbers["outcomes"]) == records
    told = Counter[str]()
    for row in numbers["outcomes"]:
        told[row["told"]] += row["records"]
        assert ("reason" in row) == (row["became"] == "left out")
    attacks = Counter(trace["metadata"]["security"] for trace in traces_of(agentdojo_traces.files).values())
    assert told == {
        "attack succeeded": attacks[True],
        "attack resisted": attacks[False],
        "no attack": records - attacks.total(),
    }
    # What is written passes the strictest check.
    files = [file for file in files_below(agentdojo_traces.out) if file.path.stat().st_size]
    assert not validate_files(files, Rules(require_system=True)).errors


def test_the_checker_finds_each_wrong_label(agentdojo_traces: Run) -> None:
    """A harmful sample told as safe, a safe one without the injection, a call of another turn: each is found."""
    traces = traces_of(agentdojo_traces.files)
    harmful = agentdojo_traces.samples("harmful")[0]
    safe = next(sample for sample in agentdojo_traces.samples("retain") if sample["labels"].get("is_adversarial_safe"))
    swapped = {**harmful, "labels": {"split": "retain", "is_adversarial_safe": True, "security": True}}
    unshown = {**safe, "messages": [message for message in safe["messages"] if message["role"] != "tool"]}
    evidence = harmful["metadata"]["evidence"]
    moved = {**evidence, "call": {**evidence["call"], "message": 2, "call": 0}}
    other_turn = {**harmful, "metadata": {**harmful["metadata"], "evidence": moved}}
    for sample in (swapped, unshown, other_turn):
        assert list(wrong_labels(sample, traces))
