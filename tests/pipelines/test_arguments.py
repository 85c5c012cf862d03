"""Parameters of a run are typed by the pipeline's own declarations, before anything is submitted."""

import re

import pytest
from kfp import components

from conftest import REPOSITORY
from pipelines.arguments import run_arguments

NEEDED = ["source_uri=gs://b/source", "dataset_root=gs://b/kd"]


@pytest.fixture(scope="module")
def pipeline() -> components.YamlComponent:
    return components.load_component_from_file(str(REPOSITORY / "pipelines/synth_kd.yaml"))


def test_values_take_the_declared_types(pipeline: components.YamlComponent) -> None:
    words = [*NEEDED, "valid_fraction=0.1", "max_rows=1000", "deep=8", "max_rejects=0.1%", "tokenizer_uri="]
    assert run_arguments(pipeline, words) == {
        "source_uri": "gs://b/source",
        "dataset_root": "gs://b/kd",
        "valid_fraction": 0.1,
        "max_rows": "1000",
        "deep": 8,
        "max_rejects": "0.1%",
        "tokenizer_uri": "",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["source_uri=gs://b/source"], "the pipeline needs dataset_root"),
        ([*NEEDED, "max_row=1"], "the pipeline has no parameter 'max_row'; it has audit_fraction, "),
        ([*NEEDED, "deep=many"], "deep must be of type Integer, not 'many'"),
        ([*NEEDED, "deep"], "'deep' is not NAME=VALUE"),
    ],
)
def test_a_wrong_parameter_is_named(pipeline: components.YamlComponent, words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        run_arguments(pipeline, words)
