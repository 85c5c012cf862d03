"""Files beside a dataset for users to read: the report, as page and as JSON, and the card.

In: facts and a root. Out: `report.html`, `report.json`, `README.md`. They are views: their content follows from the
manifest, the files that it lists and a validation. So the manifest does not list them, a later report (which has times)
replaces an earlier one, and on publishing, an existing view is not a conflict, whatever its bytes.

At a dataset's root a view is replaced or removed only if it is recognised as one of ours. A foreign file of the same
name stays.
"""

import os
import re
from pathlib import Path
from typing import Any

from spanloom.dataset.facts import REPORT_VERSION
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import CARD_NAME, REPORT_HTML, REPORT_JSON, VIEW_NAMES
from spanloom.dataset.statistics import Counts, collect
from spanloom.errors import ArtifactError
from spanloom.findings import Report
from spanloom.provenance import readable_json
from spanloom.report.card import dataset_card, is_unchanged_card
from spanloom.report.pages.report import report_page
from spanloom.storage import is_regular, read_json, read_small, write_atomically

_PAGE_HEAD = 2000
_GENERATOR = b'<meta name="generator" content="spanloom">'
_EARLIER_PAGE = re.compile(
    rb"""<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n"""
    rb"""<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; style-src &#39;sha256-"""
)
"""The start of pages from before pages named their generator."""

LANGUAGE = "language"
"""The column from which a card takes the languages of a dataset, if its family has it."""


def write_report(
    facts: dict[str, Any],
    content: Content,
    family: DatasetFamily,
    *,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    """Writes each file of the report that is not None, completely or not at all."""
    if json_file is not None:
        write_atomically(json_file, readable_json(facts))
    if html_file is not None:
        write_atomically(html_file, report_page(facts, family.describe(content), family.GROUP_COLUMNS).encode())


def write_report_at(root: Path, facts: dict[str, Any], content: Content, family: DatasetFamily) -> list[Path]:
    """Writes both forms of the report at a dataset's root. Returns the foreign files in their places, which stay."""
    files = {"json_file": root / REPORT_JSON, "html_file": root / REPORT_HTML}
    free = {form: path if may_replace_view(path) else None for form, path in files.items()}
    write_report(facts, content, family, **free)
    return [path for form, path in files.items() if free[form] is None]


def write_card(root: Path, content: Content, family: DatasetFamily, report: Report | None = None) -> bool:
    """Writes the card of a clean dataset. `report`: that of its validation.

    Returns False if there is a README.md that is not ours, or was edited.
    """
    path = root / CARD_NAME
    if not may_replace_view(path):
        return False
    by_language = counts_by_language(root, content, family)
    write_atomically(path, dataset_card(content, family.describe(content), by_language, report))
    return True


def counts_by_language(root: Path, content: Content, family: DatasetFamily) -> dict[str, Counts]:
    """Counts by the language of the rows; empty if the rows have none."""
    if LANGUAGE not in family.GROUP_COLUMNS:
        return {}
    counted = collect(root, content, [(LANGUAGE,)], columns=family.GROUP_COLUMNS)[(LANGUAGE,)]
    return {key[0]: counts for key, counts in counted.items() if key[0] is not None}


def remove_views(root: Path) -> None:
    """Removes report and card; a file that is not ours, or a card that was edited, stays."""
    for name in VIEW_NAMES:
        if is_own_view(root / name):
            (root / name).unlink(missing_ok=True)


def may_replace_view(path: Path) -> bool:
    """Whether a view may be written here: the place is empty, or has a view of ours."""
    return is_own_view(path) or not os.path.lexists(path)


def is_own_view(path: Path) -> bool:
    """Whether this is a regular file that is recognised as the view of this name: by the key `report` of the report,
    the generator of the page, the seal of the card."""
    if not is_regular(path):
        return False
    if path.name == REPORT_HTML:
        with path.open("rb") as stream:
            head = stream.read(_PAGE_HEAD)
        return _GENERATOR in head or _EARLIER_PAGE.match(head) is not None
    if path.name == REPORT_JSON:
        try:
            facts = read_json(path, ArtifactError, "the report", "it stays as it is")
        except ArtifactError:
            return False
        return isinstance(facts, dict) and facts.get("report") == REPORT_VERSION
    try:
        return path.name == CARD_NAME and is_unchanged_card(read_small(path, ArtifactError, "the card", "it stays"))
    except ArtifactError:
        return False
