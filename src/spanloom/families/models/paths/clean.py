"""Added tokens at which a text may be cut and its parts encoded apart.

In: a loaded `tokenizer.json`. Out: the texts of such tokens, or nothing for a kind of tokenizer that encodes a text in
another way behind a cut. A byte-level BPE splits a text at added tokens first and encodes what is between alone. One of
the SentencePiece kind treats the begin of a text in a way of its own.
"""

from collections.abc import Set
from itertools import combinations

from spanloom.tokenizers.encoding import JsonTokenizer

_SPLITTERS = frozenset({"ByteLevel", "Split", "Digits", "Punctuation"})
_NORMALIZERS = frozenset({"NFC", "NFKC", "NFD", "NFKD"})


def clean_tokens(tokenizer: JsonTokenizer) -> frozenset[str]:
    """The texts of added tokens without `lstrip`, `rstrip` or `single_word` that overlap no other added token. Empty if
    the tokenizer is not a byte-level BPE."""
    if not _is_byte_level(tokenizer):
        return frozenset()
    added = [token for token in tokenizer.added_tokens().values() if token.content.strip()]
    overlapping = overlapping_texts({token.content for token in added})
    return frozenset(
        token.content
        for token in added
        if not (token.lstrip or token.rstrip or token.single_word or token.normalized)
        and token.content not in overlapping
    )


def _is_byte_level(tokenizer: JsonTokenizer) -> bool:
    splitter, normalizer = tokenizer.part("pre_tokenizer"), tokenizer.part("normalizer")
    kinds = {part.get("type") for part in splitter.get("pretokenizers", [splitter])}
    normalizers = {part.get("type") for part in normalizer.get("normalizers", [normalizer])} - {None}
    byte_level = tokenizer.name.startswith("bpe_") and "ByteLevel" in kinds and kinds <= _SPLITTERS
    return byte_level and normalizers <= _NORMALIZERS and not tokenizer.model.dropout


def overlapping_texts(texts: Set[str]) -> set[str]:
    """Those of which an occurrence may overlap one of another, or another one of the same: one is within the other, or
    begins as the other ends."""
    prefixes = {text[:end] for text in texts for end in range(1, len(text))}
    suffixes = {text[begin:] for text in texts for begin in range(1, len(text))}
    overlapping = set()
    for text in texts:
        places = combinations(range(len(text) + 1), 2)
        within = {part for begin, end in places if (part := text[begin:end]) in texts and part != text}
        if within:
            overlapping |= {text, *within}
        if any(text[:at] in suffixes or text[at:] in prefixes for at in range(1, len(text))):
            overlapping.add(text)
    return overlapping
