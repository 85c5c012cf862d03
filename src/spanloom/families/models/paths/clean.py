"""Added tokens at which a text may be cut and its parts encoded apart.

In: a loaded `tokenizer.json`. Out: the texts of such tokens, or nothing for a kind of tokenizer that encodes a text in
another way behind a cut. A byte-level BPE splits a text at added tokens first and encodes what is between alone. One of
the SentencePiece kind treats the begin of a text in a way of its own.
"""

from spanloom.tokenizers.encoding import JsonTokenizer

_SPLITTERS = frozenset({"ByteLevel", "Split", "Digits", "Punctuation"})
_NORMALIZERS = frozenset({"NFC", "NFKC", "NFD", "NFKD"})


def clean_tokens(tokenizer: JsonTokenizer) -> frozenset[str]:
    """The texts of added tokens without `lstrip`, `rstrip` or `single_word` that overlap no other added token. Empty if
    the tokenizer is not a byte-level BPE."""
    if not _is_byte_level(tokenizer):
        return frozenset()
    added = [token for token in tokenizer.added_tokens().values() if token.content.strip()]
    texts = [token.content for token in added]
    return frozenset(
        token.content
        for token in added
        if not (token.lstrip or token.rstrip or token.single_word or token.normalized)
        and not any(_overlaps(token.content, other) for other in texts)
    )


def _is_byte_level(tokenizer: JsonTokenizer) -> bool:
    splitter, normalizer = tokenizer.part("pre_tokenizer"), tokenizer.part("normalizer")
    kinds = {part.get("type") for part in splitter.get("pretokenizers", [splitter])}
    normalizers = {part.get("type") for part in normalizer.get("normalizers", [normalizer])} - {None}
    byte_level = tokenizer.name.startswith("bpe_") and "ByteLevel" in kinds and kinds <= _SPLITTERS
    return byte_level and normalizers <= _NORMALIZERS and not tokenizer.model.dropout


def _overlaps(token: str, other: str) -> bool:
    """Whether an occurrence of `other` may overlap one of `token` without being it."""
    if token != other and (token in other or other in token):
        return True
    return any(
        token.startswith(other[-length:]) or other.startswith(token[-length:])
        for length in range(1, min(len(token), len(other)))
    )
