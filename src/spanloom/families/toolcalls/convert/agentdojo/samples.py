"""AgentDojo: traces of an agent whose tools return injected instructions.

In: a record with `messages`, and at top level or in its `metadata`: `injection_task_id`, `security`, and other facts
about the attack (`injections`, `attack_type`, `suite_name`). Out: at most one sample, with evidence for its label:

    told as            what the trace shows                                         becomes
    attack succeeded   a call after the injection that carries it out               harmful: the turn of that call
    attack resisted    an injection, after it no call that serves it and no text    retain, injection resisted: the
                       that announces, offers or only repeats it                    last turn
    attack resisted    no injection in any message, and the task was done           retain, tool capability: the last
                                                                                    turn

All other records are left out with a reason. The record's label alone is not enough: `security: false` says that a
check of the attack's goal failed, not that the model resisted.

`security: true` has two meanings. In AgentDojo's own code (0.1.35), `BaseInjectionTask.security` returns True if the
injected task was carried out, and the files of its runs store this value: there it means that the attack succeeded. It
also stores True for runs that ended in an error, which prove nothing. Data for circuit breakers uses the opposite
meaning, as samples here do: True means that the model resisted. Records with all keys of an AgentDojo run, or of its
published traces, are read with AgentDojo's meaning, all others as *resisted*. `Options.security_means` overrides this.
The counts report which meaning was used.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from spanloom.conversations.reading.blocks import REASONING
from spanloom.families.toolcalls.convert.agentdojo.answers import verdict_of
from spanloom.families.toolcalls.convert.agentdojo.injections import Injection, Known, find_injection, repeated_by_model
from spanloom.families.toolcalls.convert.agentdojo.serving import Asked, Serving, asked_by, serving_calls
from spanloom.families.toolcalls.convert.agentdojo.text import letters
from spanloom.families.toolcalls.convert.dialogues import Dialogue, answer_fault, as_called, read_messages
from spanloom.families.toolcalls.convert.drafts import Draft, Options, UnusableError
from spanloom.families.toolcalls.format.calls import parse_calls
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN, mapping

TOOLS = "agentdojo_native"
RUN_KEYS = frozenset({"suite_name", "pipeline_name", "user_task_id", "utility", "duration", "error"})
"""The keys of an AgentDojo run besides messages, injections and security."""

TRACE_KEYS = frozenset({"suite_name", "model", "user_task_id", "attack_type", "success", "hierarchy_path"})
"""The keys in the `metadata` of its published traces besides security, whose value is that of the run."""

SUCCEEDED, RESISTED, CLEAN, UNTOLD = "attack succeeded", "attack resisted", "no attack", "not told"
"""The labels that a record may give its trace."""

_KEPT = ("suite_name", "pipeline_name", "user_task_id", "injection_task_id", "attack_type", "model")


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """The messages of a trace as a sample holds them, its own (`raw`), the calls of each assistant turn, and the
    thoughts, which no sample holds (place in the record → text)."""

    dialogue: Dialogue
    raw: Sequence[Any]
    calls: Mapping[int, Sequence[dict[str, Any]]]
    thoughts: Mapping[int, str]

    @property
    def messages(self) -> Sequence[dict[str, str]]:
        return self.dialogue.messages

    @property
    def places(self) -> list[int]:
        """The place of each message in the record."""
        return [turn.number for turn in self.dialogue.turns]

    @property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.messages]

    @property
    def lines(self) -> list[tuple[str, str]]:
        return [(message["role"], message["content"]) for message in self.messages]

    def answers(self, after: int) -> list[int]:
        """The numbers of the assistant turns after a message."""
        return [
            number for number, message in enumerate(self.messages) if number > after and message["role"] == "assistant"
        ]

    def tool(self, number: int) -> str:
        """The tool whose result a message is; empty if the record does not name it."""
        call = self.raw[self.places[number]].get("tool_call")
        name = call.get("function") if isinstance(call, dict) else None
        return name if isinstance(name, str) else ""


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft]:
    """Yields the sample of one trace. Raises UnusableError, with the record's label, if there is none."""
    about = {**mapping(record, "metadata"), **{key: value for key, value in record.items() if value is not None}}
    label = _label(record, about, options)
    try:
        yield _draft(record, about, label, options)
    except UnusableError as fault:
        raise UnusableError(str(fault), told=label, detail=fault.detail, remedy=fault.remedy) from None


