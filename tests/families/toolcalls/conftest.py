"""The rules of the tool-call family worked out on small cases."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spanloom.cli import main
from support.cases import cases_of
from support.toolcall_datasets import built, data, template, tokenizer

__all__ = ["built", "data", "template", "tokenizer"]


@pytest.fixture(scope="session")
def toolcall_cases() -> Path:
    """The folder with `fixtures/`, `schema/` and `registries/`."""
    return cases_of("toolcalls")


@pytest.fixture(scope="session")
def fixtures(toolcall_cases: Path) -> Path:
    return toolcall_cases / "fixtures"


def values(path: Path) -> Any:
    return json.loads(path.read_bytes())


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("validate", "--data", file)` → how `spanloom toolcalls validate --data FILE` ended."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["spanloom", "toolcalls", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return Ended(int(end.value.code or 0), said.out, said.err)

    return run
