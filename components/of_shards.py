"""Components with one input per shard. A list of artifacts can only come from a ParallelFor, whose tasks Kubeflow does
not retry.

In: a function whose first parameter is the sequence of these inputs. Out: the same with one parameter per input.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

DEFAULT_SHARDS = 4
"""Shards of the locked layout, the default of the steps."""


def each(name: str, shards: int) -> list[str]:
    """Names of the inputs: `each("ids", 2)` is `ids_00`, `ids_01`."""
    return [f"{name}_{shard:02d}" for shard in range(shards)]


def with_inputs(names: Sequence[str], kind: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Puts one parameter of the type `kind` for each name in the place of a function's first parameter."""

    def join(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        own = list(signature.parameters.values())[1:]
        inputs = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name in names]

        @wraps(function)
        def joined(*given: Any) -> Any:
            return function(given[: len(names)], *given[len(names) :])

        joined.__signature__ = signature.replace(parameters=[*inputs, *own])  # type: ignore[attr-defined]
        return joined

    return join
