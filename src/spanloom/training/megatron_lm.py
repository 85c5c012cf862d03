"""Imports `pretrain_gpt.py` of the user's Megatron-LM as a module, and replaces functions in it.

In: the folder of a Megatron-LM checkout, or PYTHONPATH. Out: a `LaunchScript`, or an error that reports what was found.

`pretrain_gpt.py` is not a library. This module inspects the file, not its version. From 0.16 to 0.19 and in main,
`get_batch` returns a sequence; `forward_step` names its values, one of them `loss_mask`, and passes that to
`loss_func`; the block below `if __name__ == "__main__"` calls `pretrain`, with arguments that differ between versions.
So the module is imported, names in it are replaced, and that block runs unchanged.
"""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from spanloom.errors import DatasetError

SCRIPT = "pretrain_gpt"
_KNOWN = "this entry knows Megatron-LM 0.16 to 0.19; use one of these, or open an issue with your version"


@dataclass(frozen=True, kw_only=True)
class LaunchScript:
    """`pretrain_gpt.py`, imported.

    `batch_names`: the names that `forward_step` gives to the values of `get_batch`. `launch`: the block below
    `if __name__ == "__main__"`, compiled.
    """

    module: ModuleType
    path: Path
    batch_names: tuple[str, ...]
    launch: CodeType

    def run(self) -> None:
        """Runs the block as `python pretrain_gpt.py` would; it reads `sys.argv`."""
        exec(self.launch, vars(self.module))


def load_script(megatron_lm: Path | None) -> LaunchScript:
    """Imports `pretrain_gpt.py` from a folder, or, for None, from Python's path. Raises DatasetError."""
    if megatron_lm is not None:
        if not (megatron_lm / f"{SCRIPT}.py").is_file():
            raise DatasetError(
                f"there is no {SCRIPT}.py in this folder",
                where=str(megatron_lm),
                remedy="name the root of a Megatron-LM checkout with --megatron-lm DIR",
            )
        sys.path.insert(0, str(megatron_lm))
    spec = importlib.util.find_spec(SCRIPT)
    if spec is None or spec.origin is None:
        raise DatasetError(
            f"Megatron-LM's {SCRIPT}.py was not found",
            remedy="name the root of a Megatron-LM checkout with --megatron-lm DIR, or put it on PYTHONPATH; the "
            "package megatron-core does not bring it",
        )
    path = Path(spec.origin)
    launch, batch_names = read_script(path)
    try:
        module = importlib.import_module(SCRIPT)
    except ImportError as fault:
        raise DatasetError(
            f"it cannot be imported: {fault}",
            where=str(path),
            remedy="install what is missing, and the megatron-core of the same version as this Megatron-LM",
        ) from fault
    return LaunchScript(module=module, path=path, batch_names=batch_names, launch=launch)


def read_script(path: Path) -> tuple[CodeType, tuple[str, ...]]:
    """The block to run, and the names of a batch's values, from the text of the script. Raises DatasetError."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (SyntaxError, ValueError) as fault:
        raise _unknown(path, f"it is not Python: {fault}") from fault
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.dump(node.test)]
    if len(blocks) != 1:
        raise _unknown(path, f'{len(blocks)} blocks `if __name__ == "__main__"`, expected 1')
    steps = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "forward_step"]
    if len(steps) != 1:
        raise _unknown(path, f"{len(steps)} functions forward_step, expected 1")
    unpacked = [
        tuple(map(ast.unparse, node.targets[0].elts))
        for node in ast.walk(steps[0])
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "get_batch"
        and isinstance(node.targets[0], ast.Tuple)
    ]
    if len(unpacked) != 1 or unpacked[0].count("loss_mask") != 1 or any(name[0] == "*" for name in unpacked[0]):
        raise _unknown(
            path, f"forward_step takes these from get_batch, expected names, one of them loss_mask: {unpacked}"
        )
    return compile(ast.Module(blocks[0].body, type_ignores=[]), str(path), "exec"), unpacked[0]


def swap(module: ModuleType | type, name: str, replaced_by: Callable[[Any], Any], *parameters: str) -> None:
    """Sets `module.name` to `replaced_by(module.name)`.

    `parameters`: expected names of the first parameters of the original. Raises DatasetError if anything differs.
    """
    path = Path(getattr(module, "__file__", None) or module.__name__)
    if not hasattr(module, name):
        raise _unknown(path, f"no name {name}")
    original = getattr(module, name)
    if parameters:
        has = tuple(inspect.signature(original).parameters)
        if has[: len(parameters)] != parameters:
            raise _unknown(path, f"{name}({', '.join(has)}), expected {name}({', '.join(parameters)}, …)")
    setattr(module, name, replaced_by(original))


def _unknown(path: Path, detail: str) -> DatasetError:
    return DatasetError(f"this is not the Megatron-LM that was expected: {detail}", where=str(path), remedy=_KNOWN)
