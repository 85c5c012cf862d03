"""What a run on this machine is held against: the number of its containers."""

import re
from pathlib import Path

import pytest
import yaml

from conftest import REPOSITORY
from pipelines.run_local import CONDITION, containers_of

PIPELINES = sorted((REPOSITORY / "pipelines").glob("*.yaml"))


@pytest.mark.parametrize("file", PIPELINES, ids=lambda file: file.stem)
def test_a_run_has_a_container_for_each_task_with_an_image(file: Path) -> None:
    """Each task has a component of its own, and each such component one executor."""
    specification = next(yaml.safe_load_all(file.read_text()))
    conditions = re.findall(r"condition: (.*\n +.*)", file.read_text())
    given = {name: "given" for text in conditions for name in CONDITION.findall(" ".join(text.split()))}
    assert len(given) == len(conditions), "CONDITION knows how the compiler writes them"
    assert containers_of(specification, given) == len(specification["deploymentSpec"]["executors"])


def test_tasks_under_a_condition_that_is_not_met_are_not_run() -> None:
    (file,) = (file for file in PIPELINES if file.stem == "traces_dataset_shards")
    specification = next(yaml.safe_load_all(file.read_text()))
    assert containers_of(specification, {"tokenizer_uri": "given"}) == 16
    assert containers_of(specification, {"tokenizer_uri": ""}) == containers_of(specification, {}) == 6
