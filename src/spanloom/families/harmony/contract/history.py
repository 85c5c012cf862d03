"""One conversation → its documents: the messages of each, and which of them are trained.

In: a checked conversation, `CutRules`. Out: `Cut`s. Pure: nothing is rendered here.

An **assistant run** is a sequence of consecutive assistant messages; a server starts sampling at its start. With the
history `serve` and `openai-harmony`, the document of a run has the messages before it, without the reasoning that is no
longer shown, and then the run. Two runs share a document if the history of the later run is exactly the document so
far, as between tool calls. A run that ends in `final` ends its document: it is trained to end in `<|return|>`, but
later runs see `<|end|>`. A run with a call whose header differs in the history (see `call_format`) also ends its
document. With `keep` the conversation is one document.

    user  analysis  final │ user  analysis  call  tool  analysis  final │ user  analysis  final
    serve            0:  user ANALYSIS FINAL
                     1:  user final user ANALYSIS CALL tool ANALYSIS FINAL
                     3:  user final user call tool final user ANALYSIS FINAL
    keep             0:  user ANALYSIS FINAL user ANALYSIS CALL tool ANALYSIS FINAL user ANALYSIS FINAL
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from spanloom.conversations.runs import assistant_runs, last_turn
from spanloom.conversations.source.structure import LabelledConversation
from spanloom.conversations.trained import SPAN_NAMES, check_train
from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.call_format import CALL_FORMATS, emitted_and_served
from spanloom.families.harmony.contract.profile import HARMONY_CHAT, Profile
from spanloom.supervision import SPAN_CONTEXT

HISTORIES = ("serve", "openai-harmony", "keep")
TURNS = ("all", "last")
FLAGS = ("merge", "mask_generation_prompt")
"""Boolean rules; a config has their keys only if they are true."""


@dataclass(frozen=True, kw_only=True)
class CutRules:
    """Which messages of a conversation its documents show, and which they train.

    history  which earlier messages the document of a run shows (see `hidden_before`), or `keep`: one document
    train    names of the spans that are trained; messages of other spans are context
    turns    `all` runs, or those of the `last` turn: after the last user message that is answered
    merge    runs share a document if possible; False in datasets of earlier releases: one document per run
    mask_generation_prompt   the first tokens of each run, `<|start|>assistant`, are not trained: a server gives them
             to the model
    call_format   how the headers of calls are written: see `call_format`
    """

    history: str = defaults.HISTORY
    train: tuple[str, ...] = tuple(defaults.TRAIN.split(","))
    turns: str = defaults.TURNS
    merge: bool = True
    mask_generation_prompt: bool = False
    call_format: str = defaults.CALL_FORMAT

    def __post_init__(self) -> None:
        if self.history not in HISTORIES:
            raise SpanloomError(f"--history must be one of {', '.join(HISTORIES)}, not {self.history!r}")
        if self.turns not in TURNS:
            raise SpanloomError(f"--turns must be one of {', '.join(TURNS)}, not {self.turns!r}")
        if self.call_format not in CALL_FORMATS:
            raise SpanloomError(f"--call-format must be one of {', '.join(CALL_FORMATS)}, not {self.call_format!r}")
        if self.call_format == "as-served" and self.history == "keep":
            raise SpanloomError(
                "--call-format as-served does not go with --history keep: one document shows each call once, as it was"
                " emitted",
                remedy="--history serve, or --call-format json, which writes every call as servers show it",
            )
        check_train(self.train)

    def as_dict(self) -> dict[str, Any]:
        """The entries in a manifest's config; the spans in the order of their ids."""
        train = [name for name in SPAN_NAMES if name in self.train]
        config: dict[str, Any] = {"history": self.history, "train": train, "turns": self.turns}
        if self.call_format != defaults.CALL_FORMAT:
            config["call_format"] = self.call_format
        return config | {name: True for name in FLAGS if getattr(self, name)}

    def counts(self, parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        """A manifest's `cutting`: the sums of the counts of its parts."""
        counted: Counter[str] = Counter()
        for part in parts:
            counted.update(part)
        names = (*CUTTING, *DIVIDED) if self.call_format == "as-served" else CUTTING
        return {name: counted[name] for name in (*names, *([TRUNCATED] if counted[TRUNCATED] else []))}


def rules_for(profile: Profile, rules: CutRules | None) -> CutRules | None:
    """The rules for a build of this profile: the given ones or the defaults; None if the profile does not cut rows.

    Raises SpanloomError if rules are given for a profile that does not cut rows.
    """
    if profile.cuts:
        return rules or CutRules()
    if rules is not None:
        raise SpanloomError(
            "--history, --train, --turns, --call-format and --mask-generation-prompt are for conversations"
            f" ({HARMONY_CHAT.source.schema_version})",
            remedy=f"omit them: a row of {profile.source.schema_version} is one document",
        )
    return None


def rules_of(config: Mapping[str, Any], profile: Profile) -> CutRules | None:
    """The rules in the config of a manifest or in the record of a step; None if the profile does not cut rows.

    Raises SpanloomError, KeyError or TypeError if they are missing or invalid.
    """
    if not profile.cuts:
        return None
    flags = {name: config.get(name, False) for name in FLAGS}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise SpanloomError(f"config.{name} is {value!r}, not a boolean")
    return CutRules(
        history=config["history"],
        train=tuple(config["train"]),
        turns=config["turns"],
        call_format=config.get("call_format", defaults.CALL_FORMAT),
        **flags,
    )


CUTTING = ("conversations", "runs", "documents", "left_out_messages", "untrained_messages")
"""Counts in a manifest, over the accepted rows: conversations; their assistant runs; their documents; messages that are
in no document, such as a question without an answer; assistant messages that the source marks with `trained: false`."""
TRUNCATED = "truncated_messages"
"""A further count, only if it is not 0: trained messages that a limit of tokens cut off, without the token that ends
them."""
DIVIDED = ("divided_documents", "divided_tokens")
"""Further counts if the history shows calls with another header than was emitted: documents that are separate from the
next one only because of the header of a call, and their tokens."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One document of a conversation.

    number  the first assistant run that it trains, counted from 0; 0 if the conversation is kept whole
    shown   its messages; trained messages have the label of their span, all others the label of context
    begins  for each run that it trains: index of the run's first message in `shown`, and in the conversation
    source  all messages of the conversation, as later runs see them in their history
    divided   it is a prefix of the next document, except for the header of a call
    """

    number: int
    shown: LabelledConversation
    begins: Sequence[tuple[int, int]]
    source: Sequence[dict[str, Any]]
    divided: bool = False

    @property
    def runs(self) -> int:
        """The number of assistant runs that it trains."""
        return len(self.begins)


@dataclass(frozen=True, kw_only=True)
class CutConversation:
    """The documents of a conversation, or the first of them and the last. `documents`: the number of all; `runs`:
    number of assistant runs; `left_out`: messages in no document."""

    cuts: tuple[Cut, ...]
    documents: int
    runs: int
    left_out: int


def cut_conversation(
    conversation: LabelledConversation, rules: CutRules, *, most: int | None = None
) -> CutConversation:
    """The documents of a conversation; no document if the rules train none of its messages. `most`: makes the first
    ones and the last; all documents of n turns show n² / 2 messages."""
    messages, before = emitted_and_served(conversation.messages, rules.call_format)
    roles = [message["role"] for message in messages]
    runs = assistant_runs(roles)
    trained = {SPAN_NAMES.index(name) for name in rules.train}
    first_trained = last_turn(roles, runs) if rules.turns == "last" else 0
    labels = [
        span if span in trained and at >= first_trained else SPAN_CONTEXT
        for at, span in enumerate(conversation.labels.tolist())
    ]
    if rules.history == "keep":
        begins = [(first, first) for first, end in runs if any(labels[first:end])]
        shown_whole = _labelled(messages, labels, range(len(messages)), conversation)
        whole = Cut(number=0, shown=shown_whole, begins=begins, source=before)
        return CutConversation(cuts=(whole,) if begins else (), documents=int(bool(begins)), runs=len(runs), left_out=0)
    analysis = [message.get("channel") == "analysis" for message in messages]
    analysis_before = [0, *accumulate(analysis)]
    rewritten_before = [0] * (len(messages) + 1)
    if before is not messages:
        rewritten = [current is not other for current, other in zip(messages, before, strict=True)]
        rewritten_before = [0, *accumulate(rewritten)]
    cuts: list[Cut] = []
    shown_until, analysis_shown = 0, [0] * (len(messages) + 1)
    groups = [*_groups(messages, runs, labels, analysis_before, rewritten_before, rules)]
    for number, group in enumerate(groups):
        first, hidden, end = runs[group.runs[0]][0], group.hidden, group.end
        shown_until = end
        analysis_shown[hidden] += 1
        analysis_shown[end] -= 1
        if most is not None and most <= number < len(groups) - 1:
            continue
        last = runs[group.runs[-1]][0]
        shown, of_shown = before[:last] + messages[last:end], [SPAN_CONTEXT] * first + labels[first:end]
        places: Sequence[int] = range(end)
        if analysis_before[hidden]:
            places = [place for place in range(end) if place >= hidden or not analysis[place]]
            shown, of_shown = [shown[place] for place in places], [of_shown[place] for place in places]
        begins = [(at - analysis_before[min(at, hidden)], at) for at in (runs[number][0] for number in group.runs)]
        cuts.append(
            Cut(
                number=group.runs[0],
                shown=_labelled(shown, of_shown, places, conversation),
                begins=begins,
                source=before,
                divided=group.divided,
            )
        )
    shown_times = accumulate(analysis_shown[:-1])
    left_out = sum(
        at >= shown_until or (hides and not times)
        for at, (hides, times) in enumerate(zip(analysis, shown_times, strict=True))
    )
    return CutConversation(cuts=tuple(cuts), documents=len(groups), runs=len(runs), left_out=left_out)


@dataclass(kw_only=True)
class _Group:
    """Runs that share a document: it shows the messages before `end`, except analysis before `hidden`.

    trained  the end of its last trained message: messages after it may look different to the next run
    divided  only the header of a call prevents a later run from sharing it
    """

    runs: list[int]
    hidden: int
    trained: int
    end: int
    divided: bool = False


def _groups(
    messages: Sequence[dict[str, Any]],
    runs: Sequence[tuple[int, int]],
    labels: Sequence[int],
    analysis_before: Sequence[int],
    rewritten_before: Sequence[int],
    rules: CutRules,
) -> Iterator[_Group]:
    """Groups the runs that have a trained message into as few documents as possible.

    `analysis_before[n]`, `rewritten_before[n]`: how many of the first n messages are on analysis, and how many have
    another header in the history of later runs.

    A run joins the document before it if its history is that document, token for token:

    - the later run hides and shows the same analysis: no analysis is between the two values of `hidden`;
    - the document does not end in a trained `final`, whose end would change from `<|return|>` to `<|end|>`;
    - functions are not first defined after a system message of the document, because its text would change;
    - no call of its last run, up to the last trained message, has another header in the history of later runs.

    The messages after the last trained message of the document may change.
    """
    definition = next((at for at, message in enumerate(messages) if defines_functions(message)), len(messages))
    system = next((at for at, message in enumerate(messages) if message["role"] == "system"), len(messages))
    group: _Group | None = None
    of_runs = hidden_before(messages, runs, rules.history)
    for number, ((first, end), hidden) in enumerate(zip(runs, of_runs, strict=True)):
        if not any(labels[first:end]):
            continue
        trained = end
        while not labels[trained - 1]:
            trained -= 1
        if group is not None and rules.merge:
            low, high = sorted((group.hidden, hidden))
            same_history = analysis_before[min(high, group.trained)] == analysis_before[min(low, group.trained)]
            same_end = group.trained < group.end or messages[group.end - 1]["channel"] != "final"
            same_system = not (system < group.trained <= definition < end)
            shared = same_history and same_end and same_system
            group.divided = shared and rewritten_before[group.trained] > rewritten_before[runs[group.runs[-1]][0]]
            if shared and not group.divided:
                group.runs.append(number)
                group.hidden, group.trained, group.end = hidden, trained, end
                continue
        if group is not None:
            yield group
        group = _Group(runs=[number], hidden=hidden, trained=trained, end=end)
    if group is not None:
        yield group


def _labelled(
    messages: list[dict[str, Any]], labels: list[int], places: Sequence[int], conversation: LabelledConversation
) -> LabelledConversation:
    """The messages of a document. `places`: of each in the conversation."""
    truncated: tuple[int, ...] = ()
    if conversation.truncated:
        truncated = tuple(
            at for at, place in enumerate(places) if place in conversation.truncated and labels[at] != SPAN_CONTEXT
        )
    return LabelledConversation(messages=messages, labels=np.array(labels, dtype=np.uint8), truncated=truncated)


def defines_functions(message: Mapping[str, Any]) -> bool:
    """Whether a message defines functions: openai-harmony then adds the channel of calls to every system message."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "developer_content":
            tools = part.get("tools")
            functions = tools.get("functions") if isinstance(tools, dict) else None
            if isinstance(functions, dict) and functions.get("tools"):
                return True
    return False


def hidden_before(
    messages: Sequence[Mapping[str, Any]], runs: Sequence[tuple[int, int]], history: str
) -> Iterator[int]:
    """For each run, the message index before which analysis is hidden from the model; 0 if nothing is hidden.

    serve           the last assistant final before the run, as in vLLM's gpt-oss path and the model's published chat
                    template
    openai-harmony  the first final, and only if the last assistant message before the run is a final:
                    `render_conversation_for_completion` of openai-harmony 0.0.8
    """
    first_final = last_final = 0
    has_final = ends_in_final = False
    for first, end in runs:
        if history == "serve":
            yield last_final
        else:
            yield first_final if ends_in_final else 0
        for at in range(first, end):
            ends_in_final = messages[at]["channel"] == "final"
            if ends_in_final:
                last_final = at
                if not has_final:
                    first_final, has_final = at, True
