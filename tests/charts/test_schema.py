"""values.schema.json refuses what would fail later, and says where."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from support.each import each
from support.helm_chart import CHART, VALUE_SETS, template

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
DIGEST = "sha256:" + "c" * 64
# What was set, and the value that helm must name.
REFUSED = {
    "a key that does not exist": ("traim.enabled=true", "traim"),
    "a key that does not exist, deeper": ("dataset.pvc.sise=1Gi", "sise"),
    "a volume of another kind": ("dataset.volume=nfs", "dataset.volume"),
    "a claim and a bucket": ("dataset.gcsFuse.bucket=my-bucket", "dataset.gcsFuse.bucket"),
    "a bucket and a claim": (
        "dataset.volume=gcsFuse,dataset.gcsFuse.bucket=my-bucket,dataset.pvc.existingClaim=kd",
        "dataset.pvc.existingClaim",
    ),
    "GCS FUSE without a bucket": ("dataset.volume=gcsFuse", "dataset.gcsFuse.bucket"),
    "a bucket with its scheme": ("dataset.volume=gcsFuse,dataset.gcsFuse.bucket=gs://b", "dataset.gcsFuse.bucket"),
    "a bucket mounted writable": (
        "dataset.volume=gcsFuse,dataset.gcsFuse.bucket=my-bucket,dataset.gcsFuse.mountOptions[0]=rw",
        "dataset.gcsFuse.mountOptions.0",
    ),
    "options smuggled in as one": (
        r"dataset.volume=gcsFuse,dataset.gcsFuse.bucket=my-bucket,dataset.gcsFuse.mountOptions[0]=ro\,uid=0",
        "dataset.gcsFuse.mountOptions.0",
    ),
    "a fetch into a bucket": (
        "dataset.volume=gcsFuse,dataset.gcsFuse.bucket=my-bucket,fetch.enabled=true,fetch.uri=gs://b2b/kd",
        "fetch.enabled",
    ),
    "a fetch of nothing": ("fetch.enabled=true", "fetch.uri"),
    "a fetch by http": ("fetch.enabled=true,fetch.uri=https://example.com/kd", "fetch.uri"),
    "a fetch of a whole bucket": ("fetch.enabled=true,fetch.uri=gs://my-bucket", "fetch.uri"),
    "root": ("security.runAsUser=0", "security.runAsUser"),
    "root's group": ("security.fsGroup=0", "security.fsGroup"),
    "a user by name": ("security.runAsUser=nobody", "security.runAsUser"),
    "an opened root file system": ("security.readOnlyRootFilesystem=false", "readOnlyRootFilesystem"),
    "tag and digest": (f"train.image.tag=v1,train.image.digest={DIGEST}", "train.image.tag"),
    "a moving tag": ("fetch.image.tag=latest", "fetch.image.tag"),
    "a tag in the repository": ("fetch.image.repository=a/b:v1", "fetch.image.repository"),
    "half a digest": ("train.image.digest=sha256:abc", "train.image.digest"),
    "a size that is none": ("dataset.pvc.size=large", "dataset.pvc.size"),
    "a relative mount": ("dataset.mountPath=data", "dataset.mountPath"),
    "a mount over the images' own files": ("dataset.mountPath=/opt/venv", "dataset.mountPath"),
    "a path out of the volume": ("dataset.path=../other", "dataset.path"),
    "no account": ("serviceAccount.create=false", "serviceAccount.name"),
    "a claim that fetch cannot fill": (
        "dataset.pvc.accessModes[0]=ReadOnlyMany",
        "dataset.pvc.accessModes.0",
    ),
    "no nodes": ("train.numNodes=0", "train.numNodes"),
    "nodes that cannot share an index": ("train.enabled=true,train.numNodes=2", "train.indexCache.existingClaim"),
    "nodes that cannot share a dataset": (
        "train.enabled=true,train.numNodes=2,train.indexCache.existingClaim=cache",
        "dataset.pvc.accessModes",
    ),
    "a runtime that fetches nothing": ("train.runtime.create=true", "fetch.uri"),
    "two fetches of one dataset": (
        "train.runtime.create=true,fetch.uri=gs://my-bucket/kd,fetch.enabled=true",
        "fetch.enabled",
    ),
    "a runtime that fetches into a bucket": (
        "dataset.volume=gcsFuse,dataset.gcsFuse.bucket=my-bucket,train.runtime.create=true,fetch.uri=gs://b2b/kd",
        "dataset.volume",
    ),
    "the chart's own flag": ("train.flags[0]=--root=/tmp", "train.flags.0"),
    "a number among the flags": ("train.flags[0]=3", "train.flags.0"),
}


@pytest.mark.usefixtures("helm")
@each("case", REFUSED)
def test_the_schema_refuses(case: str) -> None:
    values, named = REFUSED[case]
    result = template("--set", values)
    assert result.returncode != 0
    assert "don't meet the specifications of the schema" in result.stderr
    assert named in result.stderr


@each("name", VALUE_SETS)
def test_a_validator_other_than_helms_agrees(name: str) -> None:
    """helm has changed its validator between versions: both must take what we take."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator(schema).validate(merged(VALUES, yaml.safe_load((CHART / "ci" / name).read_text()) or {}))


def merged(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As helm lays a value set over the chart's values: maps are joined, everything else is replaced."""
    joined = {key: merged(values[key], over[key]) for key in values.keys() & over.keys() if isinstance(over[key], dict)}
    return values | over | joined


def test_every_value_is_explained_where_it_stands() -> None:
    """The schema knows no value that values.yaml does not show, and the other way round."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = paths_of_schema(schema, schema)
    # The schema ends where a map has the cluster's keys and not ours, as a list of resources has.
    shown = {next((k for k in known if path.startswith(f"{k}.")), path) for path in paths_of_values(VALUES)}
    assert shown == known


def paths_of_values(values: object, at: str = "") -> set[str]:
    if isinstance(values, dict) and values:
        return set().union(*(paths_of_values(value, f"{at}.{key}") for key, value in values.items()))
    return {at}


def paths_of_schema(schema: dict[str, Any], part: dict[str, Any], at: str = "") -> set[str]:
    if "$ref" in part:
        part = schema["definitions"][part["$ref"].removeprefix("#/definitions/")]
    if "properties" not in part:
        return {at}
    # `global` is helm's own.
    names = part["properties"].keys() - {"global"}
    return set().union(*(paths_of_schema(schema, part["properties"][name], f"{at}.{name}") for name in names))
