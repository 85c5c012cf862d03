"""The reference page lists every environment variable that the package and the examples of training read, once."""

import ast
import re
from collections.abc import Iterator

from conftest import REPOSITORY

# Set by torchrun, by a cluster for libraries, or by the package itself for a library or a program that it starts.
NOT_FOR_USERS = {
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LESS"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
}
# Read by libraries of Google, Amazon, Hugging Face and PostgreSQL for the package, whose messages name them.
OF_LIBRARIES = {
    "STORAGE_EMULATOR_HOST",
    "AWS_ENDPOINT_URL",
    "AWS_CA_BUNDLE",
    *("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"),
}


def is_environ(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "environ" and isinstance(node.value, ast.Name) and node.value.id == "os"
    return isinstance(node, ast.Name) and node.id == "environ"


def variables_of(tree: ast.Module) -> Iterator[ast.expr]:
    """The names that a module looks up in its environment, as expressions: constants, or names of constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_environ(node.value):
            yield node.slice
        elif isinstance(node, ast.Compare) and is_environ(node.comparators[0]):
            yield node.left
        elif isinstance(node, ast.Call):
            called = node.func
            if (
                node.args
                and isinstance(called, ast.Attribute)
                and (is_environ(called.value) or called.attr == "getenv")
            ):
                yield node.args[0]
            yield from (word.value for word in node.keywords if word.arg == "envvar")


def read_in_sources() -> set[str]:
    folders = ("src/spanloom", "docs/examples/training")
    trees = [ast.parse(path.read_text("utf-8")) for each in folders for path in (REPOSITORY / each).rglob("*.py")]
    constants = {
        target.id: node.value.value
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.endswith("_VARIABLE")
    }
    names = [name for tree in trees for name in variables_of(tree)]
    return {
        name.value if isinstance(name, ast.Constant) else constants[ast.unparse(name)]
        for name in names
        if not isinstance(name, ast.Constant) or isinstance(name.value, str)
    }


def test_the_page_lists_every_environment_variable_once() -> None:
    page = (REPOSITORY / "docs/reference/commands.md").read_text("utf-8")
    table = page.split("| environment variable | meaning |")[1].split("\n\n")[0]
    listed = re.findall(r"`\$?([A-Z][A-Z0-9_]+)\b", table)
    assert sorted(listed) == sorted((read_in_sources() - NOT_FOR_USERS) | OF_LIBRARIES)
