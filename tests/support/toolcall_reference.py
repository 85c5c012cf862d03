"""The rules of tool-call samples once more, read off their text: slow, plain, without a line of what is tested.

In: a sample as JSON, the files of registries. Out: findings as JSON values, in no order.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

TAG, ENDS = "<|python_tag|>", ("<|eom_id|>", "<|eot_id|>")
WARNINGS = ["F3", "I1", "I4", "M3", "T1", "T2", "T3", "T4", "R2", "D1", "P1", "L2", "L3", "L4", "L7", "W1"]
SUBTYPES = (
    *("adversarial_safe", "injection_resisted", "benign_twin", "tool_capability"),
    *("general_conversation", "borderline", "harmful_flip", "agentdojo_failure"),
)
ROLES = ("system", "user", "assistant", "tool", "ipython")
PREFIXES = ("Action:", "ToolCall:", "Function:", "Tool:")
ID = r"[a-z0-9]+(?:_[a-z0-9]+)*_(harmful|retain)_(?:[0-9]{5}|[0-9a-f]{8,64})"
IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def findings(sample: dict[str, Any], registries: Mapping[str, Any], opaque: list[str]) -> list[dict[str, Any]]:
    """All findings of one sample, but I3 and I4, which are of several, and L6, which is of an option."""
    faults: list[dict[str, Any]] = []

    def fault(code: str, path: str, **more: Any) -> None:
        faults.append({"code": code, "severity": "WARNING" if code in WARNINGS else "ERROR", "path": path, **more})

    labels = sample["labels"] if isinstance(sample.get("labels"), dict) else {}
    metadata = sample["metadata"] if isinstance(sample.get("metadata"), dict) else {}
    split = labels.get("split") if labels.get("split") in ("harmful", "retain") else None
    raw = sample.get("assistant_raw")
    raw = raw if isinstance(raw, str) and raw.strip() else None
    check_shape(sample, labels, metadata, split, raw, fault)
    tool_sample = is_tool_sample(labels, metadata, split, raw)
    check_messages(sample.get("messages"), fault)
    functions = check_tools(sample.get("tools"), split == "harmful" or tool_sample, registries, opaque, fault)
    last = check_text(raw, functions, fault) if tool_sample and raw is not None else None
    check_labels(labels, metadata, split, last, raw is None or TAG not in raw, fault)
    check_training(sample.get("training"), fault)
    return faults


def is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def check_shape(sample: Any, labels: Any, metadata: Any, split: Any, raw: Any, fault: Callable[..., None]) -> None:
    if not isinstance(sample.get("labels"), dict):
        fault("F1" if sample.get("labels") is None else "F2", "labels")
    elif split is None:
        fault("F1" if labels.get("split") is None else "F2", "labels.split")
    if sample.get("metadata") is None:
        fault("F3", "metadata")
    elif not isinstance(sample["metadata"], dict):
        fault("F2", "metadata")
    elif metadata.get("source") is None:
        fault("F3", "metadata.source")
    if raw is None:
        fault("F1" if sample.get("assistant_raw") is None else "F2", "assistant_raw")
    name = sample.get("id")
    if not is_text(name):
        fault("F1" if name is None else "F2", "id")
    elif not (parts := re.fullmatch(ID, name)):
        fault("I1", "id")
    elif split and parts[1] != split:
        fault("I2", "id")


def is_tool_sample(labels: Any, metadata: Any, split: Any, raw: Any) -> bool:
    if raw is not None and TAG in raw:
        return True
    if isinstance(metadata.get("has_tool_calls"), bool):
        return bool(metadata["has_tool_calls"])
    return split == "harmful" or is_text(labels.get("expected_tool"))


def check_messages(messages: Any, fault: Callable[..., None]) -> None:
    if not isinstance(messages, list):
        fault("F1" if messages is None else "F2", "messages")
        return
    for number, message in enumerate(messages):
        path = f"messages[{number}]"
        if not isinstance(message, dict):
            fault("F2", path)
            continue
        role = message.get("role")
        if role not in ROLES:
            fault("F1" if role is None else "F2", f"{path}.role")
        calls = message.get("tool_calls")
        empty = "content" in message and message["content"] is None
        if "content" not in message:
            fault("F1", f"{path}.content")
        elif not isinstance(message["content"], str) and not (
            empty and role == "assistant" and isinstance(calls, list) and calls
        ):
            fault("F2", f"{path}.content")
    roles = [message.get("role") for message in messages if isinstance(message, dict)]
    if len(messages) < 2:
        fault("M1", "messages")
    if "user" not in roles:
        fault("M2", "messages")
    if "system" not in roles:
        fault("M3", "messages")


def check_tools(
    tools: Any, required: bool, registries: Mapping[str, Any], opaque: list[str], fault: Callable[..., None]
) -> list[Any] | None:
    """The functions that calls are held against; None where there are none to hold them against."""
    if tools is None:
        if required:
            fault("F1", "tools")
    elif isinstance(tools, str) and tools.strip():
        if tools in registries:
            return [tool["function"] for tool in registries[tools]["tools"]]
        if tools not in opaque:
            fault("T2", "tools")
    elif isinstance(tools, list) and tools:
        functions = []
        for number, tool in enumerate(tools):
            function = tool["function"] if isinstance(tool, dict) and "function" in tool else tool
            if isinstance(function, dict) and is_text(function.get("name")):
                functions.append(function)
            else:
                fault("F2", f"tools[{number}]")
        return functions
    else:
        fault("T1" if tools == [] else "F2", "tools")
    return None


def check_text(raw: str, functions: list[Any] | None, fault: Callable[..., None]) -> str | None:
    """Returns the name of the last call that has one."""
    ended = raw.rstrip()
    if not ended.endswith(ENDS):
        fault("R2", "assistant_raw")
    elif ended[: -len(ENDS[0])].rstrip().endswith(ENDS):
        fault("D1", "assistant_raw")
    last, inside, all_valid = None, [], True
    tags = [match.start() for match in re.finditer(re.escape(TAG), raw)]
    if not tags:
        fault("R1", "assistant_raw")
    for number, tag in enumerate(tags):
        begin = tag + len(TAG)
        part = raw[begin : tags[number + 1]] if number + 1 < len(tags) else raw[begin:]
        value, length = json_at_start(part)
        if not length:
            fault("R3", "assistant_raw", call=number)
            all_valid = False
            continue
        inside.append((begin, begin + length))
        if not isinstance(value, dict) or not is_text(value.get("name")):
            fault("R4", "assistant_raw", call=number)
            continue
        last = value["name"]
        arguments = next((value[key] for key in ("parameters", "arguments") if isinstance(value.get(key), dict)), None)
        if arguments is None:
            fault("P1", "assistant_raw", call=number)
        if functions is not None:
            check_call(last, arguments, functions, lambda code, path, at=number: fault(code, path, call=at))
    fences = [match.start() for match in re.finditer("(?=```)", raw)]
    if fences:
        covered = inside and all_valid and all(any(a <= at and at + 3 <= b for a, b in inside) for at in fences)
        fault("R5", "assistant_raw", detail="in_arguments" if covered else "outside")
    behind = raw.split(TAG, 1)[1] if tags else ""
    if raw.lstrip().startswith(PREFIXES) or behind.lstrip().startswith(PREFIXES):
        fault("R6", "assistant_raw")
    return last


def json_at_start(part: str) -> tuple[Any, int]:
    """The value that a part begins with and where it ends; 0 where there is none, or what follows is no end token."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        decoder = json.JSONDecoder(parse_constant=refuse)
        value, end = decoder.raw_decode(part, len(part) - len(part.lstrip()))
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None, 0
    rest = part[end:].lstrip()
    return (value, end) if not rest or rest.startswith(ENDS) else (None, 0)


