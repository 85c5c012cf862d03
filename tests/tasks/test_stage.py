"""Stages as values: words, parameters and sizes."""

import pytest

from spanloom.errors import SpanloomError
from spanloom.tasks.stage import Stage, given, mebibytes, parameters_of, whole_cpus


def stage(**changes: object) -> Stage:
    values = {
        "name": "render",
        "count": 2,
        "image": "registry/render:1",
        "argv": ("spanloom", "render", "--shard", "{index}", "--out", "w/{index}/out"),
        "cpu": "2",
        "memory": "1Gi",
        "scratch": "5Gi",
        "hours": 3,
        "after": ("verify",),
    }
    return Stage(**{**values, **changes})


def test_the_command_of_a_task_has_its_number() -> None:
    assert stage().command(1) == ["spanloom", "render", "--shard", "1", "--out", "w/1/out"]
    assert stage().each
    assert not stage(argv=("spanloom", "verify")).each


def test_a_stage_as_json_has_the_keys_of_the_docs() -> None:
    assert stage().as_dict() == {
        "stage": "render",
        "count": 2,
        "image": "registry/render:1",
        "argv": ["spanloom", "render", "--shard", "{index}", "--out", "w/{index}/out"],
        "cpu": "2",
        "memory": "1Gi",
        "scratch": "5Gi",
        "hours": 3,
        "after": ["verify"],
    }


def test_an_option_without_a_value_is_left_out() -> None:
    assert given(("--a", "1"), ("--b", ""), ("--c", "x y")) == ("--a", "1", "--c", "x y")


DECLARED = {"source": None, "fraction": "0.1", "cap": ""}


def test_parameters_are_the_words_over_the_defaults() -> None:
    assert parameters_of(["source=s=t", "cap=5"], DECLARED) == {"source": "s=t", "fraction": "0.1", "cap": "5"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the pipeline needs source"),
        (["source="], "the pipeline needs source"),
        (["source"], "'source' is not NAME=VALUE"),
        (["source=s", "caps=1"], "no parameter 'caps'"),
        (["source=s/{index}"], "the value of source holds"),
        (["source=s\nt"], "the value of source holds"),
    ],
)
def test_parameters_that_cannot_be_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(SpanloomError, match=message):
        parameters_of(words, DECLARED)


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [("16Gi", 16384), ("500Mi", 500), ("1Ti", 1 << 20), ("1Ki", 1), ("1025Ki", 2), ("1G", 954), ("2M", 2), ("1K", 1)],
)
def test_memory_in_mebibytes_is_rounded_up(quantity: str, expected: int) -> None:
    """1 GB is 10⁹ / 2²⁰ = 953.67 MiB."""
    assert mebibytes(quantity) == expected


@pytest.mark.parametrize(("quantity", "expected"), [("1", 1), ("8", 8), ("500m", 1), ("1000m", 1), ("1001m", 2)])
def test_cpus_are_whole(quantity: str, expected: int) -> None:
    assert whole_cpus(quantity) == expected


@pytest.mark.parametrize("quantity", ["", "16", "16GB", "-1Gi", "1.5Gi", "x"])
def test_what_is_no_amount_of_memory_is_refused(quantity: str) -> None:
    with pytest.raises(SpanloomError, match="is not an amount of memory"):
        mebibytes(quantity)


@pytest.mark.parametrize("quantity", ["", "0", "0.5", "-1", "two"])
def test_what_is_no_number_of_cpus_is_refused(quantity: str) -> None:
    with pytest.raises(SpanloomError, match="is not a number of CPUs"):
        whole_cpus(quantity)
