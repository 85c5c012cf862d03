"""How many published answers are taken for markup: `python -m tools.bench.markup FILE…`.

In: JSON and JSON Lines files of records whose answers are under `output`, `response` or `completion`, in messages of
the assistant, or in `choices`. Out: how many answers there are, and how many have something that a chat template
writes; each such mark with its count and the text around one of them, for a person to judge.

The texts that were tried: alpaca_eval's model outputs, GPTeacher, CodeAlpaca and Arena-Hard.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanloom.conversations.reading.markup import template_mark

ANSWERS = ("output", "response", "completion")
AROUND = 60
"""Characters shown before and after a mark."""


def records(path: Path) -> Iterator[Any]:
    """The records of a file: an array, or one a line. Lines that are not JSON are left out."""
    text = path.read_text("utf-8", errors="replace")
    if text.lstrip().startswith("["):
        yield from json.loads(text)
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def answers(record: Any) -> Iterator[str]:
    """The texts of a record that a model wrote."""
    if not isinstance(record, dict):
        return
    yield from (record[key] for key in ANSWERS[:1] if isinstance(record.get(key), str))
    if not isinstance(record.get("output"), str):
        yield from (record[key] for key in ANSWERS[1:] if isinstance(record.get(key), str))
    for choice in record.get("choices") or ():
        turns = choice.get("turns", []) if isinstance(choice, dict) else []
        yield from (
            turn["content"] for turn in turns if isinstance(turn, dict) and isinstance(turn.get("content"), str)
        )
    for message in record.get("messages") or ():
        if isinstance(message, dict) and message.get("role") == "assistant":
            content = message.get("content")
            text = content.get("answer") if isinstance(content, dict) else content
            if isinstance(text, str):
                yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    total, marks, shown = 0, Counter[str](), {}
    for path in parser.parse_args().files:
        for record in records(path):
            for text in answers(record):
                total += 1
                if (mark := template_mark(text)) is not None:
                    marks[mark] += 1
                    at = text.find(mark)
                    shown.setdefault(mark, f"{path.name}: {text[max(0, at - AROUND) : at + AROUND]!r}")
    print(f"{total:,} answers, {marks.total():,} with markup ({marks.total() / max(total, 1):.3%})")
    for mark, count in marks.most_common():
        print(f"{count:6,}  {mark}  {shown[mark]}")


if __name__ == "__main__":
    main()