def check_call(name: str, given: Any, functions: list[Any], fault: Callable[[str, str], None]) -> None:
    named = [function for function in functions if function["name"] == name]
    if not named:
        fault("T3", "assistant_raw")
        return
    schema = named[-1].get("parameters") or {}
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    for parameter in sorted({*properties, *required}) if given is not None else ():
        declared = properties.get(parameter, {})
        value = given.get(parameter)
        if parameter not in given:
            wrong = parameter in required
        elif "type" in declared and not IS[declared["type"]](value):
            wrong = True
        else:
            wrong = "enum" in declared and json.dumps(value) not in map(json.dumps, declared["enum"])
        if wrong:
            fault("T4", f"assistant_raw.parameters.{parameter}")


def check_labels(
    labels: Any, metadata: Any, split: Any, last: str | None, no_call: bool, fault: Callable[..., None]
) -> None:
    source = metadata.get("source")
    agentdojo = isinstance(source, str) and source.lower().startswith("agentdojo")
    flip, safe, security = (labels.get(key) for key in ("is_flip_success", "is_adversarial_safe", "security"))
    observed, simulated = labels.get("observed_tool"), labels.get("simulated_tool")
    needed = ("expected_tool", "simulated_tool", "is_flip_success") if split == "harmful" and not agentdojo else ()
    for key in ("expected_tool", "simulated_tool", "observed_tool", "is_flip_success", "is_adversarial_safe"):
        value = labels.get(key)
        if value is None:
            if key in needed:
                fault("F1", f"labels.{key}")
        elif not (is_text(value) if key.endswith("_tool") else isinstance(value, bool)) or (
            value is False and key == "is_flip_success" and key in needed
        ):
            fault("F2", f"labels.{key}")
    if security is not None and not isinstance(security, bool):
        fault("F2", "labels.security")
    both = is_text(observed) and is_text(simulated)
    if split == "harmful" and flip is True and both and observed != simulated:
        fault("L1", "labels.observed_tool")
    if split == "harmful" and safe is True:
        fault("L2", "labels.is_adversarial_safe")
    if split == "retain" and is_text(simulated) and safe is not True:
        fault("L2", "labels.simulated_tool")
    if split == "retain" and flip is True:
        fault("L2", "labels.is_flip_success")
    if split == "retain" and safe is False:
        fault("L3", "labels.is_adversarial_safe")
    if agentdojo and security is None:
        goal = simulated if is_text(simulated) else metadata.get("injection_goal_tool")
        security = (no_call or last != goal) if is_text(goal) else None
        fault("L4", "labels.security", inferred=security)
    if (split == "harmful" and security is True) or (split == "retain" and security is False and safe is not True):
        fault("L5", "labels.security")
    if last is not None and is_text(observed) and observed != last:
        fault("L7", "labels.observed_tool")


def check_training(training: Any, fault: Callable[..., None]) -> None:
    if training is None:
        return
    if not isinstance(training, dict):
        fault("F2", "training")
        return
    weight = training.get("sample_weight")
    if weight is not None and not (IS["number"](weight) and weight >= 0):
        fault("F2", "training.sample_weight")
    numbers = {name: training.get(f"loss_mask_{name}") for name in ("start", "end")}
    either = any(value is not None for value in numbers.values())
    for name, value in list(numbers.items()):
        if value is None and either:
            fault("F1", f"training.loss_mask_{name}")
        elif value is not None and not (IS["integer"](value) and value >= 0):
            fault("F2", f"training.loss_mask_{name}")
            numbers[name] = None
    start, end = numbers.values()
    if start is not None and end is not None and end <= start:
        fault("F2", "training.loss_mask_end")
    priority = training.get("priority_class")
    if priority is not None and not isinstance(priority, str):
        fault("F2", "training.priority_class")
    elif priority is not None and priority not in SUBTYPES:
        fault("W1", "training.priority_class")
