"""The table of `docs/families/models.md`: our forty conversations by the pairs of tokenizer and template at hand.

In: the folder that `SPANLOOM_MODELS` names. Out: the table; as a program, the page written anew.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spanloom.families.models.model import Model
from spanloom.families.models.probe.conversations import probed_conversations
from spanloom.families.models.probe.result import as_json, probe
from support.model_material import ROOT, Pair, models_of, pairs

PAGE = Path(__file__).parents[2] / "docs/families/models.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
HEAD = (
    "| tokenizer | origin | templates | proven of 40 | in several documents | reasoning, arguments | refused |\n"
    "|---|---|---|---|---|---|---|\n"
)


def origins() -> dict[str, str]:
    """Tokenizer → true, converted or rebuilt, by the index that lies beside them."""
    entries = [json.loads(line) for line in (ROOT / "index.jsonl").read_text().splitlines()]
    return {entry["name"]: entry["truth"] for entry in entries if entry["kind"] == "tokenizer"}


def row_of(pair: Pair, model: Model, origin: str) -> str:
    """The line of a pair."""
    return line_of(pair, origin, as_json(probe(model, probed_conversations(None))))


def line_of(pair: Pair, origin: str, result: dict[str, Any]) -> str:
    """The line of a probe's JSON."""
    refused = ", ".join(f"`{kind}` {count}" for kind, count in sorted(result["refusals"].items())) or "none"
    form = f"{result['form']['reasoning']}, {result['form']['arguments']}"
    cells = (pair.tokenizer, origin, pair.template, result["proven"], result["in_several_documents"], form, refused)
    return f"| {' | '.join(map(str, cells))} |\n"


def grouped(lines: Iterable[str]) -> str:
    """The table: lines of one tokenizer that differ in the template alone become one."""
    templates: dict[tuple[str, ...], list[str]] = {}
    for cells in map(cells_of, lines):
        templates.setdefault((*cells[:2], *cells[3:]), []).append(cells[2])
    made = ((*same[:2], ", ".join(names), *same[2:]) for same, names in templates.items())
    return "".join(f"| {' | '.join(cells)} |\n" for cells in made)


def divided(table: str) -> Iterator[str]:
    """The opposite of `grouped`: a line for each template."""
    for cells in map(cells_of, table.splitlines()):
        for name in cells[2].split(", "):
            yield f"| {' | '.join((*cells[:2], name, *cells[3:]))} |\n"


def cells_of(line: str) -> tuple[str, ...]:
    return tuple(line.strip("| \n").split(" | "))


def rows(folder: Path, every: int = 1) -> Iterator[str]:
    """The lines of all pairs, or of each `every`-th."""
    truth = origins()
    for pair, model in models_of(pairs()[::every], folder):
        yield row_of(pair, model, truth[pair.tokenizer])


def table_in(page: str) -> str:
    """The table of the page."""
    return page[page.index(BEGIN) + len(BEGIN) : page.index(END)]


if __name__ == "__main__":
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        table = HEAD + grouped(rows(Path(scratch)))
    PAGE.write_text(page.replace(BEGIN + table_in(page), BEGIN + table))
