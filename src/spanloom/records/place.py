"""Where a record is: text for the user, and the number in it for programs."""

from pathlib import Path


class RecordPlace(str):
    """The place of a record: `chat.jsonl, line 17`, with 17 as `number`."""

    number: int

    @classmethod
    def of(cls, path: Path, unit: str, number: int) -> "RecordPlace":
        place = cls(f"{path}, {unit} {number}")
        place.number = number
        return place
