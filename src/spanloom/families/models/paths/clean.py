"""Added tokens at which a text may be cut and its parts encoded apart.

In: a `tokenizer.json`. Out: the texts of such tokens, or nothing for a kind of tokenizer that encodes a text in another
way behind a cut. A byte-level BPE splits a text at added tokens first and encodes what is between alone. A tokenizer of
the SentencePiece kind treats the begin of a text in a way of its own.
"""

import json
from pathlib import Path
from typing import Any

_SPLITTERS = frozenset({"ByteLevel", "Split", "Digits", "Punctuation"})
_NORMALIZERS = frozenset({"NFC", "NFKC", "NFD", "NFKD"})


def clean_tokens(path: Path) -> frozenset[str]:
    """The texts of added tokens without `lstrip`, `rstrip` or `single_word` that overlap no other added token. Empty if
    the tokenizer is not a byte-level BPE."""
    file = json.loads(path.read_bytes())
    if not _is_byte_level(file):
        return frozenset()
    added = [token for token in file.get("added_tokens", ()) if token["content"].strip()]
    texts = [token["content"] for token in added]
    return frozenset(
        token["content"]
        for token in added
        if not (token.get("lstrip") or token.get("rstrip") or token.get("single_word") or token.get("normalized"))
        and not any(_overlaps(token["content"], other) for other in texts)
    )


def _is_byte_level(file: dict[str, Any]) -> bool:
    model, splitter = file["model"], file.get("pre_tokenizer") or {}
    kinds = {part.get("type") for part in splitter.get("pretokenizers", [splitter])}
    normalizer = file.get("normalizer") or {}
    normalizers = {part.get("type") for part in normalizer.get("normalizers", [normalizer])} - {None}
    byte_level = model.get("type") == "BPE" and "ByteLevel" in kinds and kinds <= _SPLITTERS
    return byte_level and normalizers <= _NORMALIZERS and not model.get("dropout")


def _overlaps(token: str, other: str) -> bool:
    """Whether an occurrence of `other` may overlap one of `token` without being it."""
    if token != other and (token in other or other in token):
        return True
    return any(
        token.startswith(other[-length:]) or other.startswith(token[-length:])
        for length in range(1, min(len(token), len(other)))
    )
