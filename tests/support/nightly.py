"""What `make test` leaves to the nightly run: SPANLOOM_NIGHTLY=1 runs it.

A test or a parameter with the mark `nightly` is deselected otherwise; drawn tests draw fewer.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

NIGHTLY = os.environ.get("SPANLOOM_NIGHTLY", "") not in ("", "0")


def drawn(nightly: int, otherwise: int) -> int:
    """How many a test draws."""
    return nightly if NIGHTLY else otherwise


def nightly(*values: object) -> Any:
    """A parameter set that only the nightly run has."""
    return pytest.param(*values, marks=pytest.mark.nightly)


def one_in(every: int, names: Iterable[str]) -> list[Any]:
    """Parameters: all names, of which `make test` takes one in so many."""
    return [nightly(name) if number % every else name for number, name in enumerate(names)]


def on_one_store(names: Iterable[str]) -> list[Any]:
    """Parameters (store, name): each name with each store; `make test` takes one store a name, in turn."""
    stores = ("gs", "s3")
    pairs = [(number, store, name) for number, name in enumerate(names) for store in stores]
    return [
        pytest.param(store, name) if stores[number % 2] == store else nightly(store, name)
        for number, store, name in pairs
    ]
