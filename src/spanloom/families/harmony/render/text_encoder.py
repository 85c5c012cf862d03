"""Texts of messages → tokens: a few through openai-harmony, which is loaded anyway, more through the fast encoder.

In: texts. Out: their tokens, concatenated; both give the same. Loading the fast encoder takes as long as openai-harmony
takes for 4 million characters, and small builds have fewer. If loading has begun (`loading.load_ahead`, in builds of
many rows), the fast encoder encodes all texts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spanloom.tokenizers.o200k.encoder import EncodedTexts, Encoder
from spanloom.tokenizers.o200k.loading import has_begun

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

FEW_CHARACTERS = 4_000_000


class TextEncoder:
    """`few`: at most this many characters are encoded by openai-harmony before the fast encoder is loaded."""

    def __init__(self, encoding: "HarmonyEncoding", asset: Path, few: int) -> None:
        self._encoding, self._asset = encoding, asset
        self._left = 0 if has_begun(asset) else few
        self._fast = None if self._left else Encoder(asset)

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Tokens of each text. Raises UnicodeEncodeError if one has a lone surrogate."""
        if self._fast is None:
            self._left -= sum(map(len, texts))
            if self._left >= 0:
                encoded = [self._encoding.encode(text, disallowed_special=()) for text in texts]
                return EncodedTexts(
                    tokens=np.array([token for tokens in encoded for token in tokens], dtype=np.int32),
                    lengths=np.array([len(tokens) for tokens in encoded], dtype=np.int32),
                )
            self._fast = Encoder(self._asset)
        return self._fast.encode(texts)
