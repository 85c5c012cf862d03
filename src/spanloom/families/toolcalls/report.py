"""The report of a validation: as text, as JSON, as a page.

In: `Validation`, the name of the target, whether the run is strict. Out: text; JSON values; self-contained HTML.
"""

import math
from dataclasses import asdict
from typing import Any

from spanloom.errors import EXIT_FINDINGS
from spanloom.families.toolcalls.format.findings import RULES, SEVERITY
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN
from spanloom.families.toolcalls.validation import Validation
from spanloom.report.pages import html
from spanloom.text import visible_line

_NAMES = {
    "R1": ("python_tag present", "missing"),
    "R2": ("end token", "missing"),
    "R3": ("valid JSON", "failing"),
    "R4": ("has name field", "missing"),
    "R5": ("no markdown", "failing"),
    "R6": ("no forbidden prefix", "failing"),
}
"""Rule → its name, and the word for the samples that violate it."""

_SHOWN = 500


def rule_counts(run: Validation) -> dict[str, dict[str, Any]]:
    """Rule → `severity`, and counts of samples: `total`, `failed`, `passed`. R4 applies to tool samples only."""
    totals = {code: run.tool_samples if code == "R4" else run.samples for code in RULES}
    return {
        code: {
            "severity": SEVERITY[code],
            "total": total,
            "failed": run.rules[code],
            "passed": total - run.rules[code],
        }
        for code, total in totals.items()
    }


def effective_ratio(run: Validation) -> float | None:
    """The summed weight of retain samples divided by that of harmful ones; None if that is 0 or not finite."""
    sums = {split: sum(weight for _, weight in run.subtypes.get(split, {}).values()) for split in (HARMFUL, RETAIN)}
    return _finite(round(sums[RETAIN] / sums[HARMFUL], 2)) if sums[HARMFUL] else None


def _finite(value: float) -> float | None:
    """The value, or None if it is infinite: JSON has no infinity, and very large weights can add up to it."""
    return value if math.isfinite(value) else None


def exit_code(run: Validation, *, strict: bool) -> int:
    """The command's exit code: only errors count, and only if `strict`."""
    return EXIT_FINDINGS if strict and run.errors else 0


def text_report(run: Validation, target: str, *, strict: bool) -> str:
    """The report for a terminal, ending with a line break."""
    harmful, retain = run.splits[HARMFUL], run.splits[RETAIN]
    other = run.samples - harmful - retain
    lines = [
        f"Validation Report for {target}",
        "=" * 60,
        f"Total samples: {run.samples:,}",
        f"  Harmful (Ds): {harmful:,}",
        f"  Retain (Dr): {retain:,}",
    ]
    if other:
        lines.append(f"  Other: {other:,}")
    lines.append(f"  Dr:Ds ratio: {retain / harmful:.2f}:1" if harmful else "  Dr:Ds ratio: n/a")
    if run.invalid_lines:
        lines.append(f"  Invalid lines: {run.invalid_lines:,}")
    lines += ["", "Format Compliance:"]
    for code, count in rule_counts(run).items():
        wording, called = _NAMES[code]
        total, failed, passed = count["total"], count["failed"], count["passed"]
        share = f"{100 * passed / total:.1f}%" if total else "n/a"
        mark = "❌" if count["severity"] == "ERROR" and failed else "✅"
        line = f"  {mark} {code} ({wording}): {passed:,}/{total:,} ({share})"
        if failed:
            line += f" [{count['severity']}: {failed:,} {called}]"
        if code == "R4" and run.samples > run.tool_samples:
            line += f" [{run.samples - run.tool_samples:,} non-tool samples]"
        lines.append(line)
    others = {code: number for code, number in run.by_code.items() if code not in RULES}
    if others:
        lines += ["", "Other findings:"]
        lines += [f"  {run.severities[code]} {code}: {number:,}" for code, number in others.items()]
    errors, warnings = run.errors, run.warnings
    if strict:
        errors_text = f"errors = {errors:,}" if errors else "all errors = 0"
        result = f"{'FAIL' if errors else 'PASS'} (strict mode: {errors_text})"
    else:
        result = f"{'FAIL' if errors else 'PASS'} (errors = {errors:,}, warnings = {warnings:,})"
    return "\n".join([*lines, "", f"RESULT: {result}", ""])


def json_report(run: Validation, target: str, *, strict: bool) -> dict[str, Any]:
    """The report as JSON values."""
    harmful, retain = run.splits[HARMFUL], run.splits[RETAIN]
    return {
        "target": target,
        "strict": strict,
        "files": [asdict(file) for file in run.files],
        "total_samples": run.samples,
        "harmful": harmful,
        "retain": retain,
        "other": run.samples - harmful - retain,
        "invalid_lines": run.invalid_lines,
        "tool_samples": run.tool_samples,
        "ratio": round(retain / harmful, 2) if harmful else None,
        "effective_ratio": effective_ratio(run),
        "rules": rule_counts(run),
        "by_code": run.by_code,
        "subtypes": {
            split: {name: {"count": samples, "weight": _finite(weight)} for name, (samples, weight) in subtypes.items()}
            for split, subtypes in run.subtypes.items()
        },
        "errors": run.errors,
        "warnings": run.warnings,
        "result": "FAIL" if run.errors else "PASS",
        "exit_code": exit_code(run, strict=strict),
        "findings": [finding.as_dict() for finding in run.findings],
        **({"more_findings": run.more} if run.more else {}),
    }


def html_report(run: Validation, target: str) -> str:
    """The report as an HTML page. It lists at most the first 500 findings."""
    rules = [
        (f"{code} {_NAMES[code][0]} (of {count['total']:,})", count["passed"])
        for code, count in rule_counts(run).items()
    ]
    shown = run.findings[:_SHOWN]
    rest = len(run.findings) - len(shown)
    report = {
        "clean": not run.errors,
        "findings": [
            {
                "check": f"{finding.finding.severity} {finding.finding.code}",
                "message": visible_line(f"{finding.id or 'no id'}: {finding.finding.path or 'the line'}", 300),
                "file": f"{finding.file}:{finding.line}",
            }
            for finding in shown
        ],
        "found": run.by_code,
        "checked": {"samples": run.samples},
    }
    return html.page(
        "tables.html.j2",
        style="report.css",
        title=f"Samples of {target}",
        eyebrow="Spanloom report · tool calls",
        report=report,
        figures=[
            ("samples", run.samples),
            ("harmful", run.splits[HARMFUL]),
            ("retain", run.splits[RETAIN]),
            ("errors", run.errors),
            ("warnings", run.warnings),
        ],
        tables=[
            ("Samples that pass each rule", rules),
            ("Findings by code", list(run.by_code.items())),
            *(
                (f"{split.capitalize()} samples by subtype", [(name, count) for name, (count, _) in subtypes.items()])
                for split, subtypes in run.subtypes.items()
            ),
            ("Samples by file", [(file.path, file.samples) for file in run.files]),
            *([("Findings not shown on this page", [("findings", rest)])] if rest else []),
        ],
    )
