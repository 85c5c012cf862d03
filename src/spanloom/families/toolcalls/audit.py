"""Whether a chat template renders samples unchanged.

In: samples and a render function. Out: findings A1 to A8 for each sample, the span of its answer if it can be proven,
and the totals. Only samples with a proven span can be masked.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.errors import EXIT_FINDINGS
from spanloom.families.toolcalls.format.control import ASSISTANT_HEADER, CONTROL_STRINGS, EOM, EOT, PYTHON_TAG
from spanloom.families.toolcalls.format.findings import Severity
from spanloom.families.toolcalls.format.rendering import Render, Rendered, Span, answer_span, render_sample
from spanloom.families.toolcalls.format.tables import is_tool_sample
from spanloom.families.toolcalls.format.tools import Registries
from spanloom.text import visible_line
from spanloom.tokenizers.chat_template import ChatTemplateError

CODES: dict[str, tuple[Severity, str]] = {
    "A1": ("ERROR", "assistant_raw is not verbatim in the text"),
    "A2": ("ERROR", "the assistant header is missing"),
    "A3": ("WARNING", "two end tokens in a row"),
    "A4": ("ERROR", "control tokens in a message that is not the assistant's"),
    "A5": ("ERROR", "a tool sample has no python_tag after the prompt"),
    "A6": ("ERROR", "the template raises"),
    "A7": ("WARNING", "assistant_raw occurs more than once"),
    "A8": ("ERROR", "the prompt is not a prefix of the text"),
}
"""Code → its severity and what it means."""

_END = f"(?:{re.escape(EOM)}|{re.escape(EOT)})"
_DOUBLE_END = re.compile(rf"{_END}\s*{_END}")


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One sample. `rendered` is None if the template raised (`said`: why), `span` if the answer cannot be located."""

    findings: Sequence[dict[str, Any]]
    rendered: Rendered | None
    span: Span | None
    said: str = ""


def audit_sample(sample: Mapping[str, Any], render: Render, registries: Registries) -> Audited:
    """Audits one sample, which must have messages that are objects, and assistant_raw (see `is_renderable`)."""
    findings = []
    for number, message in enumerate(sample["messages"]):
        content = message.get("content")
        if message.get("role") != "assistant" and isinstance(content, str):
            tokens = [token for token in CONTROL_STRINGS if token in content]
            if tokens:
                findings.append(_finding("A4", path=f"messages[{number}].content", tokens=tokens))
    try:
        rendered = render_sample(sample, render, registries)
    except ChatTemplateError as error:
        return Audited(findings=[*findings, _finding("A6")], rendered=None, span=None, said=error.what)
    full, prompt, raw = rendered.full, rendered.prompt, sample["assistant_raw"]
    begins = full.startswith(prompt)
    first = full.find(raw)
    if first < 0:
        findings.append(_finding("A1"))
    if ASSISTANT_HEADER not in full:
        findings.append(_finding("A2"))
    if _DOUBLE_END.search(full):
        findings.append(_finding("A3"))
    if is_tool_sample(sample) and PYTHON_TAG not in (full[len(prompt) :] if begins else full):
        findings.append(_finding("A5"))
    if first >= 0 and full.find(raw, first + 1) >= 0:
        findings.append(_finding("A7"))
    if not begins:
        findings.append(_finding("A8"))
    findings.sort(key=lambda finding: str(finding["code"]))
    return Audited(findings=findings, rendered=rendered, span=answer_span(rendered, raw))


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The audit of a run. `by_code`: code → samples with that finding; `findings`: all, each with file, line and id.

    `unreadable`: samples not audited, without messages or assistant_raw; `without_span`: no span can be proven.
    """

    samples: int
    unreadable: int
    without_span: int
    by_code: Mapping[str, int]
    findings: Sequence[dict[str, Any]]

    @property
    def errors(self) -> int:
        return sum(number for code, number in self.by_code.items() if CODES[code][0] == "ERROR") + self.unreadable

    @property
    def warnings(self) -> int:
        return sum(number for code, number in self.by_code.items() if CODES[code][0] == "WARNING")

    def exit_code(self, *, strict: bool) -> int:
        """The exit code, by the same rule as `validate`: errors count only if `strict`."""
        return EXIT_FINDINGS if strict and self.errors else 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "unreadable": self.unreadable,
            "without_span": self.without_span,
            "by_code": dict(self.by_code),
            "errors": self.errors,
            "warnings": self.warnings,
            "result": "FAIL" if self.errors else "PASS",
            "findings": list(self.findings),
        }


def audit_samples(
    samples: Iterable[tuple[str, int, Mapping[str, Any]]], render: Render, registries: Registries
) -> Audit:
    """Audits many samples, given as (file, line, sample). Samples that cannot be rendered are counted as unreadable."""
    counts = dict.fromkeys(CODES, 0)
    findings: list[dict[str, Any]] = []
    number = unreadable = without_span = 0
    for file, line, sample in samples:
        number += 1
        if not is_renderable(sample):
            unreadable += 1
            continue
        audited = audit_sample(sample, render, registries)
        without_span += audited.span is None
        for code in {finding["code"] for finding in audited.findings}:
            counts[code] += 1
        name = sample.get("id")
        findings += [
            {"file": file, "line": line, "id": name if isinstance(name, str) else None, **finding}
            | ({"said": audited.said} if finding["code"] == "A6" else {})
            for finding in audited.findings
        ]
    return Audit(
        samples=number,
        unreadable=unreadable,
        without_span=without_span,
        by_code={code: count for code, count in counts.items() if count},
        findings=findings,
    )


def is_renderable(sample: Mapping[str, Any]) -> bool:
    """Whether a sample can be rendered: its messages are objects, and assistant_raw is not blank."""
    messages, raw = sample.get("messages"), sample.get("assistant_raw")
    return (
        isinstance(messages, list)
        and all(isinstance(message, dict) for message in messages)
        and isinstance(raw, str)
        and bool(raw.strip())
    )


def text_lines(audit: Audit, target: str, *, strict: bool) -> list[str]:
    """The audit for a terminal."""
    lines = [
        f"Template audit of {target}",
        "=" * 60,
        f"Samples: {audit.samples:,}, {audit.without_span:,} without a span that can be proven",
    ]
    if audit.unreadable:
        lines.append(f"  ERROR: {audit.unreadable:,} without messages or assistant_raw")
    lines += [f"  {CODES[code][0]} {code} ({CODES[code][1]}): {number:,}" for code, number in audit.by_code.items()]
    for finding in audit.findings[:20]:
        detail = "; ".join(str(finding[key]) for key in ("path", "said", "tokens") if key in finding)
        place = f"{finding['file']}:{finding['line']} {finding['id']}"
        lines.append(visible_line(f"    {finding['code']} {place} {detail}".rstrip(), 300))
    if len(audit.findings) > 20:
        lines.append(f"    and {len(audit.findings) - 20:,} more: --report FILE has them all")
    totals = f"errors = {audit.errors:,}, warnings = {audit.warnings:,}"
    return [*lines, "", f"RESULT: {'FAIL' if audit.errors else 'PASS'} ({'strict mode: ' if strict else ''}{totals})"]


def _finding(code: str, **more: Any) -> dict[str, Any]:
    return {"code": code, "severity": CODES[code][0], **more}
