"""Folders show the work: a dozen modules at most, and a docstring that says what each module and subfolder is."""

import ast
import re
from pathlib import Path

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


def test_a_package_has_at_most_a_dozen_modules() -> None:
    assert {name_of(package): found for package in PACKAGES if len(found := modules(package)) > DOZEN} == {}


def test_a_docstring_lists_all_modules_and_subfolders_in_one_line_each() -> None:
    """A line is the name, with a slash where it is a folder, at least two spaces, and what it is."""
    for package in PACKAGES:
        text = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8")), clean=False) or ""
        wanted = [*modules(package), *(f"{name}/" for name in subpackages(package))]
        assert sorted(re.findall(r"^ *(\w+/?) {2,}\S", text, re.MULTILINE)) == sorted(wanted), name_of(package)


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")}
    assert folders - set(PACKAGES) == set()


MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_PARAMETERS = 450, 80, 12
LONGER = {
    "api/options.py": "a line for each option",
    "dataset/manifest.py": "the manifest's models, which are the contract of the format, in one place",
    "teacher/score.py": "one run of scoring, whose parts share its state",
}
"""Modules with more lines, and why."""
MORE_PARAMETERS = {
    "cli/chat.py:step_pack_chat": "an argument of a component each",
    "cli/models/steps.py:step_score_teacher": "an argument of a component each",
    "steps/score_teacher.py:run": "an argument of a component each",
    "families/chat/loader.py:__init__": "keywords that training loops name",
    "families/chess/loader.py:__init__": "keywords that training loops name",
}
"""Functions with more parameters, and why."""


def test_modules_and_functions_are_short_or_say_why() -> None:
    """No function has an exception: one that is longer is divided."""
    long: set[str] = set()
    many: set[str] = set()
    for path in ROOT.rglob("*.py"):
        text, name = path.read_text("utf-8"), path.relative_to(ROOT).as_posix()
        if text.count("\n") > MOST_LINES:
            long.add(name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= MOST_LINES_OF_A_FUNCTION, f"{name}:{node.name} has {lines} lines"
                if len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) > MOST_PARAMETERS:
                    many.add(f"{name}:{node.name}")
    assert long == LONGER.keys()
    assert many == MORE_PARAMETERS.keys()
