"""The packed chat pipeline: three tasks in a row, each retried, none cached; the first family's validation."""

from typing import Any

import pytest
import yaml

from conftest import REPOSITORY
from spanloom.families.chat import task_list


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    spec, _ = yaml.safe_load_all((REPOSITORY / "pipelines/packed_chat.yaml").read_text())
    return dict(spec)


def test_the_graph_is_the_chain_that_its_module_draws(committed: dict[str, Any]) -> None:
    (drawn,) = (line for line in (task_list.__doc__ or "").splitlines() if "─►" in line)
    chain = [step.strip() for step in drawn.split("─►")]
    assert chain[-1] == "validate-alignment"
    tasks = committed["root"]["dag"]["tasks"]
    before = {task["taskInfo"]["name"]: task.get("dependentTasks", []) for task in tasks.values()}
    names = {key: task["taskInfo"]["name"] for key, task in tasks.items()}
    assert {name: [names[key] for key in keys] for name, keys in before.items()} == {
        step: chain[place - 1 : place] if place else [] for place, step in enumerate(chain)
    }
    for task in tasks.values():
        assert task["retryPolicy"]["maxRetryCount"] >= 1
        assert not task.get("cachingOptions", {}).get("enableCache", False), "every step publishes"


def test_packing_and_validation_read_what_the_generator_wrote_with_one_tokenizer(committed: dict[str, Any]) -> None:
    tasks = committed["root"]["dag"]["tasks"]

    def given(task: str, name: str) -> str:
        return str(tasks[task]["inputs"]["parameters"][name]["componentInputParameter"])

    assert given("generate-chat", "transcripts_uri") == given("pack-chat", "transcripts_uri") == "transcripts_uri"
    assert given("validate-alignment", "source_uri") == "transcripts_uri"
    assert given("generate-chat", "tokenizer_uri") == given("pack-chat", "tokenizer_uri") == "tokenizer_uri"
    wired = tasks["validate-alignment"]["inputs"]["artifacts"]
    assert {name: one["taskOutputArtifact"]["producerTask"] for name, one in wired.items()} == {
        "dataset": "pack-chat",
        "tokenizer": "pack-chat",
    }


def test_the_pipeline_trains_answers_unless_told_otherwise(committed: dict[str, Any]) -> None:
    parameters = committed["root"]["inputDefinitions"]["parameters"]
    assert parameters["post_training"]["defaultValue"] == "1"
    assert {name for name, said in parameters.items() if not said.get("isOptional")} == {
        "conversations_uri",
        "transcripts_uri",
        "dataset_root",
    }
