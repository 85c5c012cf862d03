"""The encoder against openai-harmony on every code point, alone and in context."""

import sys
import unicodedata
from pathlib import Path

import numpy as np
import openai_harmony
import pytest

from spanloom.harmony.encoder import LONGEST_TEXT, Encoder, unproven

POINTS = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
CONTEXTS = {"alone": "{}", "inside a word": "wor{}d", "after a space": "a {} b", "before a contraction": "x{}'s"}
"""The last tells letters and marks from everything else most sharply: `'s` belongs to the word before it."""


@pytest.fixture(scope="module")
def encoder(asset: Path) -> Encoder:
    return Encoder(asset)


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_code_point_that_is_trusted_encodes_as_openai_harmony_encodes_it(
    encoder: Encoder, encoding: openai_harmony.HarmonyEncoding, context: str
) -> None:
    trusted = [point for point in POINTS if not unproven(chr(point))]
    assert len(trusted) > 270_000, "most of what is assigned"
    texts = [CONTEXTS[context].format(chr(point)) for point in trusted]
    ours = encoder.encode(texts)
    cuts = np.split(ours.tokens, np.cumsum(ours.lengths)[:-1])
    wrong = [
        f"U+{point:04X}"
        for point, text, tokens in zip(trusted, texts, cuts, strict=True)
        if encoding.encode(text, disallowed_special=()) != tokens.tolist()
    ]
    assert wrong == []


@pytest.mark.slow
def test_what_openai_harmony_and_the_encoder_disagree_on_is_never_trusted(
    encoder: Encoder, encoding: openai_harmony.HarmonyEncoding
) -> None:
    doubted = [point for point in POINTS if unproven(chr(point))]
    texts = [f"x{chr(point)}'s" for point in doubted]
    ours = encoder.encode(texts)
    cuts = np.split(ours.tokens, np.cumsum(ours.lengths)[:-1])
    different = [
        point
        for point, text, tokens in zip(doubted, texts, cuts, strict=True)
        if encoding.encode(text, disallowed_special=()) != tokens.tolist()
    ]
    assert len(different) > 1000, "the guard is there for a reason; without one it should go"
    assert all(unicodedata.category(chr(point)) == "Cn" for point in different), sys.version


def test_text_that_is_not_trusted() -> None:
    assert not unproven("plain text, größer, 日本語, 🎉, <|end|>")
    assert unproven("\ud800")
    assert unproven("x\u0378")  # unassigned
    assert unproven("x" * (LONGEST_TEXT + 1))
    assert not unproven("x" * LONGEST_TEXT)


def test_lengths_and_order_are_those_of_the_texts(encoder: Encoder, encoding: openai_harmony.HarmonyEncoding) -> None:
    texts = ["one", "", "two words", "", "größer 日本"]
    encoded = encoder.encode(texts)
    expected = [encoding.encode(text) for text in texts]
    assert encoded.lengths.tolist() == [len(tokens) for tokens in expected]
    assert encoded.tokens.tolist() == [token for tokens in expected for token in tokens]
    assert encoder.encode([]).tokens.size == 0


@pytest.mark.slow
@pytest.mark.parametrize("letter", [" ", "a", "A", "字", "\n", "!", "7", "\u0301"])
def test_runs_up_to_the_longest_trusted_text_are_taken_by_both(
    encoder: Encoder, encoding: openai_harmony.HarmonyEncoding, letter: str
) -> None:
    text = letter * (LONGEST_TEXT // 5)
    assert encoder.encode([text]).tokens.tolist() == encoding.encode(text)
