"""A step's side of Kubeflow: executor input in both of its shapes, executor output as both runners read it."""

import json
from pathlib import Path
from typing import Any

import pytest
from kfp.local import executor_output_utils
from kfp.pipeline_spec import pipeline_spec_pb2

from conftest import Cli
from spanloom.errors import ArtifactError
from spanloom.kubeflow import split_arguments
from support import sources


def artifact(name: str, uri: str) -> dict[str, Any]:
    return {"name": name, "uri": uri, "type": {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"}}


def executor_input(where: Path, inputs: dict[str, list[str]], outputs: dict[str, str], **parameters: Any) -> str:
    return json.dumps(
        {
            "inputs": {
                "parameterValues": parameters,
                "artifacts": {
                    name: {"artifacts": [artifact(name, uri) for uri in uris]} for name, uris in inputs.items()
                },
            },
            "outputs": {
                "artifacts": {name: {"artifacts": [artifact(name, uri)]} for name, uri in outputs.items()},
                "outputFile": str(where),
            },
        }
    )


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("gs://bucket/v2/artifacts/run/ids", "/gcs/bucket/v2/artifacts/run/ids"),
        ("s3://bucket/run/ids", "/s3/bucket/run/ids"),
        ("minio://mlpipeline/run/ids", "/minio/mlpipeline/run/ids"),
        ("/home/me/runs/render-shard-2/ids", "/home/me/runs/render-shard-2/ids"),
    ],
)
def test_an_artifact_lies_where_its_runner_puts_it(uri: str, path: str, tmp_path: Path) -> None:
    given = executor_input(tmp_path / "out.json", {"ids": [uri]}, {"split": uri})
    _, executor = split_arguments(["step", "assemble-split", "--executor-input", given])
    assert executor is not None
    assert executor.input_paths("ids") == [path]
    assert executor.output_path("split") == Path(path)


def test_a_list_of_artifacts_becomes_one_option_each_in_order(tmp_path: Path) -> None:
    given = executor_input(tmp_path / "out.json", {"ids": ["gs://b/3/ids", "gs://b/1/ids", "/runs/2/ids"]}, {})
    words = ["step", "assemble-split", "--ids", "artifacts:ids", "--split", "/s", "--executor-input", given]
    plain, _ = split_arguments(words)
    assert " ".join(plain) == "step assemble-split --ids /gcs/b/3/ids --ids /gcs/b/1/ids --ids /runs/2/ids --split /s"


def test_an_empty_value_means_the_default_inside_a_pipeline_only(tmp_path: Path) -> None:
    words = ["step", "render-shard", "--max-rows", "", "--shard", "0", "--tokenizer", ""]
    given = executor_input(tmp_path / "out.json", {}, {})
    assert split_arguments([*words, "--executor-input", given])[0] == ["step", "render-shard", "--shard", "0"]
    assert split_arguments(words) == (words, None)


@pytest.mark.parametrize("value", [["{{$}}"], ["[]"], []])
def test_what_is_no_executor_input_is_refused(value: list[str]) -> None:
    with pytest.raises(ArtifactError, match="must be the JSON that Kubeflow"):
        split_arguments(["step", "assemble-split", "--executor-input", *value])


def test_an_input_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = executor_input(tmp_path / "out.json", {"ids": []}, {})
    with pytest.raises(ArtifactError, match="no artifact 'ids' among its inputs"):
        split_arguments(["step", "assemble-split", "--ids", "artifacts:ids", "--executor-input", given])


def kfp_reads(file: Path, given: str) -> dict[str, Any]:
    """What kfp's own code makes of an executor output."""
    message = pipeline_spec_pb2.ExecutorInput()
    executor_output_utils.json_format.Parse(given, message)
    output = executor_output_utils.load_executor_output(str(file))
    output = executor_output_utils.add_type_to_executor_output(executor_input=message, executor_output=output)
    return {
        name: executor_output_utils.artifact_list_to_dsl_artifact(artifacts, is_artifact_list=False)
        for name, artifacts in output.artifacts.items()
    }


def test_a_step_tells_kubeflow_what_it_made(cli: Cli, tmp_path: Path) -> None:
    """Two steps with the cluster's shape of URIs for outputs that are named alone, and real paths for the files."""
    source = sources.write_source(tmp_path / "source", [sources.rows(5), [], [], []])
    given = executor_input(
        tmp_path / "a/b/out.json", {}, dict.fromkeys(("rendered", "metrics"), "minio://mlpipeline/run/x")
    )
    done = cli(
        *("step", "render-shard", "--shard", 0, "--source", source, "--max-rows", "", "--workers", 1),
        *("--rendered", tmp_path / "rendered", "--work", tmp_path / "work", "--executor-input", given),
    )
    assert done.returncode == 0, done.stderr
    said = kfp_reads(tmp_path / "a/b/out.json", given)
    assert said["rendered"].uri == "minio://mlpipeline/run/x"
    result = json.loads(done.stdout)
    assert said["rendered"].metadata["rows"] == 5
    assert said["rendered"].metadata["input_sha256"] == result["input"]["sha256"]
    assert said["metrics"].metadata["tokens"] == result["tokens"]
    spans = ("context_tokens", "analysis_tokens", "final_tokens")
    assert sum(said["metrics"].metadata[name] for name in spans) == result["tokens"]


def test_the_dataset_artifact_points_to_the_root(cli: Cli, tmp_path: Path, real_steps: dict[str, list[Path]]) -> None:
    pointer = tmp_path / "artifact/dataset"
    root = real_steps["root"][0]
    given = executor_input(
        tmp_path / "out.json", {}, {"dataset": str(pointer), "metrics": "minio://m"}, dataset_root=str(root)
    )
    inventories = [word for path in real_steps["inventory"] for word in ("--inventory", path)]
    split = ("--split", real_steps["split"][0])
    done = cli("step", "assemble-manifest", *inventories, *split, "--root", root, "--executor-input", given)
    assert done.returncode == 0, done.stderr
    written = json.loads((root / "manifest.pending.json").read_bytes())
    pointed = json.loads(pointer.read_bytes())
    assert pointed["root"] == str(root)
    assert pointed["config_sha256"] == written["content"]["config_sha256"]
    assert kfp_reads(tmp_path / "out.json", given)["dataset"].metadata["rows_read"] == 12


@pytest.fixture
def real_steps(cli: Cli, tmp_path: Path) -> dict[str, list[Path]]:
    """Four shards of three rows each, up to write-indexed."""
    source = sources.write_source(tmp_path / "source", [sources.rows(3, prefix=f"s{shard}") for shard in range(4)])
    work, root = tmp_path / "work", tmp_path / "dataset"

    def step(*arguments: object) -> None:
        done = cli("step", *arguments)
        assert done.returncode == 0, done.stderr

    for shard in range(4):
        step(
            *("render-shard", "--shard", shard, "--source", source, "--workers", 1, "--quiet"),
            *("--rendered", work / f"{shard}/rendered", "--root", root),
        )
    ids = [word for shard in range(4) for word in ("--rendered", work / f"{shard}/rendered")]
    step("assemble-split", *ids, "--split", work / "split.json", "--valid-fraction", 0.5)
    for shard in range(4):
        step(
            *("write-indexed", "--rendered", work / f"{shard}/rendered"),
            *("--valid-fraction", 0.5, "--root", root, "--inventory", work / f"{shard}/inventory.json"),
        )
    return {
        "root": [root],
        "split": [work / "split.json"],
        "inventory": [work / f"{shard}/inventory.json" for shard in range(4)],
    }
