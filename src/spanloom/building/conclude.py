"""The end of every build and pipeline: the report of a validation, and the manifest if it has no findings."""

import sys
from pathlib import Path

from spanloom.dataset import manifest
from spanloom.dataset.facts import dataset_facts
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.root.layout import CARD_NAME, REPORT_HTML, REPORT_JSON
from spanloom.findings import Report
from spanloom.report.views import write_card, write_report, write_report_at


def conclude(
    root: Path,
    family: DatasetFamily,
    report: Report,
    *,
    seconds: float,
    report_file: Path | None = None,
    html_file: Path | None = None,
    name: str | None = None,
) -> None:
    """Writes the findings of a validation that took `seconds`, and promotes a pending manifest if there are none.

    Writes the report to `report_file` (JSON) and `html_file` in either case. With a pending manifest it also writes the
    report at the root, and the card before promotion. A foreign file with the name of a view stays at the root, with a
    warning on stderr. `name`: see `dataset_facts`.
    """
    written = manifest.read_any(root)
    facts = dataset_facts(root, written, family, report, timings={"validate": round(seconds, 3)}, name=name)
    pending = (root / manifest.PENDING_NAME).exists()
    at_root = (root / REPORT_JSON, root / REPORT_HTML)
    kept: list[Path] = []
    if (report_file, html_file) != at_root:
        write_report(facts, written.content, family, json_file=report_file, html_file=html_file)
    if pending or (report_file, html_file) == at_root:
        kept += write_report_at(root, facts, written.content, family)
    if pending and report.clean:
        if not write_card(root, written.content, family, report):
            kept.append(root / CARD_NAME)
        manifest.promote(root, environment={"reader": report.reader})
    for path in kept:
        print(f"warning: {path} was not made by Spanloom, or was edited; it stays as it is", file=sys.stderr)
