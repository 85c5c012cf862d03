"""The Kubeflow side of a step: executor input → plain arguments; result → executor output.

In: a step's arguments with `--executor-input {{$}}`, which the launcher (on a cluster) or `kfp.local` replaces by JSON.
Out: the same arguments without it, and, when the step is done, the executor output file that the JSON asks for: URI and
metadata of each output artifact, and metrics. Without that file the local runner loses the artifacts. kfp is not
imported: the step images do not contain it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.errors import ArtifactError
from spanloom.provenance import readable_json, sha256_json

EXECUTOR_INPUT = "--executor-input"
LIST_PREFIX = "artifacts:"
"""`--ids artifacts:ids` means one `--ids PATH` for each artifact of the input `ids`: Kubeflow has no placeholder for a
list of artifacts."""

MOUNTS = {"gs://": "/gcs/", "s3://": "/s3/", "minio://": "/minio/"}
"""URI scheme → the folder where the launcher mounts its artifacts. The local runner's URIs are already paths."""


@dataclass(frozen=True, kw_only=True)
class Executor:
    """One task's executor input: its parameters and artifacts, and the outputs that it must report."""

    given: dict[str, Any]

    def parameter(self, name: str) -> Any:
        return self.given.get("inputs", {}).get("parameterValues", {}).get(name)

    def input_paths(self, name: str) -> list[str]:
        """Paths in this container of the artifacts of an input: one artifact, or all of a list, in order."""
        return [_path(artifact) for artifact in _artifacts(self.given, "inputs", name)]

    def output_path(self, name: str) -> Path:
        """The path to which the file or folder of an output artifact is written."""
        return Path(_path(_artifacts(self.given, "outputs", name)[0]))

    def write(self, metadata: dict[str, dict[str, Any]]) -> None:
        """Writes the executor output file. `metadata`: artifact → its metadata.

        The artifact `dataset` is a small file that points at the dataset root, which the step published itself.
        """
        facts = {name: dict(values) for name, values in metadata.items()}
        outputs = self.given.get("outputs", {})
        if "dataset" in outputs.get("artifacts", {}) and "dataset" in facts:
            facts["dataset"]["root"] = self.parameter("dataset_root")
            _write(self.output_path("dataset"), facts["dataset"])
        described = {
            name: {"artifacts": [{**artifact, "metadata": {**artifact.get("metadata", {}), **facts.get(name, {})}}]}
            for name in outputs.get("artifacts", {})
            for artifact in _artifacts(self.given, "outputs", name)[:1]
        }
        if where := outputs.get("outputFile"):
            _write(Path(where), {"artifacts": described})


def split_arguments(arguments: list[str]) -> tuple[list[str], Executor | None]:
    """Takes `--executor-input` out of a command line.

    If it was present, options with an empty value are removed too (a pipeline parameter is always passed: empty means
    "the default"), and `artifacts:NAME` becomes the paths of that input's artifacts.

        step assemble-split --ids artifacts:ids --max-rows "" --executor-input {…}
        step assemble-split --ids /gcs/b/0/ids --ids /gcs/b/1/ids

    Raises ArtifactError when the value is not an executor input.
    """
    if EXECUTOR_INPUT not in arguments:
        return arguments, None
    at = arguments.index(EXECUTOR_INPUT)
    executor = _executor(arguments[at + 1 : at + 2])
    rest = [*arguments[:at], *arguments[at + 2 :]]
    plain: list[str] = []
    while rest:
        word, value = rest[0], rest[1] if len(rest) > 1 else None
        if word.startswith("--") and value is not None and (not value or value.startswith(LIST_PREFIX)):
            for path in executor.input_paths(value.removeprefix(LIST_PREFIX)) if value else ():
                plain += [word, path]
            rest = rest[2:]
        else:
            plain.append(word)
            rest = rest[1:]
    return plain, executor


def _executor(words: list[str]) -> Executor:
    try:
        executor_input = json.loads(words[0])
    except (IndexError, ValueError):
        executor_input = None
    if not isinstance(executor_input, dict):
        raise ArtifactError(
            f"{EXECUTOR_INPUT} must be the JSON that Kubeflow Pipelines puts in place of {{{{$}}}}",
            remedy=f"outside a pipeline, leave {EXECUTOR_INPUT} out",
        )
    return Executor(given=executor_input)


def _artifacts(executor_input: dict[str, Any], side: str, name: str) -> list[dict[str, Any]]:
    artifacts: list[dict[str, Any]] = (
        executor_input.get(side, {}).get("artifacts", {}).get(name, {}).get("artifacts", [])
    )
    if not artifacts:
        raise ArtifactError(f"the executor input has no artifact {name!r} among its {side}")
    return artifacts


def _path(artifact: dict[str, Any]) -> str:
    uri: str = artifact.get("customPath") or artifact["uri"]
    for scheme, mount in MOUNTS.items():
        if uri.startswith(scheme):
            return mount + uri.removeprefix(scheme)
    return uri


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(readable_json(value))


def dataset_artifacts(
    result: dict[str, Any], *, tokenizer: tuple[str, ...] = (), **more: Any
) -> dict[str, dict[str, Any]]:
    """What Kubeflow shows for a token dataset that a step built: artifact → metadata.

    `result`: the manifest; `more`: other metadata of the dataset; `tokenizer`: the manifest's tokenizer fields to show.
    """
    content = result["content"]
    split = content.get("split")  # packed blocks are not held out
    counts = {
        "rows_read": content["totals"]["rows_read"],
        "rejected": sum(content["totals"]["rejected"].values()),
        **split_metrics(content["totals"]["splits"]),
        **({"realised_valid_fraction": split["realised_valid_fraction"]} if split else {}),
        **content["totals"].get("packing", {}),
    }
    of_tokenizer = {"tokenizer": {name: content["tokenizer"][name] for name in tokenizer}} if tokenizer else {}
    return {"dataset": {**identity_of(result), **more, **counts}, **of_tokenizer, "metrics": counts}


def report_artifacts(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What Kubeflow shows for a validation: artifact → metadata. `result`: its report as JSON."""
    findings = sum(result["found"].values())
    checked = {f"checked_{name.replace(' ', '_')}": count for name, count in result["checked"].items()}
    verdict = {"clean": result["clean"], "findings": findings}
    return {"report": verdict, "html": verdict, "metrics": {"findings": findings, **checked}}


def identity_of(result: dict[str, Any]) -> dict[str, Any]:
    """The fields of a manifest that identify a dataset."""
    content = result["content"]
    return {
        "schema_version": result["schema_version"],
        "git_sha": content["git_sha"],
        "config_sha256": content["config_sha256"],
        "content_sha256": sha256_json(content),
    }


def split_metrics(splits: dict[str, Any]) -> dict[str, int]:
    """The counts of a manifest's splits as metrics, which the Kubeflow UI shows as a table."""
    return {
        f"{split}_{name}": count
        for split, counts in splits.items()
        for name, count in {
            "sequences": counts["sequences"],
            "tokens": counts["tokens"],
            **{f"{span}_tokens": tokens for span, tokens in counts["span_tokens"].items()},
        }.items()
    }
