"""Limits on what a `tokenizer.json` may cost and do, checked before a text is encoded: the file is untrusted.

In: a tokenizer of the tokenizers package. Out: a reason to refuse it, or None.

    normalizer      may make a text at most 1,024 times as long; without a limit, twenty chained replacements of
                    `a` by `aa` turn one letter into a million
    post-processor  may add at most 1,024 tokens, and may use the text only once
    ids             are below 2^22: when the package writes a tokenizer as JSON, it notes each unused id
    dropout         none: tokens would differ from run to run
    added tokens    at most 2^17, each of at most 4,096 characters: every text is searched for all of them
"""

import base64
import json
from collections.abc import Mapping
from math import prod
from typing import Any

MOST_GROWTH = 1024
MOST_ADDED = 1024
LARGEST_ID = 2**22 - 1
MOST_TOKENS, LONGEST_TOKEN = 2**17, 4096


def refusal(tokenizer: Any) -> str | None:
    """Why a tokenizer is refused, or None."""
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=None)
    if largest is None:
        return "it has no tokens"
    if largest > LARGEST_ID:
        return f"it has a token with the id {largest:,}; the largest allowed id is {LARGEST_ID:,}"
    file = json.loads(tokenizer.to_str())
    if file["model"].get("dropout"):
        return "its model skips merges at random (dropout), so its tokens differ from run to run"
    if _growth(file.get("normalizer")) > MOST_GROWTH:
        return f"its normalizer can make a text more than {MOST_GROWTH:,} times as long"
    if unknown := _unknown(file.get("post_processor")):
        return f"its post-processor names the token {unknown[:40]!r}, which it does not define"
    if _added(file.get("post_processor")) > MOST_ADDED:
        return f"its post-processor adds more than {MOST_ADDED:,} tokens to a text, or copies the text"
    return None


def refusal_of_file(values: Mapping[str, Any]) -> str | None:
    """Why a file is refused before the package reads it, or None. `values`: its JSON, of any form."""
    added = values.get("added_tokens") or []
    if not isinstance(added, list):
        return "added_tokens is not a list"
    if len(added) > MOST_TOKENS:
        return f"added_tokens has {len(added):,} tokens, more than {MOST_TOKENS:,}"
    for number, token in enumerate(added):
        place = f"added_tokens[{number}]"
        if not isinstance(token, dict):
            return f"{place} is not an object"
        text, at = token.get("content"), token.get("id")
        if not isinstance(text, str) or not isinstance(at, int):
            return f"{place} has no text `content` or no whole number `id`"
        if len(text) > LONGEST_TOKEN:
            return f"{place} has {len(text):,} characters, more than {LONGEST_TOKEN:,}"
        if not 0 <= at <= LARGEST_ID:
            return f"{place} has the id {at:,}; ids go from 0 to {LARGEST_ID:,}"
    return None


def _growth(normalizer: Mapping[str, Any] | None) -> int:
    """How many times as long a text can become, in code points; 1 for normalizers that add no text."""
    if normalizer is None:
        return 1
    match normalizer["type"]:
        case "Sequence":
            return prod(map(_growth, normalizer["normalizers"]))
        case "Replace" if pattern := normalizer["pattern"].get("String"):
            return max(1, -(-len(normalizer["content"]) // len(pattern)))
        case "Replace":  # a regex may match the empty string before each character
            return 1 + len(normalizer["content"])
        case "Prepend":
            return 1 + len(normalizer["prepend"])
        case "ByteLevel":  # a character for each byte
            return 4
        case "Precompiled":
            data = base64.b64decode(normalizer["precompiled_charsmap"])
            written = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
            return max(1, *(len(text.decode("utf-8", "replace")) for text in written))
    return 1


def _added(processor: Mapping[str, Any] | None) -> int:
    """How many tokens the post-processor adds to a text."""
    if processor is None:
        return 0
    if processor["type"] == "Sequence":
        return sum(map(_added, processor["processors"]))
    if processor["type"] != "TemplateProcessing":
        return 2
    pieces, special = processor["single"], processor["special_tokens"]
    if sum("Sequence" in piece for piece in pieces) > 1:
        return MOST_ADDED + 1
    return sum(len(special[piece["SpecialToken"]["id"]]["ids"]) for piece in pieces if "SpecialToken" in piece)


def _unknown(processor: Mapping[str, Any] | None) -> str | None:
    """A token that the post-processor adds and does not define; None if there is none."""
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return next(filter(None, map(_unknown, processor["processors"])), None)
    if processor["type"] != "TemplateProcessing":
        return None
    named = [piece["SpecialToken"]["id"] for piece in processor["single"] if "SpecialToken" in piece]
    return next((name for name in named if name not in processor["special_tokens"]), None)
