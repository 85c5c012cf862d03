"""What a training script needs around its model: flags, the process group, exit codes."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import torch
import torch.distributed as dist

from spanloom.errors import EXIT_INTERRUPTED, SpanloomError
from spanloom.text import visible

T = TypeVar("T")


def run(train: Callable[[T], None], options: type[T], teach: str, arguments: list[str] | None = None) -> int:
    """Calls `train` with the flags, in a process group. Returns the exit code."""
    given = parse(options, teach, arguments)
    try:
        with process_group():
            train(given)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume from the last checkpoint", file=sys.stderr)
        return EXIT_INTERRUPTED
    except SpanloomError as error:
        # Not handled by the `spanloom` command: torchrun starts the script, and every rank exits by itself.
        print(visible(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    return 0


def parse(options: type[T], teach: str, arguments: list[str] | None = None) -> T:
    """A flag for each field of a dataclass, `Annotated` with its help and, for a number, the least that it may be.

    A field without a default is required; a bool becomes a switch. `teach`: the description.
    """
    parser = argparse.ArgumentParser(description=teach, formatter_class=argparse.RawDescriptionHelpFormatter)
    least: dict[str, int] = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        assert get_origin(hint) is Annotated, name
        kind, text, *minimum = get_args(hint)
        if minimum:
            least[name] = minimum[0]
        default = getattr(options, name, None)
        more: dict[str, Any] = {"type": get_args(kind)[0] if isinstance(kind, UnionType) else kind}
        if more["type"] is bool:
            more = {"action": argparse.BooleanOptionalAction}
        elif isinstance(default, str) and get_args(kind):
            more = {"choices": get_args(kind)}
        shown = f"{text}." if default is None else f"{text} (default: {default})."
        required = not hasattr(options, name)
        parser.add_argument(_flag(name), default=default, help=shown, required=required, **more)
    given = vars(parser.parse_args(arguments))
    for name, value in least.items():
        if given[name] < value:
            parser.error(f"{_flag(name)} is {given[name]}: give {value} or more")
    return options(**given)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def device() -> torch.device:
    """This rank's GPU where there is one, else the CPU."""
    cuda = torch.cuda.is_available()
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """torchrun's process group, or a group of this process only; nccl on GPUs, otherwise gloo."""
    backend = "gloo"
    if (place := device()).type == "cuda":
        torch.cuda.set_device(place)
        backend = "nccl"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
