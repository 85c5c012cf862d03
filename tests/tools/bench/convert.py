"""`spanloom convert` over conversations of several turns, against another checkout: CPU time of whole commands.

In: texts of this machine, and a seed. Out: of each shape of conversation a table of CPU seconds (the command and its
processes) at two sizes. What does not depend on the size is start-up; the rest is told a conversation. With
`--baseline`, another checkout (`git worktree add DIR COMMIT`), both convert the same file, one right after the other,
and ratios are taken within each pair.

    chat     a system text in one of three; one to six questions and answers
    tools    definitions of four functions; reasoning before each answer, and calls with their results before most

Texts are of drawn lengths: prose, lists, links, blocks of code, and one of five of another script than Latin.
"""

import argparse
import itertools
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from spanloom.conversations.reading.markup import may_hold_markup
from tools.bench import texts
from tools.bench.processes import compile_sources
from tools.bench.start import BASELINE, THIS, run

CHARACTERS = {"question": 150, "answer": 700, "result": 300, "reasoning": 400}
"""Medians of the lengths of texts, whose logarithms are drawn from a normal distribution."""
SPREAD = 0.8
PIECES_KEPT = 3000
"""Texts that are drawn from: converting keeps nothing of a text, so repeats flatter nobody."""
PIECE = 4000
"""Characters; the longest text."""
FEW = 200
"""Conversations of the small size."""


class Drawn:
    """Texts of the machine, cut to drawn lengths. The same seed gives the same texts on one machine."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        blocks = texts.Texts()
        self._pieces = {kind: list(itertools.islice(_pieces(blocks, kind), PIECES_KEPT)) for kind in texts.KINDS}

    def text(self, kind: str) -> str:
        """Markdown of about so many characters as texts of this kind have."""
        length = int(CHARACTERS[kind] * self._random.lognormvariate(0, SPREAD))
        script = "catalogue" if self._random.random() < 0.2 else "prose"
        text = self._cut(script, length)
        match self._random.random() if kind == "answer" else 1.0:
            case share if share < 0.2:
                text += f"\n\n```python\n{self._cut('code', length)}\n```\n"
            case share if share < 0.4:
                items = "\n".join(f"{number}. **{line}**" for number, line in enumerate(text.splitlines(), start=1))
                text = f"### Steps\n\n{items}\n\nSee [the manual](https://example.org/manual?a=1&b=2)."
        # A text that holds tokens of templates is refused, which is not what is measured.
        return f"Answer: {text}" if may_hold_markup(text) and not may_hold_markup(f"Answer: {text}") else text

    def number(self, last: int) -> int:
        return self._random.randint(1, last)

    def one_of(self, share: float) -> bool:
        return self._random.random() < share

    def _cut(self, kind: str, length: int) -> str:
        piece = self._random.choice(self._pieces[kind])
        start = self._random.randrange(max(1, len(piece) - length))
        return piece[start : start + length].strip() or "Yes."


def _pieces(blocks: texts.Texts, kind: str) -> Iterator[str]:
    for block in blocks.blocks(kind):
        for start in range(0, len(block), PIECE):
            piece = block[start : start + PIECE]
            if not may_hold_markup(f"_{piece}"):
                yield piece


def chat(number: int, drawn: Drawn) -> dict[str, Any]:
    messages = [{"role": "system", "content": drawn.text("question")}] if drawn.one_of(1 / 3) else []
    for _ in range(drawn.number(6)):
        messages.append({"role": "user", "content": drawn.text("question")})
        messages.append({"role": "assistant", "content": drawn.text("answer")})
    return {"id": f"chat-{number}", "messages": messages, "source": "drawn", "turns": len(messages)}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Returns the {name.removeprefix('get_')} for a place, as a text.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "City and country"},
                    "days": {"type": "integer", "description": "How many days", "minimum": 1, "maximum": 14},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["place"],
            },
        },
    }
    for name in ("get_weather", "get_news", "get_timetable", "get_prices")
]


def tools(number: int, drawn: Drawn) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Answer in short. Use the functions."}]
    for turn in range(drawn.number(4)):
        messages.append({"role": "user", "content": drawn.text("question")})
        for call in range(drawn.number(3) - 1):
            name = TOOLS[drawn.number(len(TOOLS)) - 1]["function"]["name"]  # type: ignore[index]
            arguments = json.dumps({"place": drawn.text("question")[:20], "days": drawn.number(14)})
            called = {"id": f"call_{turn}_{call}", "type": "function"}
            function = {"name": name, "arguments": arguments}
            messages.append(
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": drawn.text("reasoning"),
                    "tool_calls": [{**called, "function": function}],
                }
            )
            messages.append({"role": "tool", "tool_call_id": called["id"], "content": drawn.text("result")})
        answer = {"role": "assistant", "content": drawn.text("answer")}
        messages.append({**answer, "reasoning_content": drawn.text("reasoning")})
    return {"id": f"tools-{number}", "messages": messages, "tools": TOOLS}


SHAPES: dict[str, Callable[[int, Drawn], dict[str, Any]]] = {"chat": chat, "tools": tools}


def write_conversations(file: Path, shape: str, count: int, seed: int) -> None:
    drawn = Drawn(seed)
    with file.open("w") as stream:
        for number in range(count):
            stream.write(f"{json.dumps(SHAPES[shape](number, drawn), ensure_ascii=False)}\n")


def measure(
    shape: str, checkouts: list[tuple[str, Path]], conversations: int, runs: int, seed: int
) -> dict[tuple[str, int], list[float]]:
    """CPU seconds of each run, by checkout and size."""
    seconds: dict[tuple[str, int], list[float]] = {}
    sizes = (FEW, conversations)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for size in sizes:
            write_conversations(work / f"{size}.jsonl", shape, size, seed)
        for _, size in itertools.product(range(runs), sizes):
            for name, sources in checkouts:
                shutil.rmtree(work / "out", ignore_errors=True)
                used = run(["convert", work / f"{size}.jsonl", "--out", work / "out", "--yes"], sources)["cpu"]
                seconds.setdefault((name, size), []).append(used or 0.0)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, action="append", help="both where none is named")
    parser.add_argument("--conversations", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="another checkout")
    given = parser.parse_args()
    here = Path(__file__).parents[3] / "src"
    checkouts = [(BASELINE, given.baseline.resolve() / "src")] if given.baseline else []
    checkouts += [(THIS, here)]
    for _, sources in checkouts:
        compile_sources(sources)
    print(f"| shape | | start-up | a conversation | {given.conversations:,} conversations | to the baseline |")
    print("|---|---|---|---|---|---|")
    for shape in given.shape or SHAPES:
        seconds = measure(shape, checkouts, given.conversations, given.runs, given.seed)
        for name, _ in checkouts:
            few, many = seconds[name, FEW], seconds[name, given.conversations]
            each = (median(many) - median(few)) / (given.conversations - FEW)
            others = seconds[checkouts[0][0], given.conversations]
            ratios = [mine / other for mine, other in zip(many, others, strict=True)]
            print(
                f"| {shape} | {name} | {median(few) - FEW * each:.2f} s | {each * 1e6:,.0f} µs | {median(many):.2f} s"
                f" | {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) |"
            )


if __name__ == "__main__":
    main()