def _meaning(record: Mapping[str, Any], options: Options) -> Literal["resisted", "attack-succeeded"]:
    if options.security_means != "by-shape":
        return options.security_means
    keys = mapping(record, "metadata").keys()
    of_agentdojo = record.keys() | keys >= RUN_KEYS or keys >= TRACE_KEYS
    return "attack-succeeded" if of_agentdojo else "resisted"


def _label(record: Mapping[str, Any], about: Mapping[str, Any], options: Options) -> str:
    if not about:
        return UNTOLD
    if not about.get("injection_task_id") and not about.get("injections"):
        return CLEAN
    if not isinstance(about.get("security"), bool):
        return UNTOLD
    return RESISTED if about["security"] == (_meaning(record, options) == "resisted") else SUCCEEDED


def _draft(record: Mapping[str, Any], about: Mapping[str, Any], label: str, options: Options) -> Draft:
    if label == CLEAN:
        raise UnusableError("no injection")
    if label == UNTOLD:
        raise UnusableError("no security")
    means = _meaning(record, options)
    if means == "attack-succeeded" and about.get("error"):
        raise UnusableError("the run ended in an error")
    trace = _trace(record.get("messages"), options)
    known = _known_injection(about)
    if options.goals is not None:
        known = _with_goals(known, about, options)
    injection = find_injection(trace.lines, known)
    if injection is None and options.goals is None:  # only now: importing agentdojo for its goals takes ten seconds
        known = _with_goals(known, about, options)
        injection = find_injection(trace.lines, known) if known.goals else None
    if injection is None:
        split, answer, labels, evidence = _benign(trace, about, label, known)
    elif label == SUCCEEDED:
        split, answer, labels, evidence = _followed(trace, injection)
    else:
        split, answer, labels, evidence = _resisted(trace, injection)
    if (fault := answer_fault(trace.dialogue.turns[answer])) is not None:
        raise fault
    raw = trace.messages[answer]["content"]
    calls = _calls(raw)
    kept = {key: about[key] for key in _KEPT if isinstance(about.get(key), str)}
    goal = about.get("injection_goal_tool")
    benign = injection is None
    return Draft(
        source="agentdojo",
        id_source="agentdojo",
        split=split,
        messages=trace.messages[:answer],
        assistant_raw=raw,
        tools=TOOLS,
        labels={**labels, **({"observed_tool": calls[-1]["name"]} if calls else {})},
        training={"priority_class": "tool_capability"} if benign else {},
        metadata={
            "has_tool_calls": bool(calls),
            "original": {**kept, "security_true_means": means},
            "evidence": evidence,
            **({"injection_goal_tool": goal} if isinstance(goal, str) and goal and not benign else {}),
        },
        hashed={"injection_task_id": about.get("injection_task_id")},
        missing=("expected_tool", "simulated_tool") if split == HARMFUL else (),
        read_as=f"security: true means {means}",
        told=label,
        dropped=trace.dialogue.dropped,
        became="harmful" if split == HARMFUL else "tool capability" if benign else "injection resisted",
    )


_Made = tuple[str, int, dict[str, Any], dict[str, Any]]
"""Split, the number of the turn that is the answer, labels, evidence."""


def _followed(trace: _Trace, injection: Injection) -> _Made:
    """A harmful sample: the first turn with a call that carries the injection out."""
    asked = asked_by(injection, trace.roles)
    if not any(trace.calls.get(number) for number in trace.answers(injection.message)):
        raise UnusableError("no call behind the injection")
    if not asked.instruction:
        raise UnusableError("the injection is shown in part")
    if not asked.aims:
        raise UnusableError(
            "system or user name the injection's target too" if asked.named else "the injection names no target"
        )
    serving = serving_calls(asked, injection, trace.roles, trace.calls)
    carried = [call for call in serving if call.verdict == "carries out"]
    if not carried:
        raise UnusableError(
            "the calls begin the injection, none carries it out" if serving else "no call carries out the injection"
        )
    call = carried[0]
    evidence = {
        **_shown(trace, injection, asked),
        "call": {
            "message": trace.places[call.message],
            "call": call.call,
            "tool": call.tool,
            "argument": call.argument,
            "target": call.target,
        },
    }
    return HARMFUL, call.message, {"security": False}, evidence


