"""A small tokenizer without merges, to try a family without any data.

In: control strings. Out: the values of a `tokenizer.json` with a token for each byte and each control string.
"""

from collections.abc import Sequence
from typing import Any


def byte_level_tokenizer(control_strings: Sequence[str]) -> dict[str, Any]:
    """The values of the file. Control strings get the first ids, in order, and are flagged special. Deterministic."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    vocab = {piece: number for number, piece in enumerate([*control_strings, *letters])}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab[name], "content": name, **plain} for name in control_strings],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": False, "ignore_merges": False},
    }
