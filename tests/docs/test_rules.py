"""docs/architecture.md lists the rules that a dataset must keep: each with its function and all callers.

`PYTHONPATH=src:tests python tests/docs/test_rules.py` writes the table anew.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import spanloom

ROOT = Path(spanloom.__file__).parent
PAGE = Path(__file__).parents[2] / "docs/architecture.md"
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"
HOLDERS = ("law/*.py", "dataset/validate/*.py", "families/*/verify/*.py", "conversations/trained.py", "supervision.py")
MODULES = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in ROOT.rglob("*.py")}


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def is_rule(module: str, name: str) -> bool:
    """All functions of `law` and `supervision`; elsewhere those that check."""
    return not name.startswith("_") and (module.startswith(("law/", "supervision")) or name.startswith("check_"))


def defined() -> Iterator[tuple[str, str, str, bool]]:
    """Module, name, first sentence and whether it is a method, of each rule."""
    for pattern in HOLDERS:
        for path in sorted(ROOT.glob(pattern)):
            module = path.relative_to(ROOT).with_suffix("").as_posix()
            for node in trees()[module].body:
                inner = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
                for each in inner:
                    if not isinstance(each, ast.FunctionDef) or not is_rule(module, each.name):
                        continue
                    text = " ".join((ast.get_docstring(each) or "").split())
                    sentence = re.split(r"(?<=[.:]) ", text)[0].rstrip(".:")
                    if sentence and (node is each or each.name.startswith("check_")):
                        yield module, each.name, sentence, node is not each


def used_in(tree: ast.Module) -> tuple[set[tuple[str, str]], set[str]]:
    """What a module takes from others, as (module, name), and the names of attributes that are no modules'."""
    taken: set[tuple[str, str]] = set()
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spanloom"):
            place = (node.module or "").removeprefix("spanloom").strip(".").replace(".", "/")
            for alias in node.names:
                taken.add((place, alias.name))
                modules[alias.asname or alias.name] = f"{place}/{alias.name}".strip("/")
    attributes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if base in MODULES:
                taken.add((base, node.attr))
            else:
                attributes.add(node.attr)
    return taken, attributes


@cache
def table() -> str:
    """The rules as Markdown, by module."""
    used = {name: used_in(tree) for name, tree in trees().items()}
    lines = ["| rule | function | called by |", "|---|---|---|"]
    for module, name, sentence, method in defined():
        callers = sorted(
            other
            for other, (taken, attributes) in used.items()
            if other != module and ((module, name) in taken or (method and name in attributes))
        )
        if callers:
            named = ", ".join(f"`{each}`" for each in callers)
            lines.append(f"| {sentence.replace('|', chr(92) + '|')} | `{module}`: `{name}` | {named} |")
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    shown, after = rest.split(END)
    return before, shown, after


def test_the_page_lists_the_rules_and_their_callers() -> None:
    assert parts()[1] == table(), "run this file to write the table anew"


def test_no_builder_calls_a_rule_of_law() -> None:
    builders = ("building/", "steps/", "families/harmony/render", "families/harmony/convert")
    for _, function, callers in (line.split(" | ") for line in table().splitlines()[2:]):
        if function.startswith("`law/"):
            assert not [each for each in callers.strip(" |").split(", ") if each.strip("`").startswith(builders)]


def test_a_rule_has_one_name() -> None:
    """Two functions that say the same are one rule that stands twice."""
    sentences = [line.split(" | ")[0] for line in table().splitlines()[2:] if "`families/" not in line.split(" | ")[1]]
    assert len(sentences) == len(set(sentences))


if __name__ == "__main__":
    before, _, after = parts()
    PAGE.write_text(before + BEGIN + table() + END + after, "utf-8")
