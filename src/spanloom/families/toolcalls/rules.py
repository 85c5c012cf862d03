"""All rules for one sample.

In: a parsed JSON object. Out: its findings, and the values that reports group it by. Rules between samples (duplicate
ids and contents) are in `validation.py`. If a field is missing or has a wrong type, that is one finding; the rules that
would read this field give none.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spanloom.families.toolcalls.format.calls import Call, parse_calls
from spanloom.families.toolcalls.format.control import END_TOKENS, EOM, EOT, FENCE, FORBIDDEN_PREFIXES, PYTHON_TAG
from spanloom.families.toolcalls.format.findings import Finding, Findings, by_code, finding
from spanloom.families.toolcalls.format.tables import (
    HARMFUL,
    RETAIN,
    WEIGHTS,
    is_agentdojo,
    is_tool_sample,
    is_weight,
    mapping,
    source_of,
    split_of,
    subtype_of,
    weight_of,
)
from spanloom.families.toolcalls.format.tools import Parameters, Registries, load_registries
from spanloom.records.scalars import is_integer

ROLES = frozenset({"system", "user", "assistant", "tool", "ipython"})
_ID = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*_(harmful|retain)_(?:[0-9]{5}|[0-9a-f]{8,64})")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The options of the rules.

    registries                   the known registries of tools
    require_system               whether a missing system message is an error instead of a warning
    split                        the split that all samples must have; None: any
    allow_markdown_in_arguments  whether code fences are allowed inside the strings of calls
    most_findings                at most this many are kept per sample and per run; all are counted. None keeps all
    """

    registries: Registries = field(default_factory=load_registries)
    require_system: bool = False
    split: str | None = None
    allow_markdown_in_arguments: bool = False
    most_findings: int | None = None


class Checked(NamedTuple):
    """The findings of one sample, and the values that reports group by. `split`: None if neither harmful nor retain."""

    findings: Findings
    split: str | None
    tool_sample: bool
    subtype: str
    weight: float


def check_sample(sample: Mapping[str, Any], rules: Rules) -> Checked:
    """Checks one sample against all rules. The findings are in the order of `SEVERITY`."""
    findings = Findings(rules.most_findings)
    labels, split = mapping(sample, "labels"), split_of(sample)
    if not isinstance(sample.get("labels"), dict):
        findings.append(finding("F1" if sample.get("labels") is None else "F2", "labels"))
    elif split is None:
        findings.append(finding("F1" if labels.get("split") is None else "F2", "labels.split"))
    metadata = mapping(sample, "metadata")
    if not isinstance(sample.get("metadata"), dict):
        findings.append(finding("F3" if sample.get("metadata") is None else "F2", "metadata"))
    elif metadata.get("source") is None:
        findings.append(finding("F3", "metadata.source"))
    agentdojo = is_agentdojo(source_of(sample))
    raw = sample.get("assistant_raw")
    if not isinstance(raw, str) or not raw or raw.isspace():
        findings.append(finding("F1" if raw is None else "F2", "assistant_raw"))
        raw = None

    tagged = raw is not None and PYTHON_TAG in raw
    tool_sample = is_tool_sample(sample)
    _check_id(sample, split, findings)
    _check_messages(sample, rules, findings)
    known = _check_tools(sample, tool_sample or split == HARMFUL, rules, findings)
    last = None
    if tool_sample and raw is not None:
        last = _check_text(raw, tagged, known, rules, findings)
    _check_labels(labels, split, agentdojo, last, tagged, metadata, rules, findings)
    _check_training(sample.get("training"), findings)
    if len(findings) > 1:
        findings.sort(key=by_code)
    subtype = subtype_of(sample)
    return Checked(findings, split, tool_sample, subtype, weight_of(sample, subtype))


def _check_id(sample: Mapping[str, Any], split: str | None, findings: list[Finding]) -> None:
    name = sample.get("id")
    if not isinstance(name, str) or not name:
        findings.append(finding("F1" if name is None else "F2", "id"))
        return
    parts = _ID.fullmatch(name)
    if parts is None:
        findings.append(finding("I1", "id"))
    elif split is not None and parts[1] != split:
        findings.append(finding("I2", "id"))


