"""The texts of a conversation as numbered fields, and words that replace them.

In: the texts that `form.shaped` visits. Out: `Tracer`, which marks each text with the number of its field;
`Sentinels`, which replaces each text by a word.
"""

import string
from dataclasses import dataclass

from spanloom.families.models.form import CALL_ID, CALL_KEY, CALL_NAME, NAME, written_number
from spanloom.tokenizers.traced_text import traced

_STRUCTURE = frozenset({CALL_NAME, CALL_KEY})


@dataclass(frozen=True)
class Field:
    """A text of a message. `message`: the place of the message; `kind`: of `form`; `text`: as given."""

    message: int
    kind: str
    text: str

    @property
    def required(self) -> bool:
        """Whether the template must write it. Most templates leave ids of calls and names of users out."""
        return self.kind not in (CALL_ID, NAME) and bool(self.text.strip())


BEGINS_OF_WORDS = ("Qv", "Qw", "Qkx", "Qqj")
"""How words that replace texts begin, tried in order until no text holds one."""

FIRST_NUMBER = 730_000_019
"""What replaces the first number, boolean or null; the next ones count on."""

_LAST_BEGIN, _END = "Qzzqx", "z"

CHARACTERS_OF_WORDS = frozenset("".join((*BEGINS_OF_WORDS, _LAST_BEGIN, _END)) + string.digits)
"""Characters of the words and numbers that replace texts."""


class Tracer:
    """Marks the texts of messages. Mark n means `fields[n]`. The caller sets `message` to the current place."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.message = 0

    def text(self, kind: str, value: str) -> str:
        self.fields.append(Field(self.message, kind, value))
        return traced(value, len(self.fields) - 1)

    def number(self, value: float | None) -> float | None:
        return value


class Sentinels:
    """Replaces each text by a word that `held`, all texts, does not hold; the white space around it stays.

    `texts[word]` is the replaced text without white space around it, `kinds[word]` its kind; `numbers[word]` is the
    replaced number, boolean or null. `structure`: replace names of functions and arguments too.
    """

    def __init__(self, held: str, *, structure: bool) -> None:
        self._begin = next((begin for begin in BEGINS_OF_WORDS if begin not in held), _LAST_BEGIN)
        self._structure = structure
        self.texts: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.numbers: dict[str, float | None] = {}

    def text(self, kind: str, value: str) -> str:
        core = value.strip()
        if not core or kind == CALL_ID or (kind in _STRUCTURE and not self._structure):
            return value
        word = f"{self._begin}{len(self.texts)}{_END}"
        self.texts[word], self.kinds[word] = core, kind
        start = value.index(core)
        return value[:start] + word + value[start + len(core) :]

    def number(self, value: float | None) -> float | None:
        # No other boolean or null would be unique in the text, so a number replaces them.
        number = FIRST_NUMBER + len(self.numbers)
        other = float(number) if isinstance(value, float) else number
        for written in written_number(other):
            self.numbers[written] = value
        return other
