"""Plain text → o200k tokens: batches of texts in, flat arrays out, without a Python object a token.

In: texts. Out: their tokens end to end, and how many each has. Text never gives a special token, whatever it spells.

fastokens does the work: the fastest of the encoders that were found exact (`python -m bench.encoders`);
tests/o200k/test_encoder.py holds it against openai-harmony on every code point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spanloom.supervision import Lengths, Tokens
from spanloom.tokenizers.o200k.loading import load_ahead


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """`tokens` int32 [T], the texts' tokens end to end, not to be written to; `lengths` int32 [N], tokens of each."""

    tokens: Tokens
    lengths: Lengths


class Encoder:
    """The encoder over the verified asset. Loading takes more than a second, once a process (see `load_ahead`)."""

    def __init__(self, asset: Path) -> None:
        self._tokenizer = load_ahead(asset).result()

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Tokens of each text. Raises UnicodeEncodeError where one holds a lone surrogate."""
        # What looks like a special token is text like any other: there are none, so none can be found.
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts))
        return EncodedTexts(
            tokens=np.frombuffer(ids, dtype=np.dtype("<i4")),  # unsigned, and far below where that makes a difference
            lengths=np.diff(np.frombuffer(offsets, dtype="<u8")).astype(np.int32),
        )
