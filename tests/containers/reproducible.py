"""Two builds of one commit, from two clones, without a cache, one after the other: the same layers above the base.

`make reproducible` runs it, and the nightly workflow: it takes minutes, as every package is installed twice.
Pytest does not find it by itself. `SPANLOOM_REPRODUCIBLE` names the images: every layer of every image is a layer of
one of the four that the Makefile names.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from containers.conftest import BASE, docker

TARGETS = os.environ["SPANLOOM_REPRODUCIBLE"].split()
REGISTRY = "reproducible.test"
pytestmark = pytest.mark.containers
Inspected = dict[str, dict[str, Any]]


def build(clone: Path, version: str, umask: int) -> Inspected:
    """Clones this commit and builds TARGETS; what `docker image inspect` says of each."""
    sha = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True, umask=umask)
    (clone / "data/tokenizer").mkdir(parents=True)
    shutil.copy(REPOSITORY / "data/tokenizer/o200k_base.tiktoken", clone / "data/tokenizer")
    subprocess.run(
        ["docker", "buildx", "bake", "--file", "docker/docker-bake.hcl", "--no-cache", *TARGETS],
        cwd=clone,
        env={**os.environ, "REGISTRY": REGISTRY, "VERSION": version, "GIT_SHA": sha},
        check=True,
    )
    names = {target: f"{REGISTRY}/spanloom-{target}:{version}" for target in TARGETS}
    return {target: json.loads(docker("image", "inspect", name).stdout)[0] for target, name in names.items()}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Inspected, Inspected]]:
    folder = tmp_path_factory.mktemp("clones")
    yield build(folder / "a", "a", 0o022), build(folder / "b", "b", 0o077)
    docker("image", "rm", *(f"{REGISTRY}/spanloom-{target}:{version}" for target in TARGETS for version in "ab"))


def test_two_builds_of_a_commit_make_the_same_layers(
    builds: tuple[Inspected, Inspected], subtests: pytest.Subtests
) -> None:
    base = json.loads(docker("image", "inspect", BASE).stdout)[0]["RootFS"]["Layers"]
    for target in TARGETS:
        with subtests.test(target=target):
            first, second = (built[target] for built in builds)
            assert first["Created"] != second["Created"]
            layers = first["RootFS"]["Layers"]
            assert layers[: len(base)] == base
            assert len(layers) > len(base) + 2
            assert second["RootFS"]["Layers"] == layers


def test_the_layers_hold_our_code(builds: tuple[Inspected, Inspected]) -> None:
    target = TARGETS[-1]
    version = docker("run", "--rm", f"{REGISTRY}/spanloom-{target}:b", "spanloom", "--version").stdout
    assert builds[1][target]["Config"]["Labels"]["org.opencontainers.image.revision"] in version