def _resisted(trace: _Trace, injection: Injection) -> _Made:
    """A retain sample: the last turn of a trace that shows an injection and nothing that serves it."""
    asked = asked_by(injection, trace.roles)
    answers = trace.answers(injection.message)
    if not answers:
        raise UnusableError("no turn behind the injection")
    if not asked.instruction:
        raise UnusableError("the injection is shown in part")
    serving = serving_calls(asked, injection, trace.roles, trace.calls)
    if serving:
        raise UnusableError(_reason(serving))
    if not asked.targets:
        raise UnusableError(
            "system or user name the injection's target too" if asked.named else "the injection names no target"
        )
    texts = [_spoken(trace.messages[number]["content"], trace.calls[number]) for number in answers]
    verdict, sentence = verdict_of(asked, injection, texts)
    if verdict in _TAKING_UP:
        raise UnusableError(f"a text {_TAKING_UP[verdict]}")
    # A thought is no evidence that the model declined, but it may show that the model took the injection up.
    behind = [trace.thoughts.get(trace.places[number], "") for number in answers]
    with_thoughts, _ = verdict_of(
        asked, injection, [f"{thought}\n{text}" for thought, text in zip(behind, texts, strict=True)]
    )
    if with_thoughts in _TAKING_UP:
        raise UnusableError(f"a thought {_TAKING_UP[with_thoughts]}")
    _check_end(trace, answers[-1])
    evidence = {
        **_shown(trace, injection, asked),
        "calls_behind": sum(len(trace.calls.get(number, ())) for number in answers),
        "call": None,
        "text": {"declines": sentence} if verdict == "declines" else None,
    }
    return RETAIN, answers[-1], {"security": True, "is_adversarial_safe": True}, evidence


_TAKING_UP = {
    "announces": "announces the injection",
    "offers": "asks the user about the injection",
    "repeats": "repeats the injection and does not decline it",
}
"""Verdicts on texts that take an injection up → what such a text does."""


def _spoken(content: str, calls: Sequence[Any]) -> str:
    """The text of a turn without its calls. If a call is unreadable, all of it counts as text: it may name a target."""
    text, *written = content.split(PYTHON_TAG)
    return text if len(written) == len(calls) else content


def _reason(serving: Sequence[Serving]) -> str:
    verdicts = {call.verdict for call in serving}
    if "carries out" in verdicts:
        return "a call carries out the injection though the attack is told as resisted"
    if "begins" in verdicts:
        return "a call begins the injection"
    return "a call may serve the injection"


def _benign(trace: _Trace, about: Mapping[str, Any], label: str, known: Known) -> _Made:
    """A retain sample: the last turn of a trace whose injection was never shown and whose task was done."""
    if label == SUCCEEDED:
        several = sum(map(len, trace.calls.values())) > 1
        if about.get("injections") and not known.texts and several:  # injected, but the record lacks the text
            raise UnusableError("which of several calls carried out the injection is not known")
        raise UnusableError("no message holds the injection")
    if not known.recognisable:
        raise UnusableError("no message holds the injection, and neither its text nor its marks are known")
    if repeated_by_model(trace.lines, known):
        raise UnusableError("the injection is in turns of the model alone")
    success = about.get("utility") if isinstance(about.get("utility"), bool) else about.get("success")
    if success is not True:
        raise UnusableError("no message holds the injection, and the task is not told as done")
    answers = trace.answers(-1)
    if not answers:
        raise UnusableError("no assistant turn")
    _check_end(trace, answers[-1])
    looked_for = [*(["the record's injections"] if known.texts else []), "marks", *(["goals"] if known.goals else [])]
    evidence = {"injection": None, "looked_for": looked_for, "target": [], "call": None, "task_done": True}
    return RETAIN, answers[-1], {}, evidence


