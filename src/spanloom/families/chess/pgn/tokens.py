r"""The text of PGN → its tokens.

In: text. Out: pairs of the move number before a token, often empty, and the token:

    tag         [White "a"]       also with a space in its name, quotes in its value, a value over a few lines;
                                  a line such as [White a] or [White "a, which `tag_of` refuses
    comment     {…}               over many lines; one that ends at the next tags, or at the end, is not closed
    comment     ; …               to the end of the line
    escape      % …               a line that begins so
    NAG         $1
    variation   ( and )
    word        e4, 1-0, 7, += and all else

A tag line inside a comment is text of the comment if the comment is closed without another `{`. Otherwise the comment
is not closed: it ends before the tag line, so that the games after it are read. The time is linear in the text.
"""

import re
from functools import lru_cache

_TAG_BEGIN = r'\[[ \t]*\w[^"\[\]{}\n]*"'
_MORE_LINES = r"\n(?![ \t]*(?:\[|\n))"
_VALUE = r'(?:[^"\\\n]|\\.)*+'
_TAG = (
    rf'{_TAG_BEGIN}(?:{_VALUE}(?:{_MORE_LINES}{_VALUE}){{0,3}}+"\s*\]'
    rf'|[^\n]*?(?:{_MORE_LINES}[^\n]*?){{0,3}}?"[ \t]*\](?=[ \t]*(?:\n|\[|\Z))'
    r"|[^\n]*)"
)
COMMENT_LIMIT = 1 << 16
"""How many characters a comment with a tag line in it may have."""
_UNTIL_TAG = rf"(?:\n(?![ \t\ufeff]*{_TAG_BEGIN})"
_COMMENT = (
    rf"\{{[^}}\n]*+{_UNTIL_TAG}[^}}\n]*+)*+\}}"
    rf"|\{{[^{{}}]{{0,{COMMENT_LIMIT}}}+\}}"
    rf"|\{{[^\n]*+{_UNTIL_TAG}[^\n]*+)*+"
)
_SPACE = r"\s\ufeff\x1a"  # the byte order mark of a file that was appended, the end mark of DOS
TOKEN = re.compile(
    rf"((?:\d*+[.…]++[{_SPACE}]*+)*+)"
    rf"([^{_SPACE}{{}}()\[\];$%][^{_SPACE}{{}}()\[\];$]*+(?:(?<=[18])\([^\W\d_]+\))?"
    rf"|{_COMMENT}|{_TAG}|^\[[ \t]*\w[^\n]*|\$\d*|[()\[\]}}]|;[^\n]*|^%[^\n]*|%|\Z)",
    re.MULTILINE,
)
TAG_LINE = re.compile(rf"^[ \t\ufeff]*{_TAG_BEGIN}", re.MULTILINE)


def tokens_of(text: str) -> list[tuple[str, str]]:
    """The tokens of a text, each with the move number before it (`1.`, `1...`; empty if there is none)."""
    return TOKEN.findall(text)


def token_places(text: str) -> list[int]:
    """Where each token of a text begins."""
    return [match.start(2) for match in TOKEN.finditer(text)]


def begins_tags(token: str) -> bool:
    """Whether a token behind moves is the first tag of the next game."""
    return token[:1] == "[" and '"' in token


def is_closed(comment: str) -> bool:
    """Whether a `{` comment is closed. One with another `{` in it counts as open: that may begin the next comment."""
    return comment[-1] == "}" and comment.find("{", 1) < 0


def tag_of(token: str) -> tuple[str, str] | None:
    """Name and value of a tag, the name as `_plain_name` has it; None for a tag that has no end."""
    name, _, rest = token[1:].partition('"')
    value, quote, bracket = rest.rpartition('"')
    if not quote or bracket.strip() != "]":
        return None
    return _plain_name(name), value.replace('\\"', '"').replace("\\\\", "\\") if "\\" in value else value


@lru_cache(maxsize=1024)
def _plain_name(name: str) -> str:
    """In small letters without spaces and underscores: `Time Control` is TimeControl."""
    return "".join(name.replace("_", " ").split()).lower()
