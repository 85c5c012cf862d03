"""The encoder's tables, loaded in the background: more than a second, once a process.

In: the verified asset. Out: a future of fastokens' tokenizer. Imports next to nothing, so that a worker can begin with
this and import its libraries meanwhile, for loading holds no GIL.
"""

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

PACKAGE = "fastokens"

_loading: dict[Path, "Future[Any]"] = {}
_loading_lock = threading.Lock()


def load_ahead(asset: Path) -> "Future[Any]":
    """Begins to load the tokenizer in a thread, if this process has not begun yet. Returns at once."""
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
        # At its first batch of several texts it would start a thread for each core that it sees, in each worker. Work
        # is divided among processes here, so let it see one core. Only this thread is held to it, and it ends here.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        tokenizer.encode_batch_flat(["two", "texts"])
    except BaseException as fault:
        future.set_exception(fault)
    else:
        future.set_result(tokenizer)
