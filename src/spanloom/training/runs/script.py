"""What a training script needs around its model: flags, and the process group."""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import torch.distributed as dist


def flag_parser(program: str, description: str, epilog: str) -> tuple[argparse.ArgumentParser, Callable[..., None]]:
    """Returns a parser, and `flag(name, default, text, …)`, which adds a flag whose help names its default."""
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


def add_flags(flag: Callable[..., None], options: type) -> None:
    """Adds a flag for each dataclass field that is `Annotated` with its help; a path is required, a bool a switch."""
    for name, hint in get_type_hints(options, include_extras=True).items():
        if get_origin(hint) is Annotated:
            kind, text = get_args(hint)
            default: Any = getattr(options, name, None)
            more = {"type": kind, "required": True} if kind is Path else {}
            if kind is bool:
                default, more = None, {"action": "store_true"}
            if get_args(kind):
                more = {"choices": get_args(kind)}
            flag(name.replace("_", "-"), default, text, **more)


@contextlib.contextmanager
def process_group(backend: str = "gloo") -> Iterator[None]:
    """torchrun's process group, or a group of this process only."""
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
