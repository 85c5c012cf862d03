"""What the README shows is what happens: its Python and its commands are run as they stand, its numbers compared."""

import re
import shlex
from pathlib import Path

import pytest

from conftest import REPOSITORY, Cli

README = (REPOSITORY / "README.md").read_text()


def blocks(language: str, heading: str) -> list[str]:
    """Fenced blocks of a language under a heading."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """The `spanloom` lines of a console block, as arguments."""
    lines = [line for line in text.splitlines() if line.startswith(".venv/bin/spanloom ")]
    return [shlex.split(line)[1:] for line in lines]


def test_own_data_goes_through_as_shown(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()  # `make setup` leaves it
    (snippet,) = blocks("python", "Your own data")
    exec(compile(snippet, "README.md", "exec"), {})
    (shown,) = blocks("console", "Your own data")
    assert len(commands(shown)) == 2
    for arguments in commands(shown):
        done = cli(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/mine_kd/manifest.json").is_file()


def test_the_demos_block_is_what_the_demo_prints(cli: Cli, tmp_path: Path) -> None:
    recipe = (REPOSITORY / "Makefile").read_text().split("\ndemo: ")[1].split("\n\n")[0].replace("$(DEMO)", "data/demo")
    said = ""
    for line in re.findall(r"^\t\$\(BIN\)/spanloom (.*)$", recipe, flags=re.MULTILINE):
        done = cli(*shlex.split(line), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    (shown,) = blocks("text", "Try it")[:1]
    for line in shown.splitlines():
        assert line.rstrip() in [printed.rstrip() for printed in said.splitlines()]


def test_every_command_of_the_table_exists(cli: Cli) -> None:
    table = README.split("| command | what it does |")[1].split("\n\n")[0]
    names = re.findall(r"`spanloom ([a-z-]+)", table)
    assert len(names) >= 7
    for name in names:
        assert cli(name, "--help").returncode == 0, name