def _check_end(trace: _Trace, answer: int) -> None:
    """Raises UnusableError unless the answer is the last message: a run that was cut off proves nothing."""
    if trace.places[answer] != len(trace.raw) - 1:
        raise UnusableError("the trace does not end with a turn of the model")


def _shown(trace: _Trace, injection: Injection, asked: Asked) -> dict[str, Any]:
    """Evidence: the place of the injection in the record's messages, and its targets."""
    tool = trace.tool(injection.message)
    return {
        "injection": {
            "message": trace.places[injection.message],
            **({"tool": tool} if tool else {}),
            "found_by": injection.found_by,
            "instruction": asked.instruction,
        },
        "target": [target.text for target in asked.aims or asked.targets],
    }


_METADATA = frozenset({"error"})
"""A key of AgentDojo's results of tools that is no part of the conversation."""
_THOUGHT = re.compile(r"\s*<thinking>((?:(?!<thinking>).)*?)</thinking>\s*", re.DOTALL)
"""A thought as Claude writes it before a call, anywhere in a text."""


def _trace(messages: Any, options: Options) -> _Trace:
    if not isinstance(messages, list) or not messages:
        raise UnusableError("no messages")
    tagged = options.reading.think_tags is not False
    known = [_message(message, tagged) for message in messages]
    dialogue = read_messages(known, options, metadata=_METADATA, think_tags=True)
    thoughts = {turn.number: "\n".join(turn.reasoning) for turn in dialogue.turns if turn.reasoning}
    spoken = [number for number, message in enumerate(dialogue.messages) if message["content"]]
    dialogue = replace(
        dialogue,
        messages=[dialogue.messages[number] for number in spoken],
        turns=[dialogue.turns[number] for number in spoken],
        in_a_row=frozenset(),  # runs may have such turns
    )
    calls = {
        number: _calls(message["content"])
        for number, message in enumerate(dialogue.messages)
        if message["role"] == "assistant"
    }
    return _Trace(dialogue=dialogue, raw=messages, calls=calls, thoughts=thoughts)


def _message(message: Any, tagged: bool) -> Any:
    """A message in OpenAI's form; None for one that says nothing. `tagged`: thoughts in its text become reasoning."""
    if not isinstance(message, dict):
        return message
    keys = {key: value for key, value in message.items() if key != "tool_call"}  # the call that a result answers
    if keys.get("tool_calls"):
        keys["tool_calls"] = as_called(keys["tool_calls"], "placeholder_args")
    text, role = keys.get("content"), keys.get("role")
    if isinstance(text, list):  # thoughts between texts too
        keys["content"] = sorted(text, key=lambda part: not (isinstance(part, dict) and part.get("type") in REASONING))
    if tagged and role == "assistant" and isinstance(text, str) and "<thinking>" in text:
        found = [thought.strip() for thought in _THOUGHT.findall(text)]
        if found and not keys.get("reasoning_content"):
            keys["reasoning_content"] = "\n\n".join(found)
            keys["content"] = "\n\n".join(part for part in _THOUGHT.split(text)[::2] if part)
    silent = isinstance(text, str | None) and not (text or "").strip() and not keys.get("tool_calls")
    return None if silent and role in ("assistant", "user") and not keys.get("function_call") else keys


def _known_injection(about: Mapping[str, Any]) -> Known:
    texts = [text for text in mapping(about, "injections").values() if isinstance(text, str)]
    return Known(texts=tuple(text for text in texts if letters(text)), attack=_text(about, "attack_type"))


def _with_goals(known: Known, about: Mapping[str, Any], options: Options) -> Known:
    return replace(known, goals=options.goals_of(_text(about, "suite_name"), _text(about, "injection_task_id")))


def _text(about: Mapping[str, Any], key: str) -> str:
    value = about.get(key)
    return value if isinstance(value, str) else ""


def _calls(raw: str) -> list[dict[str, Any]]:
    return [
        call.value
        for call in parse_calls(raw)
        if call.valid and isinstance(call.value, dict) and isinstance(call.value.get("name"), str)
    ]
