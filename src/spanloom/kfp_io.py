"""The Kubeflow side of a step: executor input → plain arguments; result → executor output.

In: a step's arguments with `--executor-input {{$}}`, which the launcher (on a cluster) or `kfp.local` replaces by JSON.
Out: the same arguments without it, and, when the step is done, the executor output file that the JSON asks for: URI and
metadata of each output artifact, and metrics. Without that file the local runner loses the artifacts. kfp itself is not
imported: step images do without it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.errors import ArtifactError
from spanloom.provenance import readable_json, sha256_json

EXECUTOR_INPUT = "--executor-input"
LIST_PREFIX = "artifacts:"
"""`--ids artifacts:ids` stands for `--ids PATH` once for each artifact of the input `ids`: a list of artifacts has no
placeholder of its own."""

MOUNTS = {"gs://": "/gcs/", "s3://": "/s3/", "minio://": "/minio/"}
"""Where the launcher puts an artifact of each scheme. The local runner's URIs are paths already."""


@dataclass(frozen=True, kw_only=True)
class Executor:
    """One task's executor input: what it was given, and what it is to say of itself."""

    step: str
    given: dict[str, Any]

    def parameter(self, name: str) -> Any:
        return self.given.get("inputs", {}).get("parameterValues", {}).get(name)

    def input_paths(self, name: str) -> list[str]:
        """Where the artifacts of an input lie in this container: one, or all of a list, in order."""
        return [_path(artifact) for artifact in _artifacts(self.given, "inputs", name)]

    def output_path(self, name: str) -> Path:
        """Where the file or folder of an output artifact goes."""
        return Path(_path(_artifacts(self.given, "outputs", name)[0]))

    def write(self, result: dict[str, Any]) -> None:
        """Writes the executor output file, with what `result` (the JSON that the step prints) says of each artifact."""
        facts = FACTS[self.step](result) if self.step in FACTS else {}
        outputs = self.given.get("outputs", {})
        if self.step in ("assemble-manifest", "pack-chat") and "dataset" in outputs.get("artifacts", {}):
            facts["dataset"]["root"] = self.parameter("dataset_root")
            _write(self.output_path("dataset"), facts["dataset"])
        told = {
            name: {"artifacts": [{**artifact, "metadata": {**artifact.get("metadata", {}), **facts.get(name, {})}}]}
            for name in outputs.get("artifacts", {})
            for artifact in _artifacts(self.given, "outputs", name)[:1]
        }
        if where := outputs.get("outputFile"):
            _write(Path(where), {"artifacts": told})


def split_arguments(arguments: list[str]) -> tuple[list[str], Executor | None]:
    """Takes `--executor-input` out of a command line.

    Where it was there, options with an empty value go too (a pipeline parameter is always passed: empty means "the
    default"), and `artifacts:NAME` becomes the paths of that input's artifacts.

        step assemble-split --ids artifacts:ids --max-rows "" --executor-input {…}
        step assemble-split --ids /gcs/b/0/ids --ids /gcs/b/1/ids

    Raises ArtifactError when the value is not an executor input.
    """
    if EXECUTOR_INPUT not in arguments:
        return arguments, None
    at = arguments.index(EXECUTOR_INPUT)
    executor = _executor(arguments[at + 1 : at + 2], step=" ".join(arguments[1:2]))
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


def _executor(words: list[str], step: str) -> Executor:
    try:
        given = json.loads(words[0])
    except (IndexError, ValueError):
        given = None
    if not isinstance(given, dict):
        raise ArtifactError(
            f"{EXECUTOR_INPUT} must be the JSON that Kubeflow Pipelines puts in place of {{{{$}}}}",
            remedy=f"outside a pipeline, leave {EXECUTOR_INPUT} out",
        )
    return Executor(step=step, given=given)


