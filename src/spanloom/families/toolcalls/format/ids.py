"""Ids derived from contents.

In: a source, a split, and the text to hash. Out: `SOURCE_SPLIT_HASH`, with the first 8 hex digits of a sha256, or more
digits if another content already has this id.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGITS = 8
_MORE = 4


def hash_input(sample: Mapping[str, Any], **more: Any) -> str:
    """The text that a sample's id is hashed from: its messages, its assistant_raw, and values that the source adds.

    JSON with sorted keys and ASCII escapes, as in existing public data.
    """
    content = {"messages": sample.get("messages"), "assistant_raw": sample.get("assistant_raw"), **more}
    return json.dumps(content, sort_keys=True)


def content_id(source: str, split: str, content: str, digits: int = DIGITS) -> str:
    """The id of a content. `content`: usually `hash_input`."""
    return f"{source}_{split}_{hashlib.sha256(content.encode()).hexdigest()[:digits]}"


class Ids:
    """The ids assigned so far, each with the hash of its content."""

    def __init__(self) -> None:
        self._contents: dict[str, str] = {}

    def take(self, source: str, split: str, content: str) -> tuple[str, bool]:
        """Returns the id of a content, and whether this content already had it.

        While another content has the id, it gets four more digits.
        """
        whole = hashlib.sha256(content.encode()).hexdigest()
        digits = DIGITS
        while True:
            name = content_id(source, split, content, digits)
            holder = self._contents.get(name)
            if holder is None or holder == whole:
                self._contents[name] = whole
                return name, holder is not None
            digits += _MORE
