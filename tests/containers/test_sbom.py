"""/opt/sbom.cdx.json of every image: exactly the Python packages that pip finds in it."""

import json
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from containers.conftest import STEPS, VERSION, Containers
from support.each import each

pytestmark = pytest.mark.containers
# The environment has no pip: that of the base lists it.
PIP = "PATH=${PATH#*:}; exec python3 -m pip --python /opt/venv/bin/python list --format json"


def sbom(name: str, containers: Containers) -> dict[str, Any]:
    document = json.loads(containers.inside(name, "cat", "/opt/sbom.cdx.json"))
    assert isinstance(document, dict)
    return document


@each("name", [*STEPS, "train", "traces-api"])
def test_an_sbom_lists_the_packages_that_pip_lists(name: str, containers: Containers) -> None:
    document = sbom(name, containers)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    listed = json.loads(containers.inside(name, "sh", "-c", PIP))
    packages = {canonicalize_name(package["name"]): package["version"] for package in listed}
    components = [document["metadata"]["component"], *document["components"]]
    assert {canonicalize_name(component["name"]): component["version"] for component in components} == packages
    assert len(components) == len(packages)
    assert packages["spanloom"] == VERSION


def test_an_sbom_has_purls_and_dependencies_and_no_time_of_its_own(containers: Containers) -> None:
    document = sbom("render-shard", containers)
    purls = {component["name"]: component["purl"] for component in document["components"]}
    assert purls["orjson"].startswith("pkg:pypi/orjson@")
    root = document["metadata"]["component"]
    depends = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    assert root["name"] == "spanloom"
    assert any(ref.startswith("orjson==") for ref in depends[root["bom-ref"]])
    # Else the layer that holds it would be another one with each build.
    assert "serialNumber" not in document
    assert "timestamp" not in document["metadata"]
