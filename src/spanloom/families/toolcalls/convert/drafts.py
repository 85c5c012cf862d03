"""The types that converters share: their options, completions, drafts of samples without an id, reasons for none.

In: nothing. Out: `Draft`, `UnusableError`, `Completion`, `Completions`, `Options`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from spanloom.conversations.forms import ReadingOptions
from spanloom.conversations.turns import Dropping
from spanloom.families.toolcalls.convert.goals import Goals, installed_goals


class UnusableError(Exception):
    """Raised for a record that cannot become a sample, and yielded for an answer that cannot.

    Its text is a short reason, by which such records are counted. `detail`: what is wrong in this record. `remedy`:
    what helps, if something does. `told`: the record's own label; empty if the source has none.
    """

    def __init__(self, reason: str, *, told: str = "", detail: str | None = None, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.told, self.detail, self.remedy = told, detail, remedy


@dataclass(frozen=True, kw_only=True)
class Completion:
    """An assistant turn from a file of completions. `about`: model, temperature, created_at."""

    text: str
    about: Mapping[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """The entry for the sample's metadata."""
        return {"generation": dict(self.about)} if self.about else {}


class Completions:
    """Id → the completions of that prompt. Records which ids have been looked up."""

    def __init__(self, completions: Mapping[str, Sequence[Completion]]) -> None:
        self._completions = completions
        self._taken: set[str] = set()

    def of(self, name: str) -> Sequence[Completion]:
        self._taken.add(name)
        return self._completions.get(name, ())

    def unused(self) -> int:
        """The number of completions whose id was never looked up."""
        return sum(len(completions) for name, completions in self._completions.items() if name not in self._taken)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of converters.

    system         the system message for records without one
    turns          "last": the last assistant turn of a dialogue; "all": each of them
    tools          the registry of samples whose source defines no tools; None: B4's own for B4, else none
    security_means the meaning of `security: true` in AgentDojo's traces; "by-shape": see `agentdojo.samples`
    goals          the goals of AgentDojo's injection tasks, by suite and task; None: those of an installed `agentdojo`
    completions    from a file; None if the source has its own
    min_reward     simulations with a smaller reward, or without one, are left out; None: all are used
    split          the split of your own messages without one; None: they are left out
    labels         from a file, for your own messages: id → split and labels
    reading        how messages are read, as `spanloom convert` reads them
    join_consecutive  messages of the assistant in a row become one
    """

    system: str | None = None
    turns: Literal["last", "all"] = "last"
    tools: str | None = None
    security_means: Literal["by-shape", "resisted", "attack-succeeded"] = "by-shape"
    goals: Goals | None = None
    completions: Completions | None = None
    min_reward: float | None = None
    split: Literal["harmful", "retain"] | None = None
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    join_consecutive: bool = False

    def goals_of(self, suite: str, task: str) -> Sequence[str]:
        """The goals of an injection task; if `suite` is empty, those of all suites."""
        goals = installed_goals()[0] if self.goals is None else self.goals
        if suite:
            return goals.get((suite, task), ())
        return [goal for (_, name), each in goals.items() if name == task for goal in each]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A sample without an id, before it is checked.

    source     the value of `metadata.source`     id_source  the start of the id
    hashed     values that the id is hashed from, besides messages and assistant_raw
    missing    labels that the source does not provide
    read_as    how an ambiguous value of the source was interpreted; empty if there is none
    told       the record's own label; empty if the source has none
    became     what the record became: harmful, injection resisted or tool capability; empty without `told`
    dropped    what was left out of the record's messages
    """

    source: str
    id_source: str
    split: str
    messages: Sequence[dict[str, str]]
    assistant_raw: str
    tools: str | Sequence[Any] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    hashed: Mapping[str, Any] = field(default_factory=dict)
    missing: Sequence[str] = ()
    read_as: str = ""
    told: str = ""
    became: str = ""
    dropped: Dropping | None = None
