"""Content text → o200k tokens, fast: gigatoken, and only for text on which it was proven equal to openai-harmony.

In: strings. Out: their tokens, flat. Special ids are not in its vocabulary, so no text can ever give one.

gigatoken's tables are of a newer Unicode than openai-harmony's: the two differ on characters that only the newer one
knows. Which those are is not copied from a list: a character that *this Python's* Unicode does not know yet is not
trusted, nor is a text so long that openai-harmony may refuse it. `unproven` finds both; tests/harmony/test_encoder.py
holds the encoder against openai-harmony on every other code point.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.supervision import Lengths, Tokens

LONGEST_TEXT = 50_000
"""Characters. openai-harmony's regular expression overflows on runs of some hundred thousand characters, and then the
row is refused; a text this long goes to openai-harmony, so that both routes refuse the same rows."""

CODE_POINTS = 0x110000
PROVEN_UNICODE = 16
"""openai-harmony's tables are of this version; a Python of a newer one could not tell which characters to doubt."""


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """`tokens` int32 [T], the texts' tokens end to end; `lengths` int32 [N], tokens of each."""

    tokens: Tokens
    lengths: Lengths


class Encoder:
    """gigatoken over the verified asset. Not for threads; keeps a cache of words between calls."""

    def __init__(self, asset: Path) -> None:
        import gigatoken

        self._tokenizer: Any = gigatoken.Tokenizer.from_tiktoken(asset, pretokenizer="o200k", special_tokens={})

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Tokens of each text, as openai-harmony encodes content. The texts must not be `unproven`."""
        if not texts:
            return EncodedTexts(tokens=np.empty(0, dtype=np.int32), lengths=np.empty(0, dtype=np.int32))
        layout = self._tokenizer.encode_batch(list(texts), parallel=False).layout
        offsets = np.asarray(layout.offsets.data)
        tokens = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
        return EncodedTexts(tokens=tokens.astype(np.int32), lengths=np.diff(offsets).astype(np.int32))


def unproven(text: str) -> bool:
    """Whether the encoder was not proven on this text."""
    if len(text) > LONGEST_TEXT:
        return True
    if text.isascii():
        return False
    try:
        units = np.frombuffer(text.encode("utf-16-le"), dtype=np.uint16)
        if not _doubtful_units()[units].any():
            return False
        code_points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    except UnicodeEncodeError:  # a lone surrogate: openai-harmony refuses it
        return True
    return bool(_unknown()[code_points].any())


@cache
def _doubtful_units() -> npt.NDArray[np.bool_]:
    """bool [0x10000]: UTF-16 units that are unassigned characters, or halves of a character beyond U+FFFF.

    Nearly all text has none of them, and this table fits where the whole one does not: into the nearest cache.
    """
    units = _unknown()[:0x10000].copy()
    units[0xD800:0xE000] = True
    return units


@cache
def _unknown() -> npt.NDArray[np.bool_]:
    """bool [CODE_POINTS]: characters that are unassigned in this Python's Unicode. Takes 0.1 s."""
    if int(unicodedata.unidata_version.split(".")[0]) > PROVEN_UNICODE:
        # This Python knows characters that openai-harmony does not: only ASCII is beyond doubt.
        return np.arange(CODE_POINTS) > 127
    category = unicodedata.category
    return np.fromiter((category(chr(point)) == "Cn" for point in range(CODE_POINTS)), np.bool_, CODE_POINTS)
