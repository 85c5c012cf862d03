"""A validation report as one HTML page.

In: a `Report`. Out: the bytes of a page that needs nothing else: verdict, findings, what was checked.
"""

from html import escape

from spanloom.findings import Report


def report_page(report: Report) -> bytes:
    """The page; whatever a finding quotes is escaped."""
    verdict = "Clean" if report.clean else f"{sum(report.found.values()):,} findings"
    findings = "".join(f"<li>{escape(str(finding))}</li>" for finding in report.findings)
    checked = "".join(
        f"<tr><td>{escape(name)}<td>{count:,}<td>{report.found.get(name, 0):,}"
        for name, count in sorted({**dict.fromkeys(report.found, 0), **report.checked}.items())
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Validation</title>'
        f"<h1>{verdict}</h1><ul>{findings}</ul>"
        f"<table><tr><th>check<th>looked at<th>found{checked}</table></html>\n"
    ).encode()
