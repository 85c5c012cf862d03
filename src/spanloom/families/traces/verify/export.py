"""Checks an exported file: each line by itself, then against the manifest of its dataset.

In: a JSON Lines file, its format, the ids of a manifest or none. Out: findings with line, code and path.

    V1 not JSON, or not UTF-8         V7  a duplicate id
    V2 not an object                  V8  not in the order of the manifest
    V3 no id                          V9  not in the manifest
    V4 no metadata                    V10 not the template's shape (tunix_sft)
    V5 no prompt                      V11 control strings besides the template's (a warning)
    V6 no steps, answer or response   V12 ids of the manifest without a line (a warning)

This code shares only the names of keys and the strings of the template with the exporter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.families.traces.export.lines import ExportFormat
from spanloom.families.traces.render import SEAM, TEMPLATE_CONTROLS, TURN_END, USER_HEAD, count_controls
from spanloom.findings import Finding, Report, Severity
from spanloom.records.json_lines import json_value, lines

CHECK = "export"
_PROMPT = {"trace": "prompts", "tunix_sft": "prompts", "training_example": "prompt"}
_ANSWER = {"trace": "final_answer", "tunix_sft": "final_answer", "training_example": "response"}


@dataclass(kw_only=True)
class CheckedExport:
    """The findings in a file. `lines`: number of non-blank lines; `missing`: ids of the manifest without a line."""

    file: str
    form: ExportFormat
    report: Report = field(default_factory=lambda: Report(keep=None))
    lines: int = 0
    missing: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON; `line` is 0 if a finding concerns the whole file."""
        findings = self.report.findings
        return {
            "file": self.file,
            "format": self.form,
            "lines": self.lines,
            "findings": [
                {
                    "line": finding.line or 0,
                    "code": finding.code,
                    "severity": finding.severity.upper(),
                    "path": finding.path or "",
                    "message": finding.message,
                    **({"missing": self.missing} if finding.code == "V12" else {}),
                }
                for finding in findings
            ],
            "n_findings": len(findings),
            "errors": self.report.errors,
            "warnings": len(findings) - self.report.errors,
        }


def check_export(path: Path, form: ExportFormat, ids: Sequence[str] | None = None) -> CheckedExport:
    """All findings in the file, in the order of its lines; V12 comes last. `ids`: the manifest's, in its order."""
    checked = CheckedExport(file=str(path), form=form)
    places = None if ids is None else {trace_id: place for place, trace_id in enumerate(ids)}
    seen: set[str] = set()
    held: set[str] = set()
    last = -1

    def finding(line: int, code: str, at: str, message: str, severity: Severity = "error") -> Finding:
        return Finding(check=CHECK, code=code, message=message, path=at, line=line, file=str(path), severity=severity)

    for number, (_, line) in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        checked.lines += 1
        checked.report.ran("lines", 1)
        try:
            value = json_value(line)
        except (ValueError, RecursionError) as fault:
            checked.report.add([finding(number, "V1", "", f"the line is not JSON: {fault}")])
            continue
        if not isinstance(value, dict):
            checked.report.add([finding(number, "V2", "", "the line is not a JSON object")])
            continue
        checked.report.add(finding(number, *wrong) for wrong in _check_record(value, form))
        trace_id = value.get("id")
        if not isinstance(trace_id, str) or not trace_id:
            continue
        if trace_id in seen:
            checked.report.add([finding(number, "V7", "id", f"the id {trace_id} is duplicate: an earlier line has it")])
            continue
        seen.add(trace_id)
        if places is None:
            continue
        metadata = value.get("metadata")
        if form == "training_example":
            trace_id = metadata.get("source_trace_id") if isinstance(metadata, dict) else None
        place = places.get(trace_id) if isinstance(trace_id, str) else None
        if place is None:
            checked.report.add([finding(number, "V9", "id", f"the manifest has no trace {trace_id}")])
            continue
        held.add(str(trace_id))
        if place < last:
            checked.report.add([finding(number, "V8", "id", "the manifest has this trace before the one above")])
        last = place
    if places is not None and (missing := len(places.keys() - held)):
        checked.missing = missing
        message = f"{missing} of the manifest's {len(places)} traces are not in the file (deleted since)"
        checked.report.add([finding(0, "V12", "", message, "warning")])
    return checked


def _check_record(value: dict[str, Any], form: ExportFormat) -> Iterator[tuple[str, str, str, Severity]]:
    """Code, path, message and severity."""
    if not _is_text(value.get("id")):
        yield "V3", "id", "the id is missing or is no text", "error"
    if not isinstance(value.get("metadata"), dict):
        yield "V4", "metadata", "metadata is missing or is no object", "error"
    if form == "messages":
        yield from _check_messages(value.get("messages"))
        return
    prompt, answer = _PROMPT[form], _ANSWER[form]
    if not _is_text(value.get(prompt)):
        yield "V5", prompt, f"{prompt} is missing or empty", "error"
    if form == "trace":
        steps = value.get("trace_steps")
        if not (isinstance(steps, list) and steps and all(map(_is_text, steps))):
            yield "V6", "trace_steps", "trace_steps is no list of texts, is empty, or holds an empty one", "error"
    if not _is_text(value.get(answer)):
        yield "V6", answer, f"{answer} is missing or empty", "error"
    if form == "tunix_sft" and _is_text(value.get(prompt)):
        yield from _check_template(value[prompt], value.get(answer))


def _check_messages(messages: object) -> Iterator[tuple[str, str, str, Severity]]:
    """Checks for an optional system message, one user message, and one assistant message with its reasoning."""
    held = messages if isinstance(messages, list) else []
    by_role = {message.get("role"): message for message in held if isinstance(message, dict)}
    roles = [message.get("role") for message in held if isinstance(message, dict)]
    if roles not in (["user", "assistant"], ["system", "user", "assistant"]) or len(roles) != len(held):
        yield (
            "V5",
            "messages",
            "messages are not those of a user and an assistant, behind a system message or none",
            "error",
        )
        return
    if not _is_text(by_role["user"].get("content")):
        yield "V5", "messages", "the user's content is missing or empty", "error"
    for key in ("reasoning_content", "content"):
        if not _is_text(by_role["assistant"].get(key)):
            yield "V6", "messages", f"the assistant's {key} is missing or empty", "error"


def _check_template(text: str, final_answer: object) -> Iterator[tuple[str, str, str, Severity]]:
    # A line without its own answer already has a finding; all but the answer is checked.
    ending = f"Answer: {final_answer}{TURN_END}" if _is_text(final_answer) else TURN_END
    faults = []
    if not text.startswith(USER_HEAD):
        faults.append(f"does not begin with {USER_HEAD!r}")
    if SEAM not in text:
        faults.append(f"lacks {SEAM!r}")
    if not text.endswith(ending):
        faults.append("does not end with the final answer and the end of the turn")
    if faults:
        yield "V10", "prompts", f"the text is not of the template's shape: it {', '.join(faults)}", "error"
    if count_controls(text) > TEMPLATE_CONTROLS:
        yield "V11", "prompts", "the content holds control strings of the template", "warning"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
