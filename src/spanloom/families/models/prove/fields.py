"""The texts of a conversation as numbered fields, and words that replace them.

In: the texts that `form.shaped` visits. Out: `Tracer`, which marks each text with the number of its field;
`Sentinels`, which replaces each text by a word.
"""

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
    """Replaces each text by a word that occurs nowhere; the white space around it stays.

    `texts[word]` is the replaced text without white space around it, `kinds[word]` its kind; `numbers[word]` is the
    replaced number, boolean or null. `structure`: replace names of functions and arguments too.
    """

    def __init__(self, salt: str, *, structure: bool) -> None:
        self._salt, self._structure = salt, structure
        self.texts: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.numbers: dict[str, float | None] = {}

    def text(self, kind: str, value: str) -> str:
        core = value.strip()
        if not core or kind == CALL_ID or (kind in _STRUCTURE and not self._structure):
            return value
        word = f"Q{self._salt}{len(self.texts)}z"
        self.texts[word], self.kinds[word] = core, kind
        start = value.index(core)
        return value[:start] + word + value[start + len(core) :]

    def number(self, value: float | None) -> float | None:
        # No other boolean or null would be unique in the text, so a number replaces them.
        number = 730_000_019 + len(self.numbers)
        other = float(number) if isinstance(value, float) else number
        for written in written_number(other):
            self.numbers[written] = value
        return other
