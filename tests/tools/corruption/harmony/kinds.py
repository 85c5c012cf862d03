"""The list of forgeries, and what several of them need.

Each forgery changes one thing, and all that follows from it but for what only the format, the tokens or the source can
tell: hashes, counts, rows, and mask = (span > 0) agree.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tools.corruption.dataset import Dataset, Document, change
from tools.corruption.harmony.messages import Part, label, parts, replaced

Forge = Callable[[Dataset], Any]
Edit = Callable[[Document, Part], None]


@dataclass(frozen=True)
class Forgery:
    """`found`: with what it is found: `alone`, with the `source`, or with `all` rows rendered again.

    `base`: the name of the honest dataset.
    """

    found: str
    base: str
    forge: Forge


FORGERIES: dict[str, Forgery] = {}
"""Filled by the modules of forgeries."""


def forgery(found: str, base: str = "plain", name: str = "") -> Callable[[Forge], Forge]:
    """Registers a function under its name, or another."""

    def register(forge: Forge) -> Forge:
        called = name or forge.__name__.strip("_")
        assert called not in FORGERIES
        FORGERIES[called] = Forgery(found, base, forge)
        return forge

    return register


def on_parts(forgeries: Mapping[str, tuple[str, str, Edit]], *, at: int = -1, base: str = "plain") -> None:
    """Registers forgeries of one message: name → how it is found, the kinds of `with_parts`, the edit.

    `at`: which of the parts of the first kind is edited.
    """
    for name, (found, kinds, edit) in forgeries.items():

        def forge(dataset: Dataset, kinds: str = kinds, edit: Edit = edit) -> None:
            document, held = with_parts(dataset, *kinds.split())
            edit(document, held[at])

        forgery(found, base, name)(forge)


def _place(part: Part, at: str) -> int:
    """`body+1` is the second token of the text of a message."""
    name, *by = re.split("(?=[+-])", at)
    return int(getattr(part, name)) + sum(map(int, by))


def token(at: str, value: int | None = None) -> Edit:
    """Another token at a place; by default the one with the next id."""

    def edit(document: Document, part: Part) -> None:
        document.tokens[_place(part, at)] = document.tokens[_place(part, at)] + 1 if value is None else value

    return edit


def spanned(begin: str, end: str, span: int) -> Edit:
    """Another span for the tokens from `begin` to `end`."""
    return lambda document, part: label(document, _place(part, begin), _place(part, end), span)


def left_out(begin: str, end: str) -> Edit:
    """The tokens from `begin` to `end` are not there."""
    return lambda document, part: replaced(document, _place(part, begin), _place(part, end), [])


def on_manifest(forgeries: Mapping[str, tuple[str, str, str, Any]]) -> None:
    """Registers other values of the manifest: name → how it is found, the base, the path below `content`, the value.

    The value is one that `change` takes.
    """
    for name, (found, base, path, value) in forgeries.items():

        def forge(dataset: Dataset, path: str = path, value: Any = value) -> None:
            change(dataset.manifest["content"], path, value)

        forgery(found, base, name)(forge)


def documents(dataset: Dataset) -> Iterator[Document]:
    """Those of the first shard of train."""
    yield from dataset.documents["train", 0]


def with_parts(dataset: Dataset, *kinds: str) -> tuple[Document, list[Part]]:
    """The first document that trains a part of each of these kinds, and its parts of the first kind."""
    for document in documents(dataset):
        held = parts(document)
        if set(kinds) <= {part.kind for part in held}:
            return document, [part for part in held if part.kind == kinds[0]]
    raise AssertionError(kinds)


def alone_in_row(dataset: Dataset, several: bool = False) -> list[Document]:
    """The documents of conversations that have one document; with `several` the first ones of those that have more."""
    rows = [document.about["row"] for document in documents(dataset)]
    return [
        document
        for document in documents(dataset)
        if (rows.count(document.about["row"]) > 1) is several and document.about["cut"] == 0
    ]


def taken_out(dataset: Dataset, document: Document) -> None:
    """Removes a document of the first shard of train."""
    kept = [each for each in documents(dataset) if each is not document]
    dataset.documents["train", 0] = kept


def cutting(dataset: Dataset, shard: int = 0) -> dict[str, int]:
    counts: dict[str, int] = dataset.manifest["content"]["shards"][shard]["cutting"]
    return counts


def config(dataset: Dataset) -> dict[str, Any]:
    options: dict[str, Any] = dataset.manifest["content"]["config"]
    return options
