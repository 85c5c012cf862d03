"""Megatron Core's own reader of IndexedDatasets, for validation.

In: a prefix. Out: Megatron's `IndexedDataset`. torch and megatron-core are imported on first use.
"""

import gc
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
    """Raises SpanloomError if megatron-core or torch is not installed, before any work starts."""
    if missing := missing_packages():
        raise SpanloomError(
            f"{' and '.join(missing)} cannot be imported, and validation reads through Megatron's own code",
            remedy="pip install 'spanloom[megatron]', or validate without it: --reader independent",
        )


def missing_packages() -> list[str]:
    """The packages of Megatron's reader that are not installed."""
    return [name for name in ("torch", "megatron") if find_spec(name) is None]


def load_reader() -> None:
    """Imports Megatron's reader before it is needed, for a process that does nothing else with torch: it takes seconds.

    On import megatron-core passes functions to torch.compile, for which torch loads its compiler. Reading files needs
    no compilation, so torch.compile is replaced by a function that returns its argument, which saves more than half of
    the time; it is put back, and later calls of it compile. Leaving out modules that only a trainer needs
    (`_without_the_trainer`) cuts the remaining import of megatron-core to about a tenth. Has no effect if torch is
    already imported.
    """
    if "torch" in sys.modules:
        _indexed_dataset()
        return
    collected = gc.isenabled()
    gc.disable()  # importing leaves almost no garbage, and collection takes a sixth of the time
    try:
        import torch

        before = torch.compile
        torch.compile = _uncompiled
        try:
            try:
                with _without_the_trainer():
                    _indexed_dataset()
            except Exception:  # in this release the reader needs more modules
                _indexed_dataset()
        finally:
            torch.compile = before
    finally:
        if collected:
            gc.enable()


_CORE = "megatron.core"
_OF_TRAINING = ("torch.distributed._tensor", "torch.distributed._symmetric_memory")
"""Modules that megatron-core can do without: sharded tensors, and kernels for several GPUs. The first imports
SymPy."""


@contextmanager
def _without_the_trainer() -> Iterator[None]:
    """Inside the block, imports from megatron-core skip the package's `__init__`, which imports the trainer.

    Afterwards these modules are removed from `sys.modules`, so a later import of megatron-core gets the whole package.
    Objects that were imported stay valid: Megatron's own code, from its own files.
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
    """Replaces torch.compile, called directly or as a decorator with options; returns the function unchanged."""
    return _uncompiled if function is None else function


def open_indexed(prefix: Path) -> Any:
    """Megatron's own `IndexedDataset` over `prefix`.bin and .idx.

    Read through a file handle, not a memory map: mapped pages would count as memory and grow with the dataset.
    """
    return _indexed_dataset()(str(prefix), mmap=False)


_importing = threading.Lock()


@cache
def _indexed_dataset() -> Any:
    # Warning filters are global to the process: two threads at once could leave them changed.
    with _importing, warnings.catch_warnings():
        # megatron-core warns on import that Apex and TransformerEngine are missing; reading files needs neither.
        warnings.simplefilter("ignore")
        from megatron.core.datasets.indexed_dataset import IndexedDataset

    return IndexedDataset
