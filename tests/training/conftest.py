"""Megatron-LM's launching code, for the tests that run it."""

from pathlib import Path

import pytest

from support.cases import beside
from support.megatron_lm import CORE, MegatronLM, launcher
from support.requirements import MEGATRON_LM, absent


@pytest.fixture(scope="session")
def megatron_lm() -> Path:
    """The folder with the launching code of Megatron-LM, `0.16.1/` and `0.19.0/`, and `cpu_shim.py`."""
    folder = beside("SPANLOOM_MEGATRON_LM", "megatron-lm")
    return folder if (folder / "cpu_shim.py").is_file() else absent(MEGATRON_LM, f"{folder} has no cpu_shim.py")


@pytest.fixture(scope="session", params=list(CORE))
def version_of_megatron_lm(request: pytest.FixtureRequest, megatron_lm: Path) -> MegatronLM:
    """Each version: in this environment, or in that of `make setup-next`."""
    return launcher(megatron_lm, request.param)


@pytest.fixture(scope="session")
def both_versions(megatron_lm: Path) -> list[MegatronLM]:
    return [launcher(megatron_lm, each) for each in CORE]
