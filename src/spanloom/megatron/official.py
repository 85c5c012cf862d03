"""Megatron Core's own reader of IndexedDatasets, for validation.

In: a prefix. Out: Megatron's `IndexedDataset`: its own code, from its own file. It reads with NumPy alone, so neither
torch nor the rest of megatron-core is imported for it.
"""

import builtins
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from logging import Logger
from pathlib import Path
from types import ModuleType, SimpleNamespace
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


def open_indexed(prefix: Path) -> Any:
    """Megatron's own `IndexedDataset` over `prefix`.bin and .idx.

    Read through a file handle, not a memory map: mapped pages would count as memory and grow with the dataset.
    """
    return _indexed_dataset()(str(prefix), mmap=False)


_CORE = "megatron.core."
_READER = _CORE + "datasets.indexed_dataset"
_OF_STORES = ("boto3", "botocore", "multistorageclient")
"""Optional packages with which the reader would open `s3://` and `msc://`. Only local files are given to it."""


@cache
def _indexed_dataset() -> Any:
    if _READER not in sys.modules:
        try:
            return _Alone().load(_READER).IndexedDataset
        except Exception:  # a release whose reader needs more when it is imported gets all of it
            pass
    with warnings.catch_warnings():
        # megatron-core warns on import that Apex and TransformerEngine are missing; reading files needs neither.
        warnings.simplefilter("ignore")
        return import_module(_READER).IndexedDataset


class _Torch(ModuleType):
    """What the reader's file uses of torch to define its classes. Any other attribute imports torch and is torch's."""

    Tensor = object
    utils = SimpleNamespace(data=SimpleNamespace(Dataset=object))

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("torch"), name)


def _log_single_rank(logger: Logger, level: int, message: str, **_: object) -> None:
    logger.log(level, message)


class _Alone:
    """Loads modules of megatron-core without its packages' `__init__` and with `_Torch` for torch.

    The modules get an `__import__` of their own. Nothing is put into `sys.modules`, so the process can import torch and
    megatron-core as ever.
    """

    def __init__(self) -> None:
        locations = getattr(find_spec("megatron"), "submodule_search_locations", None) or ()
        self._folders = [Path(location, "core") for location in locations]
        utils = ModuleType(f"{_CORE}utils")  # the rest of it is for training, and imports half of torch
        vars(utils)["log_single_rank"] = _log_single_rank
        self._loaded: dict[str, ModuleType] = {"torch": _Torch("torch"), utils.__name__: utils}

    def load(self, name: str) -> ModuleType:
        """The module of this name below `megatron.core`. Raises whatever its code raises."""
        if name not in self._loaded:
            relative = name.removeprefix(_CORE).replace(".", "/") + ".py"
            file = next(folder / relative for folder in self._folders if (folder / relative).is_file())
            spec = spec_from_file_location(name, file)
            assert spec is not None
            assert spec.loader is not None
            module = self._loaded[name] = module_from_spec(spec)
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
            spec.loader.exec_module(module)
        return self._loaded[name]

    def _import(
        self, name: str, in_globals: Any = None, in_locals: Any = None, fromlist: Sequence[str] = (), level: int = 0
    ) -> ModuleType:
        if name.partition(".")[0] in _OF_STORES:
            raise ModuleNotFoundError(name)
        if name in self._loaded or name.startswith(_CORE):
            return self.load(name)
        return builtins.__import__(name, in_globals, in_locals, fromlist, level)
