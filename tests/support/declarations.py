"""The component declarations as data: `components/FAMILY/STEP/component.py`."""

import importlib
import re
from pathlib import Path

from kfp import dsl

from conftest import REPOSITORY

FOLDERS = sorted(path.parent for path in (REPOSITORY / "components").glob("*/*/component.py"))
STEPS = sorted(folder.name.replace("_", "-") for folder in FOLDERS)


def component(folder: Path) -> dsl.base_component.BaseComponent:
    declared: dsl.base_component.BaseComponent = getattr(
        importlib.import_module(f"components.{folder.parent.name}.{folder.name}.component"), folder.name
    )
    return declared


def components(folder: Path) -> list[dsl.base_component.BaseComponent]:
    """All components of the step: also those for lists that give it other options."""
    module = importlib.import_module(f"components.{folder.parent.name}.{folder.name}.component")
    return [component(folder), *(other_of() for other_of in getattr(module, "OTHERS", ()))]


def words(folder: Path) -> tuple[list[str], list[str]]:
    """Command and arguments; what Kubeflow fills in is a placeholder in braces."""
    container = component(folder).component_spec.implementation.container
    return list(container.command), [str(word) for word in container.args]


def flags(line: list[str]) -> list[str]:
    return [word for word in line if re.fullmatch("--[a-z-]+", word)]


def as_text(default: object) -> str:
    """A default as a text parameter. None becomes "", which leaves the option out; a switch becomes "1" or "0"."""
    if default is None:
        return ""
    return str(int(default)) if isinstance(default, bool) else str(default)