def _artifacts(given: dict[str, Any], side: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = given.get(side, {}).get("artifacts", {}).get(name, {}).get("artifacts", [])
    if not found:
        raise ArtifactError(f"the executor input has no artifact {name!r} among its {side}")
    return found


def _path(artifact: dict[str, Any]) -> str:
    uri: str = artifact.get("customPath") or artifact["uri"]
    for scheme, mount in MOUNTS.items():
        if uri.startswith(scheme):
            return mount + uri.removeprefix(scheme)
    return uri


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(readable_json(value))


# What each step tells of its artifacts. `metrics` becomes the table of numbers in the Kubeflow UI.


def _verify_tokenizer(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"tokenizer": {name: result[name] for name in ("sha256", "vocab_size", "eod")}}


def _render_shard(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rejected = sum(result["rejected"].values())
    counts = {"rows_read": result["rows_read"], "rows": result["rows"], "rejected": rejected}
    return {
        "rendered": {
            "shard": result["shard"],
            **counts,
            "tokens": result["tokens"],
            "input_sha256": result["input"]["sha256"],
            "tokenizer_sha256": result["tokenizer_sha256"],
            "renderer": "{name} {version}".format(**result["renderer"]),
        },
        "ids": {"shard": result["shard"], **counts},
        "metrics": {**counts, "tokens": result["tokens"], **_spans(result["span_tokens"]), **result["audit"]},
    }


def _assemble_split(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {
        "rows": sum(shard["rows"] for shard in result["shards"]),
        "valid_rows": sum(shard["valid"] for shard in result["shards"]),
        "realised_valid_fraction": result["realised_valid_fraction"],
        "repeated_rows": result["repeated_rows"],
    }
    return {
        "split": {"rule": result["rule"], "valid_fraction": result["valid_fraction"], **counts},
        "metrics": counts,
    }


def _write_indexed(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rejected = sum(result["rejected"].values())
    return {
        "inventory": {
            "shard": result["shard"],
            "rows_read": result["rows_read"],
            "rejected": rejected,
            "files": sum(len(split["files"]) for split in result["splits"].values()),
            "bytes": sum(file["bytes"] for split in result["splits"].values() for file in split["files"]),
            "input_sha256": result["input"]["sha256"],
        },
        "metrics": {"rows_read": result["rows_read"], "rejected": rejected, **_of_splits(result["splits"])},
    }


def _assemble_manifest(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    content = result["content"]
    counts = {
        "rows_read": content["totals"]["rows_read"],
        "rejected": sum(content["totals"]["rejected"].values()),
        **_of_splits(content["totals"]["splits"]),
        "realised_valid_fraction": content["split"]["realised_valid_fraction"],
    }
    return {
        "dataset": {
            "schema_version": result["schema_version"],
            "git_sha": content["git_sha"],
            "config_sha256": content["config_sha256"],
            "content_sha256": sha256_json(content),
            **counts,
        },
        "metrics": counts,
    }


def _generate_chat(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {
        name: result[name]
        for name in (
            "conversations_read", "conversations_written", "conversations_shortened", "pairs_written", "pairs_dropped"
        )
    }  # fmt: skip
    skipped = {f"skipped_{reason}": count for reason, count in result["conversations_skipped"].items()}
    return {
        "report": {"context_len": result["context_len"], "sha256": result["output"]["sha256"], **counts},
        "metrics": {**counts, **skipped},
    }


def _pack_chat(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    content = result["content"]
    counts = {
        "rows_read": content["totals"]["rows_read"],
        "rejected": sum(content["totals"]["rejected"].values()),
        **_of_splits(content["totals"]["splits"]),
        **content["totals"]["packing"],
    }
    settings = {name: content["config"][name] for name in ("block_size", "post_training", "strict_user")}
    return {
        "dataset": {
            "schema_version": result["schema_version"],
            "git_sha": content["git_sha"],
            "config_sha256": content["config_sha256"],
            "content_sha256": sha256_json(content),
            **settings,
            **counts,
        },
        "tokenizer": {name: content["tokenizer"][name] for name in ("name", "sha256", "vocab_size", "eod")},
        "metrics": counts,
    }


def _validate_alignment(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    findings = sum(result["found"].values())
    checked = {f"checked_{name.replace(' ', '_')}": count for name, count in result["checked"].items()}
    return {
        "report": {"clean": result["clean"], "findings": findings},
        "html": {"clean": result["clean"], "findings": findings},
        "metrics": {"findings": findings, **checked},
    }


def _spans(counts: dict[str, int]) -> dict[str, int]:
    return {f"{name}_tokens": count for name, count in counts.items()}


def _of_splits(splits: dict[str, Any]) -> dict[str, int]:
    return {
        f"{split}_{name}": count
        for split, counts in splits.items()
        for name, count in {
            "sequences": counts["sequences"],
            "tokens": counts["tokens"],
            **_spans(counts["span_tokens"]),
        }.items()
    }


FACTS: dict[str, Callable[[dict[str, Any]], dict[str, dict[str, Any]]]] = {
    "verify-tokenizer": _verify_tokenizer,
    "render-shard": _render_shard,
    "assemble-split": _assemble_split,
    "write-indexed": _write_indexed,
    "assemble-manifest": _assemble_manifest,
    "validate-alignment": _validate_alignment,
    "generate-chat": _generate_chat,
    "pack-chat": _pack_chat,
}
