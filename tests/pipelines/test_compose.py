"""The smoke run and the pipeline are one: same images, same commands, same order, and as little power."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
import yaml

from conftest import REPOSITORY, Cli
from support import declarations

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SEEDS = ("object-store", "seaweedfs", "seed", "seed-chat", "seed-traces", "seed-toolcalls", "seed-models")
STEPS = {name: service for name, service in SERVICES.items() if name not in SEEDS}
# The tokenizer and the completions only where the pipeline gives a URI that may be empty.
OPTIONAL = {"--executor-input", "--tokenizer", "--completions"}
EACH_SHARD = ("render-shard", "write-indexed", "validate-shard")
SOURCES = ("b4", "agentdojo", "tau2", "ultrachat", "xstest")


def step_of(service: str) -> str:
    of_one = r"(?<=validate-alignment)-(chat|traces|harmful|retain|models)$|(?<=export-traces)-.*$"
    return re.sub(rf"-\d\d$|{of_one}|(?<=(?:convert|okenize)-toolcalls)-.*$", "", service)


def folder_of(step: str) -> Any:
    return next(folder for folder in declarations.FOLDERS if folder.name == step.replace("-", "_"))


@pytest.mark.parametrize("service", STEPS)
def test_a_service_runs_the_command_of_its_component(service: str) -> None:
    line = STEPS[service]["command"].split()
    command, args = declarations.words(folder_of(step_of(service)))
    assert line[: len(command)] == command
    ours, theirs = declarations.flags(line), declarations.flags(args)
    assert [flag for flag in ours if flag not in theirs] == []
    # What compose leaves out are options whose defaults it takes; every path is given, in both.
    paths = [
        flag
        for flag, word in pairwise(args)
        if flag.startswith("--") and ("artifacts" in word or "_uri" in word or "_root" in word or ".path" in word)
    ]
    assert [flag for flag in paths if flag not in OPTIONAL] == [flag for flag in ours if flag in set(paths) - OPTIONAL]


def test_there_is_a_service_for_every_task_of_the_pipeline() -> None:
    shards = [f"{step}-{shard:02d}" for step in EACH_SHARD for shard in range(4)]
    shards += [f"prepare-chess-{shard:02d}" for shard in range(4)]
    single = ["verify-tokenizer", "assemble-split", "assemble-manifest", "assemble-validation"]
    chat = ["generate-chat", "pack-chat", "validate-alignment-chat"]
    chess = ["assemble-chess", "validate-chess"]
    traces = ["ingest-traces", "build-traces", "validate-traces", "tokenize-traces", "validate-alignment-traces"]
    traces += [f"export-traces-{form}" for form in ("trace", "tunix-sft", "training-example")]
    calls = [
        "validate-toolcalls",
        "merge-toolcalls",
        "audit-toolcalls",
        *(f"convert-toolcalls-{one}" for one in SOURCES),
    ]
    calls += [
        f"{step}-{split}" for step in ("tokenize-toolcalls", "validate-alignment") for split in ("harmful", "retain")
    ]
    models = ["tokenize-conversations", "validate-alignment-models"]
    assert sorted(STEPS) == sorted([*shards, *single, *chat, *chess, *traces, *calls, *models])


@pytest.mark.parametrize("service", STEPS)
def test_a_service_uses_the_image_of_its_component(service: str) -> None:
    image = declarations.component(folder_of(step_of(service))).component_spec.implementation.container.image
    assert re.sub(r"\$\{[A-Z]+:-(.*?)\}", r"\1", STEPS[service]["image"]) == image


@pytest.mark.parametrize("service", STEPS)
def test_a_service_starts_when_those_before_it_have_ended_well(service: str) -> None:
    before = {
        "verify-tokenizer": {"seed"},
        "render-shard": {"seed", "verify-tokenizer"},
        "assemble-split": {f"render-shard-0{shard}" for shard in range(4)},
        "assemble-manifest": {"assemble-split", *(f"write-indexed-0{shard}" for shard in range(4))},
        "validate-shard": {"assemble-manifest"},
        "assemble-validation": {f"validate-shard-0{shard}" for shard in range(4)},
        "generate-chat": {"seed-chat"},
        "pack-chat": {"generate-chat"},
        "validate-alignment-chat": {"pack-chat"},
        "prepare-chess": {"object-store"},
        "assemble-chess": {f"prepare-chess-0{shard}" for shard in range(4)},
        "validate-chess": {"assemble-chess"},
        "ingest-traces": {"seed-traces"},
        "build-traces": {"ingest-traces"},
        "export-traces": {"build-traces"},
        "validate-traces": {f"export-traces-{form}" for form in ("trace", "tunix-sft", "training-example")},
        "tokenize-traces": {"build-traces"},
        "validate-alignment-traces": {"tokenize-traces", "export-traces-tunix-sft"},
        "convert-toolcalls": {"seed-toolcalls"},
        "validate-toolcalls": {f"convert-toolcalls-{source}" for source in SOURCES},
        "merge-toolcalls": {"validate-toolcalls"},
        "audit-toolcalls": {"merge-toolcalls"},
        "tokenize-toolcalls": {"audit-toolcalls"},
        "validate-alignment-harmful": {"tokenize-toolcalls-harmful"},
        "validate-alignment-retain": {"tokenize-toolcalls-retain"},
        "tokenize-conversations": {"seed-models"},
        "validate-alignment-models": {"tokenize-conversations"},
    }
    before |= {f"write-indexed-0{shard}": {f"render-shard-0{shard}"} for shard in range(4)}
    waits = STEPS[service]["depends_on"]
    assert set(waits) == before[service if service in before else step_of(service)]
    for name, wait in waits.items():
        assert wait["condition"] == ("service_healthy" if name == "object-store" else "service_completed_successfully")


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_may_write_nothing_but_its_scratch(service: str) -> None:
    settings = SERVICES[service]
    assert settings["read_only"] is True
    assert settings["cap_drop"] == ["ALL"]
    assert settings["security_opt"] == ["no-new-privileges:true"]
    assert set(settings["tmpfs"]) <= {"/tmp", "/scratch"}
    assert not {"privileged", "user", "volumes", "cap_add", "pid", "network_mode"} & set(settings)


def test_a_task_list_is_run_as_it_says_and_with_as_little_power(cli: Cli) -> None:
    given = ("raw_uri=s3://b/raw", "source_uri=s3://b/source", "dataset_root=s3://b/root")
    listed = cli("tasks", "synth_raw_to_kd", *given, "--shards", 2, "--work", "s3://b/work").stdout
    program = (sys.executable, REPOSITORY / "docker/compose_of_list.py", "--prefix", "s3", "--env", "NAME=a=b")
    written = subprocess.run(program, input=listed, capture_output=True, text=True, check=True).stdout
    services: dict[str, dict[str, Any]] = json.loads(written)["services"]
    waits = {
        name.removeprefix("s3-"): {one.removeprefix("s3-") for one in of["depends_on"]} for name, of in services.items()
    }
    each = {step: {f"{step}-0", f"{step}-1"} for step in ("convert-shard", *EACH_SHARD)}
    assert waits == {
        "convert-shard-0": set(),
        "convert-shard-1": set(),
        "assemble-source": each["convert-shard"],
        "verify-tokenizer": set(),
        "render-shard-0": {"assemble-source", "verify-tokenizer"},
        "render-shard-1": {"assemble-source", "verify-tokenizer"},
        "assemble-split": each["render-shard"],
        "write-indexed-0": {"render-shard-0"},
        "write-indexed-1": {"render-shard-1"},
        "assemble-manifest": {"assemble-split", *each["write-indexed"]},
        "validate-shard-0": {"assemble-manifest", "verify-tokenizer"},
        "validate-shard-1": {"assemble-manifest", "verify-tokenizer"},
        "assemble-validation": each["validate-shard"],
    }
    for stage in json.loads(listed)["stages"]:
        for index in range(stage["count"]):
            service = services[f"s3-{stage['stage']}" + (f"-{index}" if stage["count"] > 1 else "")]
            assert service["command"] == [word.replace("{index}", str(index)) for word in stage["argv"]]
            assert service["image"] == stage["image"]
            assert service["environment"] == {"NAME": "a=b"}
            assert {wait["condition"] for wait in service["depends_on"].values()} <= {"service_completed_successfully"}
            narrow = {"read_only", "cap_drop", "security_opt", "tmpfs"}
            assert {name: service[name] for name in narrow} == {name: SERVICES["seed"][name] for name in narrow}
            assert service.keys() == {"image", "command", "environment", "depends_on", *narrow}
