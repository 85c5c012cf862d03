"""What a component declares is what the command takes and what the images are."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from conftest import REPOSITORY, Cli
from support import declarations

VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_a_component_imports_kfp_alone(folder: Path) -> None:
    tree = ast.parse((folder / "component.py").read_text())
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert found == {"kfp"}


@pytest.mark.parametrize("file", sorted((REPOSITORY / "pipelines").glob("*.py")), ids=lambda file: file.stem)
def test_a_pipeline_never_imports_the_package(file: Path) -> None:
    assert not re.search(r"^\s*(from|import) spanloom", file.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_the_command_knows_every_flag(folder: Path, cli: Cli) -> None:
    command, args = declarations.words(folder)
    assert command[0] == "spanloom"
    told = cli(*command[1:], "--help", COLUMNS="200").stdout
    for flag in set(declarations.flags(args)) - {"--executor-input"}:
        assert re.search(rf"{flag}\b", told), f"{' '.join(command)} has no {flag}"


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_the_image_is_the_steps_own_at_the_version_of_the_package(folder: Path) -> None:
    step = folder.name.replace("_", "-")
    image = declarations.component(folder).component_spec.implementation.container.image
    assert image == f"ghcr.io/spanloom/spanloom-{step}:{VERSION}"


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_the_readme_names_every_input_and_output(folder: Path) -> None:
    spec = declarations.component(folder).component_spec
    told = (folder / "README.md").read_text()
    for name in {**(spec.inputs or {}), **(spec.outputs or {})}:
        assert f"`{name}`" in told or (re.search(r"_0\d$", name) and f"`{name[:-2]}00`" in told), name


def test_bake_builds_an_image_for_every_component_and_pushes_all() -> None:
    bake = (REPOSITORY / "docker/docker-bake.hcl").read_text()
    steps = re.findall(r'"([a-z-]+)"', bake.split("step = [")[1].split("]")[0])
    assert sorted(steps) == declarations.STEPS
    pushed = (REPOSITORY / "docker/push.sh").read_text().split("for image in ")[1].split("; do")[0]
    assert set(pushed.replace("\\", "").split()) == {*steps, "train"}
    assert re.search(rf'variable "VERSION" {{ default = "{VERSION}" }}', bake)
