"""Chooses the reader of validation: Megatron's own, or the independent one if Megatron is not installed.

In: `auto`, `megatron` or `independent`. Out: the name of the reader, and the function that opens an IndexedDataset.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from spanloom.megatron import official

ReaderChoice = Literal["auto", "megatron", "independent"]
Reader = Literal["megatron", "independent"]
OpenIndexed = Callable[[Path], Any]
"""A prefix → the opened IndexedDataset: `sequence_lengths`, `document_indices`, `index`, `bin_reader`, `get`."""

MEGATRON: Reader = "megatron"
INDEPENDENT: Reader = "independent"
IN_WORDS: dict[str, str] = {
    MEGATRON: "Megatron Core's own reader",
    INDEPENDENT: "Spanloom's independent reader, without Megatron",
}


def reader_in_words(name: object) -> str | None:
    """The description of a reader by its name; None for any other value in `environment` of a manifest."""
    return IN_WORDS.get(name) if isinstance(name, str) else None


def chosen_reader(choice: ReaderChoice = "auto") -> Reader:
    """The reader of a choice: `auto` is Megatron's if torch and megatron-core are installed.

    Raises SpanloomError for `megatron` if they are not, before any work starts.
    """
    if choice == INDEPENDENT or (choice == "auto" and official.missing_packages()):
        return INDEPENDENT
    official.require_megatron()
    return MEGATRON


def open_with(reader: Reader) -> OpenIndexed:
    """The function that opens an IndexedDataset with this reader."""
    if reader == MEGATRON:
        return official.open_indexed
    from spanloom.megatron.independent import IndependentDataset

    return IndependentDataset
