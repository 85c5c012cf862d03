"""Where a record is: text for people, and the number in it for programs."""

from pathlib import Path


class RecordPlace(str):
    """`chat.jsonl, line 17`, of which 17 is the `number`."""

    number: int

    @classmethod
    def of(cls, path: Path, unit: str, number: int) -> "RecordPlace":
        place = cls(f"{path}, {unit} {number}")
        place.number = number
        return place
