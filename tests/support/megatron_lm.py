"""Megatron-LM's launching code, which is not part of the repository, and the Python that runs each version of it."""

import os
import re
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from support.cases import REPOSITORY
from support.requirements import NEXT_PYTHON, absent

CORE = {"0.16.1": "0.16", "0.19.0": "0.19"}
"""Version of Megatron-LM → of the megatron-core that it runs with."""


CPU = (
    "--transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion "
    "--no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion --distributed-backend gloo --num-workers 0 "
    "--use-cpu-initialization"
)
"""What its script needs where there is no GPU."""

Figures = list[dict[str, str]]


@dataclass(frozen=True)
class MegatronLM:
    """One version: its folder, a Python that has its megatron-core, and what a process on a CPU needs to see."""

    folder: Path
    python: Path

    @property
    def environment(self) -> dict[str, str]:
        path = [REPOSITORY / "src", REPOSITORY / "tests", self.folder, self.folder.parent]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "STUB_TRITON": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
            "OMP_NUM_THREADS": "1",
        }


def launcher(megatron_lm: Path, which: str) -> MegatronLM:
    if version("megatron-core").startswith(CORE[which]):
        return MegatronLM(megatron_lm / which, Path(sys.executable))
    python = Path(os.environ.get("SPANLOOM_NEXT_PYTHON") or REPOSITORY / ".venv-next/bin/python")
    if which != "0.19.0" or not python.is_file():
        absent(NEXT_PYTHON, f"Megatron-LM {which} needs megatron-core {CORE[which]}")
    return MegatronLM(megatron_lm / which, python)


def figures(output: str) -> Figures:
    """What Megatron logged of losses, as it is printed: two steps, valid twice (the second after the last step)."""
    lines = [line for line in output.splitlines() if "lm loss" in line]
    logged = [dict(re.findall(r"\| ((?:\w+ )?\w+)(?: value)?: ([-+.\dE]+)(?= \|)", line)) for line in lines]
    wanted = ("loss", "tokens", "weight", "norm")
    return [{name: value for name, value in each.items() if name.endswith(wanted)} for each in logged]
