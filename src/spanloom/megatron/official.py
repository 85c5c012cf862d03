"""Megatron Core's own reader of IndexedDatasets: what validation goes by.

In: a prefix. Out: Megatron's `IndexedDataset`. torch and megatron-core are imported when it is first asked for.
"""

import gc
import os
import sys
import threading
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spanloom.errors import SpanloomError


def require_megatron() -> None:
    """Raises SpanloomError when megatron-core or torch is not installed: better before the work than after it."""
    missing = [name for name in ("torch", "megatron") if find_spec(name) is None]
    if missing:
        raise SpanloomError(
            f"{' and '.join(missing)} cannot be imported, and validation reads through Megatron's own code",
            remedy="install the extra: pip install 'spanloom[megatron]'",
        )


def load_reader() -> None:
    """Imports Megatron's reader ahead of its use, for a process that does nothing else with torch: it takes seconds.

    On import megatron-core hands functions to torch.compile, for which torch loads its compiler. Reading files compiles
    nothing, so it is disabled, and returns the functions back as they are, which saves more than half of the
    time. Has no effect once torch is there.
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
            _indexed_dataset()
        finally:
            torch.compile = before
    finally:
        gc.enable()


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
