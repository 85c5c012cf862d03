"""Folders show the work: a dozen modules at most, and a docstring that says what each module and subfolder is."""

import ast
import re
from pathlib import Path

import pytest

import spanloom

ROOT = Path(spanloom.__file__).parent
PACKAGES = sorted(path.parent for path in ROOT.rglob("__init__.py"))
DOZEN = 12


def name_of(package: Path) -> str:
    return ".".join((ROOT.name, *package.relative_to(ROOT).parts))


def modules(package: Path) -> list[str]:
    return sorted(path.stem for path in package.glob("*.py") if path.name != "__init__.py")


def subpackages(package: Path) -> list[str]:
    return sorted(path.parent.name for path in package.glob("*/__init__.py"))


def test_packages_are_found() -> None:
    assert len(PACKAGES) > 40


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_a_package_has_at_most_a_dozen_modules(package: Path) -> None:
    assert len(modules(package)) <= DOZEN, modules(package)


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_a_docstring_lists_all_modules_and_subfolders_in_one_line_each(package: Path) -> None:
    """A line is the name, with a slash where it is a folder, at least two spaces, and what it is."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8")), clean=False) or ""
    wanted = {*modules(package), *(f"{name}/" for name in subpackages(package))}
    listed = re.findall(r"^ *(\w+/?) {2,}\S", text, re.MULTILINE)
    assert wanted - set(listed) == set(), "not listed"
    assert set(listed) - wanted == set(), "listed, but not there"
    assert len(listed) == len(set(listed)), "listed twice"


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")}
    assert folders - set(PACKAGES) == set()
