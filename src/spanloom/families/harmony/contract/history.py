"""One conversation → its documents: what each shows, and which of its messages are trained.

In: a checked conversation, `CutRules`. Out: `Cut`s. Pure: nothing is rendered here.

An **assistant run** is a stretch of assistant messages; where it begins, a server would have sampled. With the history
`serve` and `openai-harmony` each run becomes a document of its own: what stood before it, less the reasoning that is no
longer shown, and the run, which alone is trained. With `keep` the conversation is one document.

    user  analysis  final │ user  analysis  final │ user  analysis  final
    serve            0:  user ANALYSIS FINAL
                     1:  user final user ANALYSIS FINAL
                     2:  user final user final user ANALYSIS FINAL
    openai-harmony   2:  user final user analysis final user ANALYSIS FINAL
    keep             0:  user ANALYSIS FINAL user ANALYSIS FINAL user ANALYSIS FINAL
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.conversations.runs import assistant_runs, last_turn
from spanloom.conversations.source.structure import LabelledConversation
from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.profile import HARMONY_CHAT, Profile
from spanloom.supervision import SPAN_CONTEXT

HISTORIES = ("serve", "openai-harmony", "keep")
TURNS = ("all", "last")


@dataclass(frozen=True, kw_only=True)
class CutRules:
    """What of a conversation its documents show and train.

    history  what a run's document shows of what stood before it (see `shown_before`), or `keep`: one document
    train    names of the spans that are trained; messages of the others are context
    turns    `all` runs, or those of the `last` turn: after the last user message that is answered
    """

    history: str = defaults.HISTORY
    train: tuple[str, ...] = tuple(defaults.TRAIN.split(","))
    turns: str = defaults.TURNS

    def __post_init__(self) -> None:
        if self.history not in HISTORIES:
            raise SpanloomError(f"--history must be one of {', '.join(HISTORIES)}, not {self.history!r}")
        if self.turns not in TURNS:
            raise SpanloomError(f"--turns must be one of {', '.join(TURNS)}, not {self.turns!r}")
        names = HARMONY_CHAT.span_names[1:]
        if not self.train or set(self.train) - set(names) or len(set(self.train)) != len(self.train):
            raise SpanloomError(
                f"--train must name spans of {', '.join(names)}, each once, not {','.join(self.train)!r}"
            )

    def as_dict(self) -> dict[str, Any]:
        """As the config of a manifest has it; the spans in the order of their ids."""
        train = [name for name in HARMONY_CHAT.span_names if name in self.train]
        return {"history": self.history, "train": train, "turns": self.turns}


def parsed_train(given: str) -> tuple[str, ...]:
    """`analysis,final` → its names."""
    return tuple(name.strip() for name in given.split(",") if name.strip())


def rules_for(profile: Profile, rules: CutRules | None) -> CutRules | None:
    """The rules that a build of this profile goes by: those given, else the default; None where rows are not cut.

    Raises SpanloomError for rules where there are none to choose.
    """
    if profile.cuts:
        return rules or CutRules()
    if rules is not None:
        raise SpanloomError(
            f"--history, --train and --turns are for conversations ({HARMONY_CHAT.source.schema_version})",
            remedy=f"leave them away: a row of {profile.source.schema_version} is one document",
        )
    return None


def rules_of(config: Mapping[str, Any], profile: Profile) -> CutRules | None:
    """The rules that the config of a manifest, or what a step recorded, names; None where rows are not cut.

    Raises SpanloomError, KeyError or TypeError where it names none.
    """
    if not profile.cuts:
        return None
    return CutRules(history=config["history"], train=tuple(config["train"]), turns=config["turns"])


CUTTING = ("conversations", "runs", "documents", "left_out_messages")
"""What a manifest counts of the rows that were taken: conversations; their assistant runs; the documents made of them;
messages that none of their documents shows, such as a question that nobody answered."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One document of a conversation.

    number  the assistant run of the conversation that it trains, counted from 0; 0 where the conversation is kept whole
    shown   its messages; those of the run have the label of their span, all others that of context
    run     place of the run's first message among them
    before  all messages of the conversation that stand before the run, also those that are not shown
    """

    number: int
    shown: LabelledConversation
    run: int
    before: Sequence[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class CutConversation:
    """The documents of a conversation. `runs`: its assistant runs; `left_out`: messages that none of them shows."""

    cuts: tuple[Cut, ...]
    runs: int
    left_out: int


def cut_conversation(conversation: LabelledConversation, rules: CutRules) -> CutConversation:
    """The documents of a conversation; none where it has no message that the rules train."""
    messages = conversation.messages
    roles = [message["role"] for message in messages]
    runs = assistant_runs(roles)
    trained = {HARMONY_CHAT.span_names.index(name) for name in rules.train}
    first_trained = last_turn(roles, runs) if rules.turns == "last" else 0
    labels = [
        span if span in trained and at >= first_trained else SPAN_CONTEXT
        for at, span in enumerate(conversation.labels.tolist())
    ]
    if rules.history == "keep":
        whole = Cut(number=0, shown=_labelled(messages, labels), run=0, before=())
        return CutConversation(cuts=(whole,) if any(labels) else (), runs=len(runs), left_out=0)
    cuts: list[Cut] = []
    shown_somewhere: set[int] = set()
    for number, (first, end) in enumerate(runs):
        if not any(labels[first:end]):
            continue
        before = shown_before(messages, first, rules.history)
        places = [*before, *range(first, end)]
        shown_somewhere.update(places)
        shown = _labelled([messages[place] for place in places], [SPAN_CONTEXT] * len(before) + labels[first:end])
        cuts.append(Cut(number=number, shown=shown, run=len(before), before=messages[:first]))
    return CutConversation(cuts=tuple(cuts), runs=len(runs), left_out=len(messages) - len(shown_somewhere))


def _labelled(messages: list[dict[str, Any]], labels: list[int]) -> LabelledConversation:
    return LabelledConversation(messages=messages, labels=np.array(labels, dtype=np.uint8))


def shown_before(messages: Sequence[dict[str, Any]], first: int, history: str) -> list[int]:
    """Places of the messages before number `first` that are shown to whoever samples there.

    serve           analysis before the last assistant final is dropped: what vLLM's gpt-oss path and the model's
                    published chat template show
    openai-harmony  analysis before the first final is dropped, and only where the last assistant message is a final:
                    `render_conversation_for_completion` of openai-harmony 0.0.8
    """
    before = messages[:first]
    answers = [at for at, message in enumerate(before) if message["role"] == "assistant"]
    finals = [at for at in answers if before[at]["channel"] == "final"]
    hidden_before = 0
    if history == "serve" and finals:
        hidden_before = finals[-1]
    elif history == "openai-harmony" and finals and finals[-1] == answers[-1]:
        hidden_before = finals[0]
    return [at for at, message in enumerate(before) if at >= hidden_before or message.get("channel") != "analysis"]
