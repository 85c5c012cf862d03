"""Makes text safe to display: characters that control a terminal, a browser or text direction become visible ones.

In: any text. Out: text of visible characters, line feeds and tabs. Escaping for HTML is the template's work, on top.

Names and messages come from foreign files: everything printed goes through `visible`, through `visible_line` if it must
stay on one line, or through `visible_json` if a program may read it. `is_utf8` and `AnyOf` look at a text alone.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable

_STEERING = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1: ANSI escapes begin with these
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls: text could be read in another order than it is
    "\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible, or breaking lines; not the joiners
    "\ud800-\udfff"  # \udc80-\udcff stand for bytes that are not UTF-8, as Python's surrogateescape has them
    "\U000e0000-\U000e0fff"  # tags and variation selectors that can hide text
    "]"
)


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8: JSON escapes and names of files can smuggle lone surrogates
    in, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class AnyOf:
    """Looks for any of some texts in another one, fast where that has none of the characters with which they begin."""

    def __init__(self, texts: Iterable[str]) -> None:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for text in filter(None, texts):
            found[text[0]].append(text)
        self._patterns = [(first, re.compile("|".join(map(re.escape, each)))) for first, each in found.items()]

    def within(self, text: str, begin: int = 0, end: int = sys.maxsize) -> bool:
        """Whether one of them is in `text[begin:end]`."""
        return any(
            text.find(first, begin, end) >= 0 and pattern.search(text, begin, end) for first, pattern in self._patterns
        )


def visible(text: str) -> str:
    """`\\x1b[31m` → `␛[31m`, a right-to-left override → `⟨U+202E⟩`, a stray byte → `⟨ff⟩`. Keeps line feed and tab."""
    return _STEERING.sub(lambda match: _picture(ord(match.group())), text)


def visible_line(text: str, longest: int | None = None) -> str:
    """`visible`, on one line, cut after `longest` characters."""
    cut = text if longest is None or len(text) <= longest else text[:longest] + " …"
    return visible(cut).replace("\n", "↵").replace("\t", "⇥")


def visible_json(text: str) -> str:
    """JSON text with the same value, in which control characters are escaped: a C1 control as `\\u009b`."""
    return _STEERING.sub(lambda match: _json_escape(ord(match.group())), text)


def _json_escape(point: int) -> str:
    if point < 0x10000:
        return f"\\u{point:04x}"
    high, low = divmod(point - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def hex_bytes(data: bytes) -> str:
    """`⟨f0 9f⟩`: bytes that are not valid text by themselves."""
    return f"⟨{data.hex(' ')}⟩"


def _picture(point: int) -> str:
    if point < 0x20:
        return chr(0x2400 + point)
    if point == 0x7F:
        return "␡"
    if 0xDC80 <= point <= 0xDCFF:
        return f"⟨{point - 0xDC00:02x}⟩"
    return f"⟨U+{point:04X}⟩"
