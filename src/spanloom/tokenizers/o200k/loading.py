"""The encoder's tables, loaded in the background: more than a second, once per process.

In: the verified asset. Out: a future of fastokens' tokenizer. Imports very little, so that a worker can start
this first and import its libraries meanwhile: loading does not hold the GIL.
"""

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from spanloom.machine import give_back_freed_memory

PACKAGE = "fastokens"

_loading: dict[Path, "Future[Any]"] = {}
_loading_lock = threading.Lock()


def load_ahead(asset: Path) -> "Future[Any]":
    """Starts to load the tokenizer in a thread, unless this process has already started. Returns immediately."""
    with _loading_lock:
        if asset not in _loading:
            future = _loading[asset] = Future()
            threading.Thread(target=_load, args=(asset, future), daemon=True).start()
        return _loading[asset]


def has_begun(asset: Path) -> bool:
    """Whether this process has loaded the tokenizer, or is about to."""
    return asset in _loading


def _load(asset: Path, future: "Future[Any]") -> None:
    try:
        import fastokens

        tokenizer = fastokens.Tokenizer.from_tiktoken(str(asset), encoding="o200k_base", special_tokens={})
        # fastokens starts a thread for each visible core at its first batch of several texts, in each worker. Work is
        # divided among processes here, so it may see only one core. Only this thread is limited, and it ends here.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        tokenizer.encode_batch_flat(["two", "texts"])
        give_back_freed_memory()
    except BaseException as fault:
        future.set_exception(fault)
    else:
        future.set_result(tokenizer)
