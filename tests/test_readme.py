"""What the README shows is what happens: its Python and its commands are run as they stand, its numbers compared.

And what any page names is there: links, anchors, modules, and the files of the architecture page.
"""

import ast
import importlib
import re
import shlex
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import spanloom
from conftest import REPOSITORY, Cli

README = (REPOSITORY / "README.md").read_text()
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "charts/*/*.md", "components/**/*.md")
    for page in REPOSITORY.glob(pattern)
)
FENCED = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)


def blocks(language: str, heading: str, text: str = README) -> list[str]:
    """Fenced blocks of a language under a heading."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """The `spanloom` lines of a console block, as arguments."""
    lines = [line for line in text.splitlines() if line.startswith(".venv/bin/spanloom ")]
    return [shlex.split(line)[1:] for line in lines]


def test_own_data_goes_through_as_shown(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()  # `make setup` leaves it
    page = (REPOSITORY / "docs/families/harmony.md").read_text()
    (snippet,) = blocks("python", "Rows of question, reasoning and answer", page)
    exec(compile(snippet, "README.md", "exec"), {})
    (shown,) = blocks("console", "Rows of question, reasoning and answer", page)
    assert len(commands(shown)) == 2
    for arguments in commands(shown):
        done = cli(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/mine_kd/manifest.json").is_file()


def test_the_demo_ends_by_naming_a_page_that_is_there(cli: Cli, tmp_path: Path) -> None:
    recipe = (REPOSITORY / "Makefile").read_text().split("\ndemo: ")[1].split("\n\n")[0].replace("$(DEMO)", "data/demo")
    for line in re.findall(r"^\t\$\(BIN\)/spanloom (.*)$", recipe, flags=re.MULTILINE):
        done = cli(*shlex.split(line), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    page = re.search(r"Now open (\S+) in a browser", recipe.splitlines()[-1])
    assert page
    assert "<html" in (tmp_path / page[1]).read_text()


def test_the_example_of_conversations_is_what_make_runs_and_goes_through(cli: Cli, tmp_path: Path) -> None:
    (shown,) = blocks("console", "Other data")
    assert len(shown.splitlines()) <= 10
    recipe = (REPOSITORY / "Makefile").read_text().split("\nchat-demo: ")[1].split("\n\n")[0]
    made = recipe.replace("$(DEMO)", "data/demo").replace("$(BIN)", ".venv/bin")
    assert re.findall(r"^\t(\.venv.*)$", made, flags=re.MULTILINE) == shown.splitlines()
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    for arguments in commands(shown):
        done = cli(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "learned as commentary" in done.stdout
    root, source = "data/demo/chat", "data/demo/chat_source"
    again = cli("validate", root, "--source", source, "--deep", "100", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "commentary" in (tmp_path / root / "report.html").read_text()


def test_every_command_of_the_table_exists(cli: Cli) -> None:
    page = (REPOSITORY / "docs/reference/commands.md").read_text()
    table = page.split("| command | what it does |")[1].split("\n\n")[0]
    names = re.findall(r"`spanloom ([a-z-]+)", table)
    assert len(names) >= 7
    for name in names:
        assert cli(name, "--help").returncode == 0, name


@cache
def anchors(page: Path) -> set[str]:
    """What `#…` may name in a page: its headings in lower case, without punctuation, spaces as hyphens."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    texts = [(page, FENCED.sub("", page.read_text())) for page in PAGES]
    links = [(page, link) for page, text in texts for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    assert len(links) > 250
    for page, target in links:
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), (page, target)
        assert not anchor or anchor in anchors(file), (page, target)


def test_every_module_that_a_page_imports_or_runs_is_there() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    for snippet in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spanloom"):
                module = importlib.import_module(node.module or "")
                assert [name.name for name in node.names if not hasattr(module, name.name)] == [], node.module
    for name in re.findall(r"(?:-m |`)(spanloom\.[a-z_.]+[a-z])(?=[`\s])", text):
        assert name.removeprefix("spanloom.") in spanloom.__all__ or find_spec(name), name


def test_every_file_of_the_architecture_page_is_there() -> None:
    page = FENCED.sub("", (REPOSITORY / "docs/architecture.md").read_text())
    package = REPOSITORY / "src/spanloom"
    named = re.findall(r"`([\w.*-]+\.py|(?:[\w.*-]+/)+(?:[\w.*-]+\.[a-z0-9]+)?)`", page)
    assert len(named) > 100
    for name in named:
        pattern = re.sub(r"\b(NAME|STEP|FAMILY)\b", "*", name)
        found = [*package.glob(pattern), *REPOSITORY.glob(pattern)]
        found += [] if "/" in pattern else package.rglob(pattern)  # told beside the folder that it lies in
        assert found, name


def test_names_that_the_architecture_page_tells_to_edit_are_in_their_files() -> None:
    page = (REPOSITORY / "docs/architecture.md").read_text().split("\n## How to change it\n")[1].split("\n## ")[0]
    assert len(re.findall(r"^\| [^|]+ \|.*`.*\|$", page, flags=re.MULTILINE)) >= 20
    named = re.findall(r"`(\w*[A-Z_]\w*)` in `([\w/]+\.py)`", page)
    assert len(named) > 12
    for name, path in named:
        files = sorted((REPOSITORY / "src/spanloom").glob(path.replace("NAME", "*")))
        assert any(re.search(rf"\b{name}\b", each.read_text()) for each in files), (path, name)


def test_the_layers_of_the_architecture_page_are_those_that_are_held() -> None:
    page = (REPOSITORY / "docs/architecture.md").read_text().split("\n## Imports\n")[1]
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["spanloom"]]
    assert re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)[0].splitlines() == layers
