"""`spanloom convert` over conversations of several turns, against another checkout: CPU time of whole commands.

In: texts of this machine. Out: a table of CPU seconds (the command and its processes) at two sizes. What does not
depend on the size is start-up; the rest is told a conversation. With `--baseline`, another checkout (`git worktree add
DIR COMMIT`), both convert the same file, one right after the other, and ratios are taken within each pair.
"""

import argparse
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import texts
from bench.processes import compile_sources
from bench.start import BASELINE, THIS, run

TURNS = 3
CHARACTERS = 400
"""Of each text of the user; an answer has twice as many."""
PIECES_KEPT = 2000
"""Texts that are drawn from in turn: converting keeps nothing of a text, so repeats flatter nobody."""
FEW = 200
"""Conversations of the small size."""


def conversation(number: int, pieces: Iterator[str]) -> dict[str, Any]:
    """OpenAI messages; every second turn calls a tool."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Answer in short."}]
    for turn in range(TURNS):
        messages.append({"role": "user", "content": next(pieces)})
        if turn % 2:
            call = {"id": f"call_{turn}", "type": "function"}
            function = {"name": "look_up", "arguments": json.dumps({"number": number})}
            messages.append({"role": "assistant", "content": None, "tool_calls": [{**call, "function": function}]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": next(pieces)})
        messages.append({"role": "assistant", "content": next(pieces) + next(pieces)})
    tool = {"name": "look_up", "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}}}
    return {"id": f"c{number}", "messages": messages, "tools": [{"type": "function", "function": tool}]}


def write_conversations(file: Path, count: int) -> None:
    blocks = texts.Texts().blocks("prose")
    cut = (block[at : at + CHARACTERS] for block in blocks for at in range(0, len(block) - CHARACTERS, CHARACTERS))
    # Characters of control strings are refused; a sentence about them is not what is measured.
    kept = [piece for piece in itertools.islice(cut, PIECES_KEPT) if "<" not in piece and "[" not in piece]
    pieces = itertools.cycle(kept)
    with file.open("w") as stream:
        stream.writelines(f"{json.dumps(conversation(number, pieces))}\n" for number in range(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="another checkout")
    given = parser.parse_args()
    here = Path(__file__).parents[2] / "src"
    checkouts = [(BASELINE, given.baseline.resolve() / "src")] if given.baseline else []
    checkouts += [(THIS, here)]
    for _, sources in checkouts:
        compile_sources(sources)
    seconds: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        sizes = (FEW, given.conversations)
        for size in sizes:
            write_conversations(work / f"{size}.jsonl", size)
        for _, size in itertools.product(range(given.runs), sizes):
            for name, sources in checkouts:
                shutil.rmtree(work / "out", ignore_errors=True)
                used = run(["convert", work / f"{size}.jsonl", "--out", work / "out", "--yes"], sources)["cpu"]
                seconds.setdefault((name, size), []).append(used or 0.0)
    print(f"| | start-up | a conversation | {given.conversations:,} conversations | to the baseline |")
    print("|---|---|---|---|---|")
    for name, _ in checkouts:
        few, many = seconds[name, FEW], seconds[name, given.conversations]
        each = (median(many) - median(few)) / (given.conversations - FEW)
        pairs = zip(many, seconds[checkouts[0][0], given.conversations], strict=True)
        ratio = median(mine / other for mine, other in pairs)
        print(
            f"| {name} | {median(few) - FEW * each:.2f} s | {each * 1e6:,.0f} µs | {median(many):.2f} s | {ratio:.2f} |"
        )


if __name__ == "__main__":
    main()
