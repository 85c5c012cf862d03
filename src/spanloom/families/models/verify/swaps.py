"""Words in place of texts: what a template writes around texts is what it writes around words.

In: the kind of a text and the text. Out: a word that occurs nowhere, and what it replaces.
"""

import json
from dataclasses import dataclass

from spanloom.families.models.verify.messages import VALUE, Swap


@dataclass(frozen=True)
class Swapped:
    """A text that a word replaces: its kind, the text without white space around it, the white space before it."""

    kind: str
    core: str
    lead: str

    def ways(self) -> list[str]:
        """How a template may write the text; a `VALUE` as JSON or as Python."""
        if self.kind == VALUE:
            return list(dict.fromkeys([self.core, str(json.loads(self.core))]))
        return written(self.core)


Words = dict[str, Swapped]


def swapping(words: Words, held: str, *, as_long: bool = False) -> Swap:
    """A `Swap` that replaces each text by a word that is not in `held`, a value by digits, and keeps white space.

    `words` receives each word with its text. `as_long`: a word is at least as long as its text.
    """

    def put(kind: str, text: str) -> str:
        core = text.strip()
        if not core:
            return text
        number = len(words)
        if kind == VALUE:
            while (digits := str(910_000_000 + number)) in held or digits in words:
                number += 1000
            words[digits] = Swapped(kind, core, "")
            return digits
        more = "y" * (len(core) - 6 if as_long else 1)
        while (word := f"Zx{number:04d}{more or 'y'}z") in held or word in words:
            number += 1000
        begin = text.index(core)
        words[word] = Swapped(kind, core, text[:begin])
        return text[:begin] + word + text[begin + len(core) :]

    return put


def written(text: str) -> list[str]:
    """How a template may write a text: as it is, as JSON, as JSON in JSON."""
    spellings = [text]
    for ascii_only in (False, True):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        spellings += [once, json.dumps(once, ensure_ascii=False)[1:-1]]
    return list(dict.fromkeys(spellings))
