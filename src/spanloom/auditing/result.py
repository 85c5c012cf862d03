"""The result of an audit: as values, as JSON and as lines for a terminal.

In: counts and examples of all units. Out: `Result`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spanloom.dataset.document import ShownDocument
from spanloom.errors import EXIT_FINDINGS
from spanloom.law.classes import CLASSES

EXAMPLES = 10
"""How many documents of each class are shown."""

NOT_SHOWN = (
    "whether the texts are those of your conversations, and whether any is missing",
    "a text that spells a whole header with its control tokens: it reads as a message",
    "whether an earlier answer is as the model samples it, where the template changes more than reasoning",
)
"""Faults that tokens alone cannot show."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """`place`: file, row and part; `token`: of the document; `row` of its file; `document`: coloured."""

    place: str
    row: int
    token: int
    document: ShownDocument


@dataclass(frozen=True, kw_only=True)
class Result:
    """An audit.

    data        the dataset, as given; `container`: its kind; `model`: the folder's name
    rows        rows read, of `all_rows`
    documents   in these rows; `tokens` and `trained`: their totals
    found       class → documents
    examples    class → the first of them
    declared    class → who declares it: such findings are notes
    unshown     classes that frames of this template cannot show
    messages    with messages: their rows and those that are not conversations, by reason; matched documents, unmatched
                ones, and those that are not proven, by class
    proven      proven documents that tested the reading of frames
    encoded     documents whose text was encoded again
    tolerated   class → the share of documents up to which its findings do not fail the audit
    """

    data: str
    container: str
    model: str
    rows: int
    all_rows: int
    documents: int
    tokens: int
    trained: int
    found: Mapping[str, int]
    examples: Mapping[str, tuple[Example, ...]]
    declared: Mapping[str, str]
    unshown: tuple[str, ...]
    encoded: int
    proven: int
    messages: Mapping[str, Any] | None = None
    seed: int | None = field(default=None)
    tolerated: Mapping[str, float] = field(default_factory=dict)

    @property
    def findings(self) -> dict[str, int]:
        """Class → documents, without notes, in the order of the classes."""
        return {name: self.found[name] for name in CLASSES if name in self.found and name not in self.declared}

    @property
    def notes(self) -> dict[str, int]:
        """Class → documents, of declared classes."""
        return {name: self.found[name] for name in CLASSES if name in self.found and name in self.declared}

    @property
    def exit_code(self) -> int:
        failing = [name for name in self.findings if self.share(name) > self.tolerated.get(name, 0)]
        return EXIT_FINDINGS if failing else 0

    def share(self, name: str) -> float:
        """The number of documents of a class, and of all."""
        return self.found[name] / max(self.documents, 1)


def as_json(result: Result) -> dict[str, Any]:
    """The result as JSON values."""

    def entry(name: str) -> dict[str, Any]:
        return {
            "documents": result.found[name],
            "share": round(result.share(name), 6),
            "meaning": CLASSES[name].meaning,
            "remedy": CLASSES[name].remedy,
            "cause": CLASSES[name].cause,
            "first": [
                {"place": each.place, "row": each.row, "token": each.token} for each in result.examples.get(name, ())
            ],
        }

    return {
        "data": result.data,
        "container": result.container,
        "model": result.model,
        "clean": not result.findings,
        "rows": result.rows,
        "of": result.all_rows,
        "seed": result.seed,
        "documents": result.documents,
        "tokens": result.tokens,
        "trained": result.trained,
        "findings": {name: entry(name) for name in result.findings},
        "notes": {name: {**entry(name), "declared": result.declared[name]} for name in result.notes},
        "encoded_again": result.encoded,
        "tried_on": result.proven,
        "not_shown": {"classes": list(result.unshown), "without_messages": [] if result.messages else list(NOT_SHOWN)},
        "messages": result.messages,
    }


def as_lines(result: Result) -> list[str]:
    """The summary for a terminal."""
    read = f"{result.rows:,} rows" if result.rows == result.all_rows else f"{result.rows:,} of {result.all_rows:,} rows"
    share = result.trained / max(result.tokens, 1)
    lines = [
        f"{result.data}: {result.container}, {read}, {result.documents:,} documents, {result.tokens:,} tokens, "
        f"{share:.1%} trained",
        f"model {result.model}",
        "",
    ]
    if not result.findings:
        lines.append("no findings")
    for title, names in (("finding", result.findings), ("note", result.notes)):
        for name, count in names.items():
            lines.append(f"{title:<8}{name:<24}{count:>10,}  {result.share(name):>7.1%}  {CLASSES[name].meaning}")
            because = result.declared.get(name)
            lines.append(f"{'':<8}{'declared: ' + because if because else 'remedy: ' + CLASSES[name].remedy}")
            if not because:
                lines.append(f"{'':<8}likely cause: {CLASSES[name].cause}")
    lines.append("")
    if result.messages is not None:
        counts = result.messages
        not_read, not_proven = (
            ", ".join(f"{kind} {count:,}" for kind, count in counts[name].items()) for name in ("refused", "not_proven")
        )
        lines.append(
            f"messages: {counts['rows']:,} rows{f', no conversation: {not_read}' if not_read else ''}; "
            f"{counts['matched']:,} documents have a conversation, {counts['unmatched']:,} have none"
            + (f"; not proven: {not_proven}" if not_proven else "")
        )
    else:
        lines.append("without --messages this does not show:")
        lines += [f"  {text}" for text in NOT_SHOWN]
    lines.append(f"encoded again: {result.encoded:,} documents")
    if not result.proven:
        lines.append("not tried: no conversation is proven for this template, so its frames may be misread")
    if result.unshown:
        lines.append(f"not shown by the tokens of this template: {', '.join(result.unshown)}")
    return lines
