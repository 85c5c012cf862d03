"""Fixtures that more than one test folder uses. Small sources are made by `sources`, in tests/sources.py."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import openai_harmony
import pytest

from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.tokenizers.o200k.asset import locate_asset, verify_asset
from support.given import REPOSITORY, given_folder

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def asset() -> Path:
    """The verified tokenizer asset. `make setup` brings it."""
    path = locate_asset()
    return verify_asset(path if path.is_file() else REPOSITORY / path).resolve()


@pytest.fixture(scope="session")
def encoding(asset: Path) -> openai_harmony.HarmonyEncoding:
    return load_encoding(asset)


@pytest.fixture(scope="session")
def real_sample() -> Path:
    """500 real SYNTH conversations with the arrays they must become; not part of the repository.

    $SPANLOOM_SAMPLE names it; SPANLOOM_REQUIRE_SAMPLE=1 turns its absence from a skip into a failure.
    """
    return given_folder("the real sample is", "SPANLOOM_SAMPLE", "shared/data/synth_kd_sample")


@pytest.fixture(scope="session")
def cli(asset: Path) -> Cli:
    """Runs the `spanloom` command in a process of its own: `cli("build", "--source", …)`."""

    def run(*arguments: object, cwd: Path | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "spanloom", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env={**os.environ, "O200K_HARMONY_VOCAB_PATH": str(asset), "SPANLOOM_GIT_SHA": "0" * 40, **environment},
        )

    return run


@pytest.fixture(autouse=True)
def _settled_environment(asset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run from any folder and any checkout: the asset and the git SHA are said, not searched."""
    monkeypatch.setenv("O200K_HARMONY_VOCAB_PATH", str(asset))
    monkeypatch.setenv("SPANLOOM_GIT_SHA", "0" * 40)