def _check_messages(sample: Mapping[str, Any], rules: Rules, findings: list[Finding]) -> None:
    messages = sample.get("messages")
    if not isinstance(messages, list):
        findings.append(finding("F1" if messages is None else "F2", "messages"))
        return
    system = user = False
    for number, message in enumerate(messages):
        if not isinstance(message, dict):
            findings.append(finding("F2", f"messages[{number}]"))
            continue
        role = message.get("role")
        if role == "user":
            user = True
        elif role == "system":
            system = True
        elif not isinstance(role, str) or role not in ROLES:
            findings.append(finding("F1" if role is None else "F2", f"messages[{number}].role"))
        if not isinstance(message.get("content"), str):
            _check_content(message, role, f"messages[{number}].content", findings)
    if len(messages) < 2:
        findings.append(finding("M1", "messages"))
    if not user:
        findings.append(finding("M2", "messages"))
    if not system:
        findings.append(Finding(code="M3", path="messages", severity="ERROR" if rules.require_system else "WARNING"))


def _check_content(message: Mapping[str, Any], role: Any, path: str, findings: list[Finding]) -> None:
    """Checks a content that is not a string. Only an assistant message with tool calls may have null."""
    if "content" not in message:
        findings.append(finding("F1", path))
        return
    called = message.get("tool_calls")
    if message["content"] is None and role == "assistant" and isinstance(called, list) and called:
        return
    findings.append(finding("F2", path))


def _check_tools(sample: Mapping[str, Any], required: bool, rules: Rules, findings: list[Finding]) -> Parameters | None:
    """Checks `tools`. Returns the parameters to check calls against, None if they are unknown."""
    tools = sample.get("tools")
    if isinstance(tools, str):
        if not tools or tools.isspace():
            findings.append(finding("F2", "tools"))
            return None
        registries = rules.registries.known
        if tools not in registries:
            findings.append(finding("T2", "tools"))
            return None
        return registries[tools]
    if tools is None:
        if required:
            findings.append(finding("F1", "tools"))
        return None
    if not isinstance(tools, list):
        findings.append(finding("F2", "tools"))
        return None
    if not tools:
        findings.append(finding("T1", "tools"))
        return None
    for number, tool in enumerate(tools):
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            findings.append(finding("F2", f"tools[{number}]"))
    return rules.registries.inline(tools)


def _check_text(raw: str, tagged: bool, known: Parameters | None, rules: Rules, findings: list[Finding]) -> str | None:
    """Checks the format of the answer. Returns the name of the last call that could be read, or None."""
    ended = raw.rstrip()
    if not ended.endswith(END_TOKENS):
        findings.append(finding("R2", "assistant_raw"))
    elif ended[: -len(EOM if ended.endswith(EOM) else EOT)].rstrip().endswith(END_TOKENS):
        findings.append(finding("D1", "assistant_raw"))
    calls: list[Call] = []
    last = None
    if tagged:
        calls = parse_calls(raw)
        for number, call in enumerate(calls):
            if not call.valid:
                findings.append(finding("R3", "assistant_raw", call=number))
                continue
            value = call.value
            name = value.get("name") if isinstance(value, dict) else None
            if not isinstance(name, str) or not name:
                findings.append(finding("R4", "assistant_raw", call=number))
                continue
            last = name
            parameters = value.get("parameters")
            if not isinstance(parameters, dict):
                parameters = value.get("arguments")
                if not isinstance(parameters, dict):
                    findings.append(finding("P1", "assistant_raw", call=number))
                    parameters = None
            if known is not None:
                _check_call(name, parameters, number, known, findings)
    else:
        findings.append(finding("R1", "assistant_raw"))
    if FENCE in raw:
        inside = _fences_inside(raw, calls)
        if not (inside and rules.allow_markdown_in_arguments):
            findings.append(finding("R5", "assistant_raw", detail="in_arguments" if inside else "outside"))
    if raw.lstrip().startswith(FORBIDDEN_PREFIXES) or (
        tagged and raw[raw.find(PYTHON_TAG) + len(PYTHON_TAG) :].lstrip().startswith(FORBIDDEN_PREFIXES)
    ):
        findings.append(finding("R6", "assistant_raw"))
    return last


