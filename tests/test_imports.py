"""An import is inside a function only where that saves a start: what it loads takes long, or need not be installed."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import spanloom

ROOT = Path(spanloom.__file__).parent
FILES = {".".join((ROOT.name, *path.relative_to(ROOT).with_suffix("").parts)): path for path in ROOT.rglob("*.py")}
MODULES = {name.removesuffix(".__init__"): path for name, path in FILES.items()}
SLOW = {
    "boto3", "botocore", "chess", "fastapi", "fastokens", "google", "google_crc32c", "huggingface_hub", "jinja2",
    "jsonschema", "megatron", "mlcroissant", "numpy", "openai_harmony", "prometheus_client", "psycopg",
    "pyarrow", "pyarrow.compute", "pydantic", "requests", "rich", "safetensors", "sqlalchemy", "starlette", "tiktoken",
    "tiktoken_ext", "tokenizers", "torch", "transformers", "urllib.request", "urllib3", "uvicorn", "vllm", "yaml",
}  # fmt: skip
"""What takes 13 ms or more to import, and the packages of optional extras."""

OTHERS = {
    ("spanloom", "importlib.metadata"): "`import spanloom` imports nothing: 9 ms for the version",
    ("spanloom.__main__", "spanloom.no_pandas"): "Ctrl-C ends the command in a word while all is imported",
    ("spanloom.api.building", "spanloom.megatron.validator"): "multiprocessing: 8 ms of `spanloom --help`",
    ("spanloom.cli", "typer"): "rich, which typer imports for its errors alone",
    ("spanloom.cli.app", "spanloom"): "importlib.metadata: 9 ms for `spanloom --version` alone",
    ("spanloom.cli.models.commands", "spanloom.families.models.fetch"): "tarfile: 7 ms of `spanloom --help`",
    ("spanloom.provenance", "importlib.metadata"): "9 ms of each process that writes no manifest",
}
"""Module and what its functions import → the reason, where it is another one."""


def imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The modules that an import statement names, each with its packages."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    else:
        whole = {f"{node.module}.{alias.name}" for alias in node.names}
        names = {name for name in whole if name in MODULES} | {str(node.module)}
    return {".".join(name.split(".")[: length + 1]) for name in names for length in range(name.count(".") + 1)}


def imports(tree: ast.AST, *, inside: bool = False) -> Iterator[tuple[bool, ast.Import | ast.ImportFrom]]:
    """Whether it is inside a function, and the import; none that only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield inside, node
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from imports(node, inside=inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text("utf-8"))


@cache
def imported_at_once(module: str) -> frozenset[str]:
    """What the imports of a module name that are outside of functions."""
    return frozenset(each for inside, node in imports(tree_of(module)) if not inside for each in imported(node))


@cache
def loads(module: str) -> frozenset[str]:
    """All modules that the import of a module loads, as far as imports outside of functions say."""
    found, todo = set(), {module}
    while todo:
        name = todo.pop()
        found.add(name)
        if name in MODULES:
            todo |= imported_at_once(name) - found
    return frozenset(found)


def slow(modules: frozenset[str]) -> set[str]:
    return SLOW & modules


def needless(module: str) -> set[str]:
    """What functions of a module import although that loads no slow package that the module itself does not load."""
    found = set()
    for inside, node in imports(tree_of(module)):
        named = imported(node)
        if inside and not slow(frozenset().union(*map(loads, named))) - slow(loads(module)):
            found.add(max(named, key=len))
    return found


def test_an_import_is_inside_a_function_only_for_a_slow_or_optional_package() -> None:
    assert len(MODULES) > 700
    assert {(module, name) for module in MODULES for name in needless(module)} == OTHERS.keys()
