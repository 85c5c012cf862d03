"""Importing this module imports all of Spanloom, what it imports where it is used, and the tables of both tokenizers.

For a process that is forked: a fork that asks for any of it has it at once. `O200K_HARMONY_VOCAB_PATH` names the asset.
"""

import atexit
import ctypes
import gc
import importlib.metadata
import multiprocessing
import os
import pkgutil
import warnings
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import fastokens
import torch
import transformers
import typer

import spanloom
from spanloom import families
from spanloom.cli.app import app
from spanloom.families.harmony.tiktoken_encoding import load_tiktoken
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.provenance import code_sha256
from spanloom.report.pages import html
from support.stores.amazon_models import share_models

MAIN_PROCESS = multiprocessing.current_process()
"""What a command that was forked takes itself for."""

_ASSET = Path(os.environ["O200K_HARMONY_VOCAB_PATH"]).resolve()
_IMPORTED_WHERE_USED = (
    "encodings.utf_8_sig",
    "jsonschema",
    "megatron.core.datasets.indexed_dataset",
    "multiprocessing.sharedctypes",
    "rich._emoji_codes",
    "typer._adapters",
)
_OPTIONS = {"encoding": "o200k_base", "special_tokens": {}}


def _import_everything() -> None:
    with warnings.catch_warnings(action="ignore"):
        for module in pkgutil.walk_packages(spanloom.__path__, "spanloom."):
            if not module.name.endswith("__main__"):
                __import__(module.name)
        for name in _IMPORTED_WHERE_USED:
            __import__(name)


def _load_tokenizers_once() -> None:
    """Loading takes three seconds. Modules that import fastokens' loader by its name get the replaced one: they come
    later. No text is encoded in it here: the first batch would start a thread.
    """
    load_encoding(_ASSET)
    load_tiktoken(_ASSET)
    from_file, from_tiktoken = fastokens.Tokenizer.from_file, fastokens.Tokenizer.from_tiktoken
    fast = from_tiktoken(str(_ASSET), **_OPTIONS)

    class Tokenizer:
        @staticmethod
        def from_file(path: str) -> Any:
            return from_file(path)

        @staticmethod
        def from_tiktoken(path: str, **options: Any) -> Any:
            same = Path(path).resolve() == _ASSET and options == _OPTIONS
            return fast if same else from_tiktoken(path, **options)

    fastokens.Tokenizer = Tokenizer  # type: ignore[misc]


def _prepare_libraries() -> None:
    """Jinja's templates, S3's description and typer's commands take 0.1 s each, models of transformers 2 s; libraries'
    versions 10 ms a time, the hash of the sources 30 ms.
    """
    command = typer.main.get_command(app)
    get_command = typer.main.get_command
    typer.main.get_command = lambda of: command if of is app else get_command(of)
    importlib.metadata.version = cache(importlib.metadata.version)
    transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM, transformers.Trainer  # noqa: B018
    for family in Path(families.__file__).parent.glob("*/__init__.py"):
        code_sha256(family.parent.name)
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


def _take_huge_pages() -> None:
    """A fork copies the table of what is here: 2 ms of CPU time for pages of 2 MiB, 15 ms for those of 4 KiB.

    Where the system cannot (Linux before 6.1, or without huge pages), all stays as it is.
    """
    advise, collapse, size = ctypes.CDLL(None).madvise, 25, 1 << 21
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, *_, inode = line.split(maxsplit=5)[:5]
        if access == "rw-p" and inode == "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            for place in range(-(-start // size) * size, end - size + 1, size):
                advise(place, size, collapse)


_load_tokenizers_once()
_import_everything()
_prepare_libraries()
_forget_what_torch_does_at_exit()
_check_threads()
gc.freeze()
_take_huge_pages()
