"""What would steer a terminal, a browser or the direction of text is shown; all else stays as it is."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.text import AnyOf, visible, visible_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "␛[31m"),
        ("a\x00b\x07\x7f", "a␀b␇␡"),
        ("\x9b31m", "⟨U+009B⟩31m"),  # the one-character form of an escape
        ("abc\u202edef", "abc⟨U+202E⟩def"),
        ("\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"),
        ("\ufeff", "⟨U+FEFF⟩"),
        ("\udcff", "⟨ff⟩"),
        ("a\r\nb", "a␍\nb"),
        ("two\n\tlines", "two\n\tlines"),
        ("می‌خواهم", "می‌خواهم"),  # the joiner is a letter's shape, not a trick
        ("👩‍🚀", "👩‍🚀"),
    ],
)
def test_exactly(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_line_stays_one_line() -> None:
    assert visible_line("a\nb\tc", 3) == "a↵b …"
    assert visible_line("a\nb\tc") == "a↵b⇥c"


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_that_steers_is_left(text: str) -> None:
    shown = visible(text)
    assert all(unicodedata.category(one) not in ("Cc", "Cs") for one in shown.replace("\n", "").replace("\t", ""))
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert all(unicodedata.bidirectional(one) not in bidi for one in shown)
    shown.encode()  # lone surrogates would raise


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("words", [["<|end|>", "<|start|>", "[MASK]"], ["Qv", "Qw", "7300"], [""], []])
def test_any_of_finds_what_a_search_for_each_finds(words: list[str]) -> None:
    text = "a <|en <|end|> Q v Qw 73 7300 [MASK"
    looked = AnyOf(words)
    for begin in range(len(text)):
        for end in range(begin, len(text) + 1):
            assert looked.within(text, begin, end) == any(word and word in text[begin:end] for word in words)
