"""The key of a dataset of traces, and its folder.

In: name and version, or a key that a client sent. Out: the key; its folder below the datasets root. Invalid keys are
refused, so no key can name a folder outside the root.
"""

import unicodedata
from pathlib import Path

from spanloom.errors import OptionError

DATASETS = "datasets"
MANIFEST_NAME = "manifest.json"
MAX_CHARACTERS = 193
MAX_BYTES = 255
"""The longest file name on common file systems."""


def dataset_key(name: str, version: str) -> str:
    """`my data`, `v1/2` → `my_data-v1_2`. Raises OptionError if the result is not a valid key."""
    key = "-".join(part.replace(" ", "_").replace("/", "_") for part in (name, version))
    if (fault := _fault(key)) is not None:
        raise OptionError(
            f"Dataset name and version make no key: {fault}",
            remedy="use letters, digits, '.', '_' and '-'; blanks and slashes become '_'",
        )
    return key


def is_key(text: str) -> bool:
    """Whether this can be the key of a dataset."""
    return _fault(text) is None


def _fault(key: str) -> str | None:
    if not key or key in (".", ".."):
        return "it is empty, '.' or '..'"
    if wrong := next((character for character in key if not _allowed(character)), None):
        return f"the character U+{ord(wrong):04X} is not allowed"
    if len(key) > MAX_CHARACTERS or len(key.encode()) > MAX_BYTES:
        return f"it is longer than {MAX_CHARACTERS} characters or {MAX_BYTES} bytes"
    return None


def _allowed(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in "._-"
    return unicodedata.category(character)[0] == "L" or unicodedata.category(character) == "Nd"


def manifest_file(root: Path, key: str) -> Path:
    """The path of a key's manifest."""
    return root / DATASETS / key / MANIFEST_NAME
