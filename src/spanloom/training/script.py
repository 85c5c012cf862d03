"""What a training script does around its model: flags, and the process group."""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist


def flag_parser(program: str, description: str, epilog: str) -> tuple[argparse.ArgumentParser, Callable[..., None]]:
    """A parser, and `flag(name, default, text, …)`, which adds a flag whose help names its default."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def flag(name: str, default: Any, text: str, **more: Any) -> None:
        kind = {} if default is None else {"type": type(default), "default": default}
        shown = f"{text}." if default is None else f"{text} (default: {default})."
        parser.add_argument(f"--{name}", help=shown, **{**kind, **more})

    return parser, flag


@contextlib.contextmanager
def process_group(backend: str = "gloo") -> Iterator[None]:
    """torchrun's process group, or one of this process alone."""
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