def _check_call(
    name: str, arguments: Mapping[str, Any] | None, number: int, known: Parameters, findings: list[Finding]
) -> None:
    parameters = known.get(name)
    if parameters is None:
        findings.append(finding("T3", "assistant_raw", call=number))
        return
    if arguments is None:
        return
    for parameter in parameters:
        name = parameter.name
        wrong = not parameter.accepts(arguments[name]) if name in arguments else parameter.required
        if wrong:
            findings.append(finding("T4", f"assistant_raw.parameters.{name}", call=number))


def _fences_inside(raw: str, calls: list[Call]) -> bool:
    """Whether all calls are valid and every fence is inside one. In valid JSON, backticks occur only in strings."""
    if not calls or not all(call.valid for call in calls):
        return False
    at = raw.find(FENCE)
    while at >= 0:
        if not any(call.start <= at and at + len(FENCE) <= call.end for call in calls):
            return False
        at = raw.find(FENCE, at + 1)
    return True


def _check_labels(
    labels: Mapping[str, Any],
    split: str | None,
    agentdojo: bool,
    last: str | None,
    called: bool,
    metadata: Mapping[str, Any],
    rules: Rules,
    findings: list[Finding],
) -> None:
    flip, safe, security = labels.get("is_flip_success"), labels.get("is_adversarial_safe"), labels.get("security")
    tools = {name: labels.get(name) for name in ("expected_tool", "simulated_tool", "observed_tool")}
    harmful = split == HARMFUL
    if harmful and not agentdojo:
        for name, value in {**tools, "is_flip_success": flip}.items():
            if value is None and name != "observed_tool":
                findings.append(finding("F1", f"labels.{name}"))
        if flip is False:
            findings.append(finding("F2", "labels.is_flip_success"))
    for name, value in tools.items():
        if value is not None and not _is_name(value):
            findings.append(finding("F2", f"labels.{name}"))
    for name, value in (("is_flip_success", flip), ("is_adversarial_safe", safe), ("security", security)):
        if value is not None and not isinstance(value, bool):
            findings.append(finding("F2", f"labels.{name}"))
    simulated, observed = (
        tools[name] if _is_name(tools[name]) else None for name in ("simulated_tool", "observed_tool")
    )

    if harmful:
        if flip is True and observed and simulated and observed != simulated:
            findings.append(finding("L1", "labels.observed_tool"))
        if safe is True:
            findings.append(finding("L2", "labels.is_adversarial_safe"))
    elif split == RETAIN:
        if simulated and safe is not True:
            findings.append(finding("L2", "labels.simulated_tool"))
        if flip is True:
            findings.append(finding("L2", "labels.is_flip_success"))
        if safe is False:
            findings.append(finding("L3", "labels.is_adversarial_safe"))
    if agentdojo and security is None:
        goal = simulated or metadata.get("injection_goal_tool")
        security = (not called or last != goal) if _is_name(goal) else None
        findings.append(finding("L4", "labels.security", inferred=security))
    if (harmful and security is True) or (split == RETAIN and security is False and safe is not True):
        findings.append(finding("L5", "labels.security"))
    if rules.split is not None and split is not None and split != rules.split:
        findings.append(finding("L6", "labels.split"))
    if observed and last is not None and observed != last:
        findings.append(finding("L7", "labels.observed_tool"))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _check_training(training: Any, findings: list[Finding]) -> None:
    if training is None:
        return
    if not isinstance(training, dict):
        findings.append(finding("F2", "training"))
        return
    stated = training.get("sample_weight")
    if stated is not None and not is_weight(stated):
        findings.append(finding("F2", "training.sample_weight"))
    start, end = training.get("loss_mask_start"), training.get("loss_mask_end")
    if start is not None or end is not None:
        _check_mask(start, end, findings)
    named = training.get("priority_class")
    if named is not None and not isinstance(named, str):
        findings.append(finding("F2", "training.priority_class"))
    elif named is not None and named not in WEIGHTS:
        findings.append(finding("W1", "training.priority_class"))


def _check_mask(start: Any, end: Any, findings: list[Finding]) -> None:
    valid = True
    for name, value in (("loss_mask_start", start), ("loss_mask_end", end)):
        if value is None:
            findings.append(finding("F1", f"training.{name}"))
            valid = False
        elif not is_integer(value) or value < 0:
            findings.append(finding("F2", f"training.{name}"))
            valid = False
    if valid and end <= start:
        findings.append(finding("F2", "training.loss_mask_end"))
