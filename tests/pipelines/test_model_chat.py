"""The pipeline for any model: two tasks, of which the second validates what the first has published."""

from typing import Any

import pytest
import yaml

from conftest import REPOSITORY
from spanloom.families.models import defaults
from support.declarations import as_text


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    spec, _ = yaml.safe_load_all((REPOSITORY / "pipelines/model_chat.yaml").read_text())
    return dict(spec["root"])


@pytest.fixture(scope="module")
def tasks(committed: dict[str, Any]) -> dict[str, Any]:
    return {task["taskInfo"]["name"]: task for task in committed["dag"]["tasks"].values()}


def test_validation_comes_after_the_tokens_and_reads_the_same_source(tasks: dict[str, Any]) -> None:
    assert sorted(tasks) == ["tokenize-conversations", "validate-alignment"]
    inputs = tasks["validate-alignment"]["inputs"]
    assert tasks["validate-alignment"]["dependentTasks"] == ["tokenize-conversations"]
    assert sorted(inputs["artifacts"]) == ["dataset", "tokenizer"]
    assert inputs["parameters"]["source_uri"] == tasks["tokenize-conversations"]["inputs"]["parameters"]["source_uri"]
    for name, task in tasks.items():
        assert not task.get("cachingOptions", {}).get("enableCache", False), f"{name} publishes"
        assert task["retryPolicy"]["maxRetryCount"] >= 1, name


def test_every_parameter_of_the_pipeline_reaches_the_step(committed: dict[str, Any], tasks: dict[str, Any]) -> None:
    handed = tasks["tokenize-conversations"]["inputs"]["parameters"]
    named = {
        name: each["componentInputParameter"] for name, each in handed.items() if "componentInputParameter" in each
    }
    named = {name: parameter for name, parameter in named.items() if not name.startswith("pipelinechannel--")}
    sizes = {"tokenize_cpu", "tokenize_memory", "validate_memory"}
    assert named == {name: name for name in committed["inputDefinitions"]["parameters"].keys() - sizes - {"deep"}}


def test_defaults_are_those_of_the_command(committed: dict[str, Any]) -> None:
    parameters, constants = committed["inputDefinitions"]["parameters"], defaults
    needed = {name for name, said in parameters.items() if not said.get("isOptional")}
    assert needed == {"source_uri", "model_uri", "dataset_root"}
    values = {name: said["defaultValue"] for name, said in parameters.items() if name not in needed}
    first = {"thinking": constants.THINKING[0], "boundary": constants.BOUNDARY[0]}
    same = ("train", "valid_fraction", "max_rejects", "on_duplicate", "deep")
    wanted = {**first, **{name: getattr(constants, name.upper()) for name in same}}
    wanted |= {name: as_text(getattr(constants, name.upper())) for name in ("max_rows", "max_rows_per_shard")}
    assert {name: values[name] for name in wanted} == wanted
