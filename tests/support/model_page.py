"""The table of `docs/families/models.md`: our forty conversations by the pairs of tokenizer and template at hand.

In: the folder that `SPANLOOM_MODELS` names. Out: the table; as a program, the page written anew.
"""

import json
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spanloom.families.models.model import Model
from spanloom.families.models.probe.advice import Advice, find_advice
from spanloom.families.models.probe.conversations import probed_conversations
from spanloom.families.models.probe.result import DEFAULT, as_json, probe
from support.model_material import ROOT, Pair, models_of, pairs, stand_ins

PAGE = Path(__file__).parents[2] / "docs/families/models.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
HEAD = (
    "| tokenizer | origin | templates | proven of 40 | in several documents | reasoning, arguments | refused "
    "| with these options | made of 40 | left |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
)


def origins() -> dict[str, str]:
    """Tokenizer → true, converted or rebuilt, by the index that lies beside them."""
    entries = [json.loads(line) for line in (ROOT / "index.jsonl").read_text().splitlines()]
    return {entry["name"]: entry["truth"] for entry in entries if entry["kind"] == "tokenizer"}


def row_of(pair: Pair, model: Model, origin: str) -> str:
    """The line of a pair."""
    result = probe(model, probed_conversations(None))
    advice = find_advice(result, DEFAULT) if result.refused else None
    return line_of(pair, origin, as_json(result), advice)


def line_of(pair: Pair, origin: str, result: dict[str, Any], advice: Advice | None) -> str:
    """The line of a probe's JSON and of what would help."""
    form = f"{result['form']['reasoning']}, {result['form']['arguments']}"
    options, made = "–", "–"
    if advice is not None:
        options = f"`{shlex.join(advice.options)}`"
        made = str(advice.made) + (f" ({advice.declared} declared)" if advice.declared else "")
    cells = (
        pair.tokenizer if not pair.markers else f"pieces of {pair.tokenizer}",
        origin,
        pair.template,
        result["proven"],
        result["in_several_documents"],
        form,
        _classes(result["refusals"]),
        options,
        made,
        _classes(advice.left) if advice is not None else "–",
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def _classes(refused: Mapping[str, int]) -> str:
    return ", ".join(f"`{kind}` {count}" for kind, count in sorted(refused.items())) or "none"


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
    return tuple(line.strip("\n").removeprefix("| ").removesuffix(" |").split(" | "))


def rows(folder: Path, chosen: Sequence[Pair]) -> Iterator[str]:
    """The lines of these templates."""
    truth = origins()
    for pair, model in models_of(chosen, folder):
        yield row_of(pair, model, "stand-in" if pair.markers else truth[pair.tokenizer])


def table_in(page: str) -> str:
    """The table of the page."""
    return page[page.index(BEGIN) + len(BEGIN) : page.index(END)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        table = HEAD + grouped(rows(Path(scratch), [*pairs(), *stand_ins()]))
    page = PAGE.read_text()  # it takes minutes, in which the page may have changed
    PAGE.write_text(page.replace(BEGIN + table_in(page), BEGIN + table))
