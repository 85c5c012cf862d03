"""What a token stands for, held against openai-harmony on every id."""

from pathlib import Path

import openai_harmony
import pytest

from spanloom.families.harmony.tokenizer import SPECIAL_NAMES, VOCAB_SIZE
from spanloom.tokenizers.o200k.vocabulary import O200kVocabulary, load_vocabulary


@pytest.fixture(scope="module")
def vocabulary(asset: Path) -> O200kVocabulary:
    return load_vocabulary(asset, SPECIAL_NAMES)


def test_every_ordinary_token_has_the_bytes_that_openai_harmony_gives_it(
    vocabulary: O200kVocabulary, encoding: openai_harmony.HarmonyEncoding
) -> None:
    assert len(vocabulary.pieces) == 199_998
    different = [
        token for token, piece in enumerate(vocabulary.pieces) if bytes(encoding._inner.decode_bytes([token])) != piece
    ]
    assert different == []


def test_every_special_token_has_the_name_that_openai_harmony_gives_it(
    vocabulary: O200kVocabulary, encoding: openai_harmony.HarmonyEncoding
) -> None:
    for token in range(len(vocabulary.pieces), VOCAB_SIZE):
        assert vocabulary.is_special(token)
        assert vocabulary.piece(token) == b""
        assert vocabulary.name(token) == encoding.decode([token])
