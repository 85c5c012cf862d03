"""Plain words: a list of banned words and phrases, and no sentence above 35 words.

In: the pages; comments, docstrings and messages of the sources. An exception is listed here with its reason.
"""

import re
import tokenize
from collections.abc import Iterable
from pathlib import Path

import pytest

from conftest import REPOSITORY

# Pattern → what to write instead.
BANNED = {
    r"stands?(?! for\b| in for\b|-in|-alone)|stood|standing": "is, are, exists",
    r"said|told": "reported, named; says",
    r"(?:is|are|was|were) asked for": "is requested",
    r"gone on with": "resumed",
    r"without a word": "silently",
    r"a key twice": "a duplicate key",
    r"a truth value": "a boolean",
    r"how manieth": "n-th",
    r"come into question": "are candidates",
    r"of no kind": "unsupported",
    r"none but": "only",
    r"for which (?:\w+ ){1,2}has no place": "X has no such field",
    r"see to (?:stdout|stderr)": "repair",
    r"whoever": "a user who",
    r"held against": "compared with, checked against",
    r"lies? (?:in|on|below|beside|behind|between|under|outside|there|here)": "is",
    r"what is said of": "what X says",
    r"that (?:is|are) none(?! of)": "invalid",
}
# Of pages alone: in the sources these stay for now.
BANNED_ON_PAGES = {
    r"goes on (?:from|with|where|after)|go on (?:from|with|where)": "resumes, continues",
    r"is no dataset": "is not a dataset",
    r"thereof|wherein|whereof": "of it, in which, of which",
    r"come what may|for want of|by dint of": "always, without, by",
}


def words_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"\b(?:{pattern})\b" for pattern in patterns), re.IGNORECASE)


WORDS = words_of(BANNED)
PAGE_WORDS = words_of([*BANNED, *BANNED_ON_PAGES])

# Phrases that stay, with the reason.
ALLOWED = re.compile(
    r"\btold as\b|\bnot told\b"  # labels of AgentDojo's records: values in files that are published
    r"|\*?told as → became\b"
    r"|`(?:said|told|standing)`|^ *told(?: {2}|:)",  # names in the code
    re.MULTILINE,
)
PAGES = sorted(
    page
    for pattern in (
        *("README.md", "CONTRIBUTING.md", "tests/README.md", "docs/**/*.md"),
        *("docs/**/*.ipynb", "charts/*/*.md", "components/**/*.md"),
    )
    for page in REPOSITORY.glob(pattern)
)
SOURCES = sorted((REPOSITORY / "src/spanloom").rglob("*.py"))
TEMPLATES = sorted((REPOSITORY / "src/spanloom/report/templates").iterdir())
LONGEST = 35


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def banned(text: str, words: re.Pattern[str] = WORDS) -> list[str]:
    """The banned words of a text, each with its line."""
    lines = ALLOWED.sub("", text).splitlines()
    return [f"{line.strip()}  ({hit[0]})" for line in lines for hit in words.finditer(line)]


def prose_of(source: Path) -> str:
    """Comments and strings; not what f-strings compute, and not strings that are one word, which are keys."""
    if not WORDS.search(source.read_text("utf-8")):
        return ""
    texts = []
    with tokenize.open(source) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                texts.append(token.string)
            elif token.type == tokenize.STRING and not re.fullmatch(r"[rbfuRBFU]*([\"'])\w*\1", token.string):
                texts.append(re.sub(r"\{(?:[^{}]|\{[^{}]*\})*\}", "", token.string))
            elif token.type == getattr(tokenize, "FSTRING_MIDDLE", None):  # from Python 3.12 on
                texts.append(token.string)
    return "\n".join(texts)


def sentences(page: str) -> list[str]:
    """The sentences of paragraphs and list items; not of code, tables and headings. Code in a line is one word."""
    text = re.sub(r"^```.*?^```$", "\n\n", page, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(?:#|\||<!--|    ).*$", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "code", text)
    blocks = re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", text)
    # A colon or a semicolon ends a statement as a full stop does.
    return [
        " ".join(part.split())
        for block in blocks
        for part in re.split(r"(?<=[.!?:;])[*_)\]\"]*\s+", block)
        if part.strip()
    ]


def test_pages_have_no_banned_word() -> None:
    found = {relative(page): words for page in PAGES if (words := banned(page.read_text("utf-8"), PAGE_WORDS))}
    assert len(PAGES) > 60
    assert found == {}


def test_sources_have_no_banned_word() -> None:
    assert len(SOURCES) > 300
    found = {relative(path): words for path in SOURCES if (words := banned(prose_of(path)))}
    assert found == {}


def test_templates_of_pages_have_no_banned_word() -> None:
    found = {relative(path): words for path in TEMPLATES if (words := banned(path.read_text("utf-8")))}
    assert len(TEMPLATES) > 8
    assert found == {}


def test_no_sentence_is_too_long() -> None:
    pages = [page for page in PAGES if page.suffix == ".md"]
    found = [(relative(page), sentence) for page in pages for sentence in sentences(page.read_text("utf-8"))]
    assert [each for each in found if len(each[1].split()) > LONGEST] == []


def test_the_readme_fits_on_a_page() -> None:
    assert len((REPOSITORY / "README.md").read_text("utf-8").splitlines()) <= 110


def test_the_architecture_is_read_in_minutes() -> None:
    """Beside the table that a test makes."""
    page = (REPOSITORY / "docs/architecture.md").read_text("utf-8")
    by_hand = re.sub(r"<!-- rules: begin.*?rules: end -->", "", page, flags=re.DOTALL)
    assert len(by_hand.split()) <= 1500


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("the file stands there, as was said", 2),
        ("it is asked for on a terminal", 1),
        ("S stands for the marker; a stand-in understands, as told as", 0),
        ("an outstanding notwithstanding withstands", 0),
    ],
)
def test_words_are_whole_words(text: str, hits: int) -> None:
    assert len(banned(text)) == hits


def test_pages_have_banned_words_of_their_own() -> None:
    text = "it goes on with the rest; without it this is no dataset"
    assert (len(banned(text)), len(banned(text, PAGE_WORDS))) == (0, 2)


def test_sentences_leave_code_and_tables_out() -> None:
    page = (
        "# A heading\n\nOne `a b c` [two](three.md). Four\nfive.\n\n| a | table |\n\n```text\nsome code\n```\n- item\n"
    )
    assert sentences(page) == ["One code [two].", "Four five.", "- item"]
