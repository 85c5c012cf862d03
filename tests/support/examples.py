"""The trainers in docs/examples/training: their names, and a run of one in this process.

`python -m support.script FILE …`, which `support.warm` and `support.ranks` take, is one in a process of its own.
"""

import runpy
from types import SimpleNamespace
from typing import Any

from conftest import REPOSITORY
from spanloom.training.runs import script

FOLDER = REPOSITORY / "docs/examples/training"
GPT, CHAT, CHESS = (FOLDER / f"{name}.py" for name in ("gpt", "chat", "chess"))


def load(file: Any) -> SimpleNamespace:
    """What the file defines. It reads the environment now."""
    return SimpleNamespace(**runpy.run_path(str(file)))


def main(file: Any, arguments: list[str]) -> int:
    """The exit code of a run with these flags."""
    example = load(file)
    return script.run(example.train, example.Options, "", arguments)
