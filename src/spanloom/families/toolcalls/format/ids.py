"""Ids that follow from contents.

In: a source, a split, and what is hashed. Out: `SOURCE_SPLIT_HASH`, with the first 8 hex digits of a sha256, and with
more where another content has those already.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGITS = 8
_MORE = 4


def hash_input(sample: Mapping[str, Any], **more: Any) -> str:
    """What the id of a sample is hashed from: its messages, its assistant_raw, and what a source adds.

    JSON with sorted keys and ASCII escapes, as the field's data has it.
    """
    content = {"messages": sample.get("messages"), "assistant_raw": sample.get("assistant_raw"), **more}
    return json.dumps(content, sort_keys=True)


def content_id(source: str, split: str, content: str, digits: int = DIGITS) -> str:
    """The id of a content. `content`: usually `hash_input`."""
    return f"{source}_{split}_{hashlib.sha256(content.encode()).hexdigest()[:digits]}"


class Ids:
    """Ids given out so far, each with the hash of its content."""

    def __init__(self) -> None:
        self._contents: dict[str, str] = {}

    def take(self, source: str, split: str, content: str) -> tuple[str, bool]:
        """The id of a content, and whether the same content was given it before.

        An id that another content has gets four more digits, and again, until it is free.
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
