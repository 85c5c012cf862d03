"""The tokens of PGN, by the standard; and what people write instead."""

import pytest

from spanloom.families.chess.pgn.tokens import is_closed, tag_of, tokens_of


def _words(text: str) -> list[str]:
    return [token for _, token in tokens_of(text) if token]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1.e4 e5 2. Nf3 1-0", ["e4", "e5", "Nf3", "1-0"]),
        ("1. ... e5 2... Nc6 3…d5", ["e5", "Nc6", "d5"]),
        ("1 e4 $1$14 e5!?", ["1", "e4", "$1", "$14", "e5!?"]),
        ("e4{a}e5(d5)", ["e4", "{a}", "e5", "(", "d5", ")"]),
        ("e8(Q) e8=Q(e7)", ["e8(Q)", "e8=Q", "(", "e7", ")"]),
        ("e4 ; to the } end\ne5", ["e4", "; to the } end", "e5"]),
        ("e4\n% an escape\ne5 % no escape", ["e4", "% an escape", "e5", "%", "no", "escape"]),
        ("{over\n\nlines [%clk 0:01]\n[%eval 1]} e4", ["{over\n\nlines [%clk 0:01]\n[%eval 1]}", "e4"]),
        ("\ufeffe4\x1a\ufeff", ["e4"]),
        ("e4 } ] [ e5", ["e4", "}", "]", "[", "e5"]),
        ('[A "b"][C "d"] e4', ['[A "b"]', '[C "d"]', "e4"]),
        ('[A "The "B" C"]\ne4', ['[A "The "B" C"]', "e4"]),
        ('[A "two\nlines"]\ne4', ['[A "two\nlines"]', "e4"]),
        ('[A b]\n[C "d"]\ne4 [e', ["[A b]", '[C "d"]', "e4", "[", "e"]),
        ('[A "open]\n[B "c"]\ne4', ['[A "open]', '[B "c"]', "e4"]),
        ('e4 {see\n[A "b"]\n1. d4} e5', ["e4", '{see\n[A "b"]\n1. d4}', "e5"]),
        ('e4 {open e5 *\n\n[A "b"]\n\nd4 {c} *', ["e4", "{open e5 *\n", '[A "b"]', "d4", "{c}", "*"]),
        ('e4 {open e5 *\n\n[A "b"]\n\nd4 *', ["e4", "{open e5 *\n", '[A "b"]', "d4", "*"]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert _words(text) == tokens


def test_a_token_has_the_move_number_before_it() -> None:
    assert tokens_of("1.e4 1... e5 2 Nf3") == [("1.", "e4"), ("1... ", "e5"), ("", "2"), ("", "Nf3"), ("", "")]


def test_a_comment_with_another_brace_is_open() -> None:
    assert [is_closed(comment) for comment in ("{}", "{a}", "{a {b}", "{a\n")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("token", "tag"),
    [
        ('[White "a"]', ("white", "a")),
        ('[ Time Control  "300+3" ]', ("timecontrol", "300+3")),
        (r'[White "a \"b\" \\"]', ("white", r'a "b" \\'[:-1])),
        ('[White "a "b" c"]', ("white", 'a "b" c')),
        ('[White "a]', None),
    ],
)
def test_name_and_value_of_a_tag(token: str, tag: tuple[str, str] | None) -> None:
    assert tag_of(token) == tag
