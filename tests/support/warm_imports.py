"""Importing this module imports all of Spanloom, what it imports where it is used, and the tables of both tokenizers.

For a process that is forked: a fork that asks for any of it has it at once. `O200K_HARMONY_VOCAB_PATH` names the asset.
"""

import atexit
import gc
import multiprocessing
import os
import pkgutil
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any

import boto3
import fastokens
import openai_harmony
import tiktoken
import torch

import spanloom
from spanloom.families.harmony import tiktoken_encoding
from spanloom.report.pages import html
from spanloom.report.pages.plots import load_plotting
from spanloom.tokenizers.o200k.asset import verify_asset
from support.stores.amazon_models import share_models

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
    """Loading takes three seconds. Modules that import a loader by its name get the replaced one: they come later.

    No text is encoded here: the first batch would start a thread.
    """
    load, from_tiktoken = openai_harmony.load_harmony_encoding, fastokens.Tokenizer.from_tiktoken
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "o200k_base.tiktoken").symlink_to(_ASSET)
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = directory
        harmony = load(_GPT_OSS)
        del os.environ["TIKTOKEN_ENCODINGS_BASE"]
    fast = from_tiktoken(str(_ASSET), **_OPTIONS)

    from_file = fastokens.Tokenizer.from_file

    class Tokenizer:
        @staticmethod
        def from_file(path: str) -> Any:
            return from_file(path)

        @staticmethod
        def from_tiktoken(path: str, **options: Any) -> Any:
            same = Path(path).resolve() == _ASSET and options == _OPTIONS
            return fast if same else from_tiktoken(path, **options)

    load_tiktoken = tiktoken_encoding.load_tiktoken
    second = load_tiktoken(_ASSET)

    def load_second(asset: Path) -> tiktoken.Encoding:
        return second if verify_asset(asset).resolve() == _ASSET else load_tiktoken(asset)

    tiktoken_encoding.load_tiktoken = load_second
    fastokens.Tokenizer = Tokenizer  # type: ignore[misc]
    openai_harmony.load_harmony_encoding = lambda name: harmony if name == _GPT_OSS else load(name)


def _prepare_libraries() -> None:
    """matplotlib's first drawing takes half a second, Jinja's templates and S3's description 0.1 s each."""
    load_plotting()
    environment = html._environment()
    for name in environment.list_templates(extensions=["j2"]):
        environment.get_template(name)
    share_models()
    boto3.client("s3", region_name="us-east-1")


def _forget_what_torch_does_at_exit() -> None:
    """Each fork would run it: 190 libraries of operators taken apart, 0.1 s of CPU time for each command."""
    atexit.unregister(torch._dynamo.utils.dump_compile_times)
    for each in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        each.atexit = False


def _check_threads() -> None:
    """A fork has one thread: what others were doing would never end. Arrow's allocator looks after its own."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    names = {(task / "comm").read_text().strip() for task in tasks} - {"jemalloc_bg_thd"}
    if names:
        raise RuntimeError(f"threads were started before the first fork: {sorted(names)}")


_load_tokenizers_once()
_import_everything()
_prepare_libraries()
_forget_what_torch_does_at_exit()
_check_threads()
gc.freeze()
