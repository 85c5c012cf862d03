"""A dataset and its validation as a short table for the terminal, or as JSON for machines.

In: a manifest, the description from its family, a validation report. Out: text.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from spanloom.dataset.family import Description
from spanloom.dataset.manifest import MANIFEST_NAME, Manifest, SplitCounts
from spanloom.findings import EARLIER, Report
from spanloom.megatron.readers import INDEPENDENT, reader_in_words
from spanloom.text import visible, visible_line

FINDINGS_SHOWN = 20
WITHOUT_MEGATRON = (
    "\nread by Spanloom's independent reader, not by Megatron's; to read through Megatron's: pip install"
    " 'spanloom[megatron]', then spanloom validate --reader megatron"
)


def result_json(root: Path, manifest: Manifest, report: Report) -> dict[str, Any]:
    """The value that `--json` prints."""
    return {
        "root": str(root),
        "manifest": str(root / MANIFEST_NAME) if (root / MANIFEST_NAME).is_file() else None,
        "clean": report.clean,
        "config_sha256": manifest.content.config_sha256,
        "totals": manifest.content.as_dict()["totals"],
        "files": sum(1 for _ in manifest.content.listed_files()),
        "validation": report.as_dict(),
        "timings": manifest.environment.get("timings"),
    }


def dataset_table(manifest: Manifest) -> Table:
    """One column per split: sequences, tokens, tokens per span, and the share of documents that fit common lengths."""
    content = manifest.content
    splits = content.totals.splits
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for split in splits:
        table.add_column(Text(visible_line(split, 40)), justify="right")

    def line(name: str, cells: Callable[[SplitCounts], str]) -> None:
        table.add_row(Text(visible_line(name, 60)), *(cells(counts) for counts in splits.values()))

    line("sequences", lambda counts: f"{counts.sequences:,}")
    line("tokens", lambda counts: f"{counts.tokens:,}")
    for span in content.span_names:
        line(f"  {span}", lambda counts, span=span: f"{counts.span_tokens.get(span, 0):,}")  # type: ignore[misc]
    line("longest document", lambda counts: f"{counts.longest:,}")
    limits = {limit: None for counts in splits.values() for limit in counts.fitting}
    for limit in limits if content.block_size is None else ():
        line(
            f"  fit {f'{int(limit):,}' if limit.isdecimal() else limit} whole",
            lambda counts, limit=limit: (  # type: ignore[misc]
                f"{fitting / counts.sequences:.1%}"
                if counts.sequences and (fitting := counts.fitting.get(limit)) is not None
                else "–"
            ),
        )
    return table


def findings_text(report: Report) -> Text:
    """The verdict, then the first findings."""
    if report.clean:
        checked = report.checked
        counted: list[str] = [name for name in ("documents", "tokens") if name in checked] or list(checked)
        seen = ", ".join(f"{checked[name]:,} {name}" for name in counted)
        again = [name for name in ("rows rendered again", "blocks packed again") if checked.get(name)]
        clean = f"clean: {seen} checked" + "".join(f", {checked[name]:,} {name}" for name in again)
        if (runs := checked.get("runs in these rows", 0)) > (some := checked.get("runs rendered again", 0)):
            clean += f", {some:,} of their {runs:,} runs"
        if count := report.duplicate_documents:
            clean += f"; {count:,} document{' has' if count == 1 else 's have'} the tokens of an earlier one"
        verdict = Text(f"{clean}{WITHOUT_MEGATRON if report.reader == INDEPENDENT else ''}", style="green")
        for notice in report.notices:
            verdict.append(f"\nnotice, of an earlier version: {notice}", style="yellow")
        warnings = [finding for finding in report.findings if not finding.check.startswith(EARLIER)]
        for warning in warnings[:FINDINGS_SHOWN]:
            verdict.append(f"\n  warning {visible_line(str(warning))}", style="default")
        return verdict
    total = sum(report.found.values())
    text = Text(f"{total:,} finding{'s' if total > 1 else ''}\n", style="bold red")
    for finding in report.findings[:FINDINGS_SHOWN]:
        text.append(f"  {visible_line(str(finding))}\n", style="default")
    if total > FINDINGS_SHOWN:
        text.append(f"  … and {total - FINDINGS_SHOWN:,} more", style="default")
    return text


def show_result(console: Console, root: Path, manifest: Manifest, description: Description, report: Report) -> None:
    """Prints the result of a build: the table, the files, the manifest, the verdict."""
    content = manifest.content
    totals = content.totals
    lines = [
        f"rows       {totals.rows_read:,} read, {sum(totals.rejected.values()):,} rejected"
        + "".join(f"\n             {count:,} {reason}" for reason, count in totals.rejected.items()),
        *(f"{name:<10} {value}" for name, value in description.result.items()),
        f"files      {sum(1 for _ in content.listed_files()):,} under {root}",
        f"manifest   {root / MANIFEST_NAME if report.clean else 'not written: the dataset did not validate'}",
    ]
    verdict = Text("validation ")
    verdict.append_text(findings_text(report))
    console.print(
        Group(dataset_table(manifest), Text(visible("\n".join(lines))), verdict), soft_wrap=True, highlight=False
    )


def show_manifest(console: Console, manifest: Manifest, description: Description) -> None:
    """Prints the sources, settings and counts of a dataset, for `spanloom manifest show`."""
    content, source = manifest.content, manifest.content.input
    vouched = "files" if source.manifest_sha256 is None else f"shards, {source.manifest_sha256[:12]}…"
    lines = {
        "family": content.family,
        "config": content.config_sha256,
        "code": content.git_sha,
        "input": f"{source.schema_version}, {len(source.shards)} {vouched}",
        "tokenizer": f"{content.tokenizer.name}, sha256 {content.tokenizer.sha256[:12]}…",
        **description.summary,
        "alignment": content.alignment,
        "rows": f"{content.totals.rows_read:,} read, {sum(content.totals.rejected.values()):,} rejected",
        "built": manifest.environment["created_at"],
    }
    if words := reader_in_words(manifest.environment.get("reader")):
        lines["validated"] = f"through {words}"
    show_lines(console, lines)
    console.print(dataset_table(manifest))


def show_lines(console: Console, lines: Mapping[str, str]) -> None:
    """Prints facts of a manifest, one per line."""
    width = max(10, *map(len, lines))
    text = "\n".join(f"{name:<{width}} {visible_line(str(value))}" for name, value in lines.items())
    console.print(Text(text), soft_wrap=True)
