"""What a component declares is what the command takes and what the images are."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import REPOSITORY, Cli
from support import declarations

VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]


def imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return found | {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}


BROUGHT_BY_KFP = ("certifi", "kfp_server_api", "urllib3")
"""Packages that kfp's client depends on itself."""


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_a_component_imports_kfp_alone(folder: Path) -> None:
    assert imported(folder / "component.py") - sys.stdlib_module_names == {"components.of_task"}
    shared = imported(REPOSITORY / "components/of_task.py") - sys.stdlib_module_names - {"collections.abc"}
    assert shared == {"kfp"}


@pytest.mark.parametrize("file", sorted((REPOSITORY / "pipelines").glob("*.py")), ids=lambda file: file.stem)
def test_a_pipeline_never_imports_the_package(file: Path) -> None:
    assert not re.search(r"^\s*(from|import) spanloom", file.read_text(), flags=re.MULTILINE)
    outside = {module.partition(".")[0] for module in imported(file)} - sys.stdlib_module_names
    assert outside <= {"kfp", "yaml", "components", "pipelines", *BROUGHT_BY_KFP}


def test_pipelines_compile_where_the_package_is_not_installed(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['spanloom'] = None; from pipelines.compile import main; main()"
    compiled = subprocess.run(
        [sys.executable, "-c", blocked, "--out", tmp_path], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert compiled.returncode == 0, compiled.stderr
    committed = {file.name: file.read_bytes() for file in (REPOSITORY / "pipelines").glob("*.yaml")}
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == committed


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_the_command_knows_every_flag(folder: Path, cli: Cli) -> None:
    command, args = declarations.words(folder)
    assert command[0] == "spanloom"
    told = cli(*command[1:], "--help", COLUMNS="200").stdout
    others = [one.component_spec.implementation.container.args for one in declarations.components(folder)]
    every = [*args, *(str(word) for line in others for word in line)]
    for flag in set(declarations.flags(every)) - {"--executor-input"}:
        assert re.search(rf"{flag}\b", told), f"{' '.join(command)} has no {flag}"


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_the_image_is_the_steps_own_at_the_version_of_the_package(folder: Path) -> None:
    step = folder.name.replace("_", "-")
    for component in declarations.components(folder):
        image = component.component_spec.implementation.container.image
        assert image == f"ghcr.io/spanloom/spanloom-{step}:{VERSION}"


@pytest.mark.parametrize("folder", declarations.FOLDERS, ids=lambda folder: folder.name)
def test_the_readme_names_every_input_and_output(folder: Path) -> None:
    specs = [component.component_spec for component in declarations.components(folder)]
    told = (folder / "README.md").read_text()
    for name in (name for spec in specs for name in {**(spec.inputs or {}), **(spec.outputs or {})}):
        assert f"`{name}`" in told or (re.search(r"_0\d$", name) and f"`{name[:-2]}00`" in told), name


def test_bake_builds_an_image_for_every_component() -> None:
    bake = (REPOSITORY / "docker/docker-bake.hcl").read_text()
    steps = re.findall(r'{ step = "([a-z-]+)"', bake)
    assert sorted(steps) == declarations.STEPS
    assert re.search(rf'variable "VERSION" {{ default = "{VERSION}" }}', bake)
