"""An audit as a page: a table of findings, and the first documents of each class, coloured.

In: a `Result`. Out: HTML in one file.
"""

from spanloom.auditing.result import Result
from spanloom.law.classes import CLASSES
from spanloom.report.pages.documents import documents_page
from spanloom.report.pages.html import percent
from spanloom.report.terminal import Shown

_COLUMNS = ("", "class", "documents", "share", "meaning", "what to do")


def audit_page(result: Result) -> str:
    """The page."""
    rows = [_COLUMNS]
    for kind, names in (("finding", result.findings), ("note", result.notes)):
        for name, count in names.items():
            remedy = f"declared: {result.declared[name]}" if kind == "note" else CLASSES[name].remedy
            rows.append((kind, name, f"{count:,}", percent(result.share(name)), CLASSES[name].meaning, remedy))
    if len(rows) == 1:
        rows.append(("clean", "–", "0", percent(0), "no findings", ""))
    shown = [each.document for name in CLASSES if name in result.found for each in result.examples.get(name, ())]
    title = f"audit of {result.data} for {result.model}"
    return documents_page(title, shown, sequences=len(shown), shown=Shown(most=0), summary=rows)
