"""Importing this module imports all of Spanloom, what it imports where it is used, and the tables of both tokenizers.

For a process that is forked: a fork that asks for any of it has it at once. `O200K_HARMONY_VOCAB_PATH` names the asset.
"""

import gc
import multiprocessing
import os
import pkgutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import fastokens
import openai_harmony

import spanloom

MAIN_PROCESS = multiprocessing.current_process()
"""What a command that was forked takes itself for."""

_ASSET = Path(os.environ["O200K_HARMONY_VOCAB_PATH"]).resolve()
_GPT_OSS = openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS
_OPTIONS = {"encoding": "o200k_base", "special_tokens": {}}


def _import_everything() -> None:
    with warnings.catch_warnings(action="ignore"):
        for module in pkgutil.walk_packages(spanloom.__path__, "spanloom."):
            if not module.name.endswith("__main__"):
                __import__(module.name)
        from megatron.core.datasets import indexed_dataset  # noqa: F401


def _load_tokenizers_once() -> None:
    """Loading takes two seconds. No text is encoded here: the first batch would start a thread."""
    load, from_tiktoken = openai_harmony.load_harmony_encoding, fastokens.Tokenizer.from_tiktoken
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "o200k_base.tiktoken").symlink_to(_ASSET)
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = directory
        harmony = load(_GPT_OSS)
        del os.environ["TIKTOKEN_ENCODINGS_BASE"]
    fast = from_tiktoken(str(_ASSET), **_OPTIONS)

    class Tokenizer:
        @staticmethod
        def from_tiktoken(path: str, **options: Any) -> Any:
            same = Path(path).resolve() == _ASSET and options == _OPTIONS
            return fast if same else from_tiktoken(path, **options)

    fastokens.Tokenizer = Tokenizer  # type: ignore[misc]
    openai_harmony.load_harmony_encoding = lambda name: harmony if name == _GPT_OSS else load(name)


def _check_threads() -> None:
    """A fork has one thread: what others were doing would never end. Arrow's allocator looks after its own."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    names = {(task / "comm").read_text().strip() for task in tasks} - {"jemalloc_bg_thd"}
    if names:
        raise RuntimeError(f"threads were started before the first fork: {sorted(names)}")


_import_everything()
_load_tokenizers_once()
_check_threads()
gc.freeze()
