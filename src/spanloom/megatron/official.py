"""Megatron Core's own reader of IndexedDatasets: what validation goes by.

In: a prefix. Out: Megatron's `IndexedDataset`. torch and megatron-core are imported when it is first asked for.
"""

import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from spanloom.errors import SpanloomError


def require_megatron() -> None:
    """Raises SpanloomError when megatron-core or torch is not installed: better before the work than after it."""
    if missing := missing_packages():
        raise SpanloomError(
            f"{' and '.join(missing)} cannot be imported, and validation reads through Megatron's own code",
            remedy="pip install 'spanloom[megatron]', or validate without it: --reader independent",
        )


def missing_packages() -> list[str]:
    """Of what Megatron's reader needs, the packages that are not installed."""
    return [name for name in ("torch", "megatron") if find_spec(name) is None]


def load_reader() -> None:
    """Imports Megatron's reader ahead of its use, for a process that does nothing else with torch: it takes seconds.

    On import megatron-core hands functions to torch.compile, for which torch loads its compiler. Reading files compiles
    nothing, so torch.compile is switched off and returns the functions as they are, which saves more than half of the
    time; without what only a trainer needs (`_without_the_trainer`) it takes a tenth of the rest. Has no effect once
    torch is there.
    """
    if "torch" in sys.modules:
        _indexed_dataset()
        return
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    gc.disable()  # importing leaves next to no garbage, and looking for it takes a sixth of the time
    try:
        import torch

        before = torch.compile
        torch.compile = _uncompiled
        try:
            try:
                with _without_the_trainer():
                    _indexed_dataset()
            except Exception:  # this release needs more of itself for its reader
                _indexed_dataset()
        finally:
            torch.compile = before
    finally:
        gc.enable()


_CORE = "megatron.core"
_OF_TRAINING = ("torch.distributed._tensor", "torch.distributed._symmetric_memory")
"""What megatron-core does without where it is not installed: sharded tensors, and kernels for several GPUs. The first
brings SymPy."""


@contextmanager
def _without_the_trainer() -> Iterator[None]:
    """Inside, what is imported of megatron-core comes without the package's `__init__`, which imports the trainer.

    Afterwards none of it is in `sys.modules`: who imports megatron-core then gets all of it. What was imported stays
    as it is: Megatron's own code, from its own files.
    """
    package = ModuleType(_CORE)
    megatron = find_spec("megatron")
    locations = megatron.submodule_search_locations if megatron is not None else None
    package.__path__ = [str(Path(location, "core")) for location in locations or ()]
    left_out = [name for name in _OF_TRAINING if name not in sys.modules]
    sys.modules[_CORE] = package
    for name in left_out:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it raises ImportError
    try:
        import_module(f"{_CORE}.parallel_state")  # first, as the `__init__` does: it and `utils` import each other
        yield
    finally:
        for name in [name for name in sys.modules if name == _CORE or name.startswith(f"{_CORE}.")]:
            del sys.modules[name]
        for name in left_out:
            sys.modules.pop(name, None)
        if "megatron" in sys.modules:
            vars(sys.modules["megatron"]).pop("core", None)


def _uncompiled(function: Any = None, **_: Any) -> Any:
    """Replaces torch.compile, called or as a decorator with options: returns the function unchanged."""
    return _uncompiled if function is None else function


def open_indexed(prefix: Path) -> Any:
    """Megatron's own `IndexedDataset` over `prefix`.bin and .idx.

    Read through a file handle, not a memory map: mapped pages would count as memory and grow with the dataset.
    """
    return _indexed_dataset()(str(prefix), mmap=False)


_importing = threading.Lock()


@cache
def _indexed_dataset() -> Any:
    # The filters of warnings belong to the process: two threads at once could leave them changed.
    with _importing, warnings.catch_warnings():
        # megatron-core warns on import that Apex and TransformerEngine are missing; reading files needs neither.
        warnings.simplefilter("ignore")
        from megatron.core.datasets.indexed_dataset import IndexedDataset

    return IndexedDataset
