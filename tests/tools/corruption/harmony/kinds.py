"""The list of forgeries, and what several of them need.

Each forgery changes one thing, and all that follows from it but for what only the format, the tokens or the source can
tell: hashes, counts, rows, and mask = (span > 0) agree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tools.corruption.dataset import Dataset, Document
from tools.corruption.harmony.messages import Part, parts

Forge = Callable[[Dataset], Any]


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


def forgery(found: str, base: str = "plain") -> Callable[[Forge], Forge]:
    def register(forge: Forge) -> Forge:
        name = forge.__name__.strip("_")
        assert name not in FORGERIES
        FORGERIES[name] = Forgery(found, base, forge)
        return forge

    return register


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
