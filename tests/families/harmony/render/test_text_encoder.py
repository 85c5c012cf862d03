"""A few texts go through openai-harmony, more through the fast encoder: the tokens are the same."""

import subprocess
import sys
from pathlib import Path

import openai_harmony
import pytest

from spanloom.families.harmony.render.text_encoder import TextEncoder

TEXTS = ["", "two words", "<|end|> is text", "naïve 漢字 👩‍🚀 \u0301", " \n\t "]

BEGUN = """
import sys
from pathlib import Path
from spanloom.families.harmony.render.text_encoder import TextEncoder
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.tokenizers.o200k.loading import has_begun, load_ahead

asset = Path(sys.argv[1])
few = TextEncoder(load_encoding(asset), asset, 10)
few.encode(["0123456789"])
assert not has_begun(asset), "ten characters are few"
few.encode(["a"])
assert has_begun(asset), "eleven are more"
"""


@pytest.mark.parametrize("few", [0, 10, 10_000])
def test_the_tokens_are_those_of_openai_harmony_whoever_makes_them(
    asset: Path, encoding: openai_harmony.HarmonyEncoding, few: int
) -> None:
    encoder = TextEncoder(encoding, asset, few)
    expected = [encoding.encode(text, disallowed_special=()) for text in TEXTS]
    for _ in range(2):
        encoded = encoder.encode(TEXTS)
        assert encoded.tokens.tolist() == [token for tokens in expected for token in tokens]
        assert encoded.lengths.tolist() == list(map(len, expected))
        assert (encoded.tokens.dtype, encoded.lengths.dtype) == ("int32", "int32")
    assert encoder.encode([]).tokens.size == 0


def test_few_texts_do_not_load_the_fast_encoder_and_one_character_more_does(asset: Path) -> None:
    subprocess.run([sys.executable, "-c", BEGUN, str(asset)], check=True)
