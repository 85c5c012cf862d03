"""Docker, and the images of this very commit."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from support import sources
from support.requirements import DOCKER, absent

BAKE = (REPOSITORY / "docker/docker-bake.hcl").read_text()
STEPS = re.findall(r'{ step = "([a-z-]+)"', BAKE)
# As for `make images`: what the environment says, else what the bake file says.
REGISTRY, BASE = (
    os.environ.get(name) or re.findall(rf'"{name}" {{ default = "(.*)" }}', BAKE)[0]
    for name in ("REGISTRY", "BASE_IMAGE")
)
VERSION = re.findall(r'^version = "(.*)"', (REPOSITORY / "pyproject.toml").read_text(), flags=re.MULTILINE)[0]
NARROW = ("--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp", "--network=none")


def image(step: str) -> str:
    return f"{REGISTRY}/spanloom-{step}:{VERSION}"


def docker(*arguments: object, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["docker", *map(str, arguments)], capture_output=True, text=True, check=check)


class Containers:
    """Answers of commands in the images. Images of the same layers and settings give one answer, so one is asked."""

    def __init__(self, images: dict[str, dict[str, Any]]) -> None:
        self._images = images
        self._answers: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = {}

    def run(self, step: str, *command: str) -> "subprocess.CompletedProcess[str]":
        key = (self._what_differs(step), *command)
        if key not in self._answers:
            self._answers[key] = docker("run", *NARROW, image(step), *command, check=False)
        return self._answers[key]

    def inside(self, step: str, *command: str) -> str:
        done = self.run(step, *command)
        assert done.returncode == 0, (step, command, done.stderr)
        return done.stdout.strip()

    def _what_differs(self, step: str) -> str:
        config = self._images[step]["Config"]
        environment = [variable for variable in config["Env"] if not variable.startswith("SPANLOOM_IMAGE=")]
        settings = (config["User"], config.get("Entrypoint"), config["WorkingDir"], sorted(environment))
        return json.dumps([self._images[step]["RootFS"]["Layers"], settings])


def checkout_sha() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", "src", "pyproject.toml") else "")


def inspected(steps: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What `docker image inspect` says of the images of this commit, by step. Without Docker or one of them the test is
    skipped."""
    try:
        docker("info")
    except (OSError, subprocess.CalledProcessError):
        absent(DOCKER, "no Docker answers")
    found = {}
    for step in steps:
        done = docker("image", "inspect", image(step), check=False)
        if done.returncode:
            absent(DOCKER, f"there is no image {image(step)}")
        (found[step],) = json.loads(done.stdout)
        made_of = found[step]["Config"]["Labels"]["org.opencontainers.image.revision"]
        if made_of != checkout_sha():
            absent(DOCKER, f"{image(step)} was made of {made_of}, the checkout is {checkout_sha()}")
    return found


@pytest.fixture(scope="session")
def images() -> dict[str, dict[str, Any]]:
    """Of all images: those of the steps, and those that are no step's."""
    return inspected([*STEPS, "train", "traces-api"])


@pytest.fixture(scope="session")
def containers(images: dict[str, dict[str, Any]]) -> Containers:
    return Containers(images)


@pytest.fixture(scope="session")
def buildx() -> str:
    """The `docker` program, where it has buildx; neither an engine nor images are needed to read bake's file."""
    program = shutil.which("docker")
    if program is None or docker("buildx", "version", check=False).returncode:
        absent(DOCKER, "there is no docker with buildx")
    return str(program)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Four shards of six rows."""
    return sources.write_source(tmp_path / "source", [sources.rows(6, prefix=f"s{shard}") for shard in range(4)])
