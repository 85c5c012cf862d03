"""False datasets that fit together: the register of a family's forgeries, and how each is made of an honest dataset."""

import copy
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import spanloom
from spanloom.findings import Report
from tools.corruption.dataset import Dataset, Document, change, listed, read

Forge = Callable[[Dataset], Any]
LEVELS = ("alone", "source", "all")
ARRAYS = ("tokens", "lossmask", "span")


@dataclass(frozen=True)
class Forgeries:
    """Name → with what it is found, and how it is made. Levels: the root `alone`, the `source` with `--deep 0`, `all`
    rows made again. `also`: what else must agree in datasets of the family."""

    by_name: dict[str, tuple[str, Forge]] = field(default_factory=dict)
    also: Forge = lambda _: None

    def __call__(self, found: str) -> Callable[[Forge], Forge]:
        assert found in LEVELS

        def register(forge: Forge) -> Forge:
            self.by_name[forge.__name__.strip("_")] = found, forge
            return forge

        return register

    def values(self, of: Callable[[Dataset], Any], changed: Mapping[str, tuple[str, str, Any]]) -> None:
        """Registers forgeries of one value: name → with what it is found, its path in what `of` gives, the value."""
        for name, (found, path, value) in changed.items():
            self.by_name[name] = found, lambda dataset, path=path, value=value: change(of(dataset), path, value)

    def report(self, name: str, root: Path, folder: Path, source: Path, level: str = "", **options: Any) -> Report:
        """Validates the forgery of `root` that is made in `folder`, at its own level or another one."""
        found, forge = self.by_name[name]
        shutil.copytree(root, folder, symlinks=True)
        forged(folder, forge, self.also)
        return validated(folder, source, level or found, **options)

    def assert_honest(self, root: Path, source: Path, folder: Path, honest: Forge, **options: Any) -> None:
        """The dataset that is written again without a forgery, or with one that changes nothing, is clean."""
        shutil.copytree(root, folder, symlinks=True)
        forged(folder, honest, self.also)
        for level in LEVELS:
            report = validated(folder, source, level, **options)
            assert report.clean, (level, report.findings)


def validated(root: Path, source: Path, level: str, **options: Any) -> Report:
    """Validates with what a level gives."""
    given: dict[str, Any] = {} if level == "alone" else {"source": source, "deep": 0 if level == "source" else 10**6}
    return spanloom.validate(root, reader="independent", **(given | options if given else {}))


def forged(root: Path, forge: Forge, also: Forge = lambda _: None) -> None:
    """Changes a dataset; hashes, counts and rows are made to agree. `also`: what else must agree in this family."""
    dataset = read(root)
    forge(dataset)
    also(dataset)
    content = dataset.manifest["content"]
    for file in content.get("files", ()):
        if (root / file["path"]).is_file():
            file.update(listed(root, file["path"]))
    dataset.write()


def kept(document: Document, places: npt.NDArray[np.int64]) -> None:
    """Leaves only these tokens, with their labels, or brings them into another order."""
    document.tokens = document.tokens[places]
    for name in ("lossmask", "span"):
        label = getattr(document, name)
        setattr(document, name, np.append(np.insert(label[:-1], 0, 0)[places][1:], np.uint8(0)))


def without(document: Document, places: Any) -> None:
    """Removes tokens."""
    kept(document, np.delete(np.arange(document.tokens.size), places))


def trained(document: Document, places: Any, span: int) -> None:
    """Gives tokens a span, and the mask that goes with it. Their labels are one place before them."""
    document.span[np.asarray(places) - 1] = span
    document.lossmask[np.asarray(places) - 1] = span > 0


def tokens_of(document: Document, span: int) -> npt.NDArray[np.int64]:
    """The places of the tokens of a span."""
    return np.flatnonzero(document.span == span) + 1


def exchanged(first: Document, second: Document, names: tuple[str, ...]) -> None:
    """Exchanges values of the rows of two documents."""
    for name in names:
        first.about[name], second.about[name] = second.about[name], first.about[name]


def as_another(document: Document, other: Document, keep: tuple[str, ...]) -> None:
    """The tokens and the row of another document, but for the values named in `keep`."""
    for name in ARRAYS:
        setattr(document, name, getattr(other, name).copy())
    own = {name: document.about[name] for name in keep}
    document.about = {**copy.deepcopy(other.about), **own}
