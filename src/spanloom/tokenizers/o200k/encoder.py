"""Plain text → o200k tokens: batches of texts in, flat arrays out, without a Python object per token.

In: texts. Out: their tokens end to end, and how many each has. Text never becomes a special token.

fastokens encodes: the fastest of the encoders that are exact (`python -m tools.bench.encoders`).
tests/o200k/test_encoder.py compares it with openai-harmony on every code point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spanloom.supervision import Lengths, Tokens
from spanloom.tokenizers.o200k.loading import load_ahead


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """`tokens` int32 [T], the texts' tokens end to end, read-only; `lengths` int32 [N], tokens of each text."""

    tokens: Tokens
    lengths: Lengths


class Encoder:
    """The encoder over the verified asset. Loading takes more than a second, once per process (see `load_ahead`)."""

    def __init__(self, asset: Path) -> None:
        self._tokenizer = load_ahead(asset).result()

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Tokens of each text. Raises UnicodeEncodeError if a text holds a lone surrogate."""
        # The tokenizer is loaded without special tokens, so text that looks like one is ordinary text.
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts))
        return EncodedTexts(
            tokens=np.frombuffer(ids, dtype=np.dtype("<i4")),  # unsigned, but all ids are far below 2^31
            lengths=np.diff(np.frombuffer(offsets, dtype="<u8")).astype(np.int32),
        )
