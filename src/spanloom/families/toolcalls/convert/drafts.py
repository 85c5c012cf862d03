"""What a converter makes of a record, before it gets its id and is checked.

In: nothing. Out: `Draft`, `Completion`, `Completions`, `Options`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from spanloom.families.toolcalls.convert.goals import Goals, installed_goals
from spanloom.families.toolcalls.format.turns import Turn


@dataclass(frozen=True, kw_only=True)
class Completion:
    """An assistant turn from a file of completions. `about`: model, temperature, created_at."""

    text: str
    about: Mapping[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """What the sample's metadata says of it."""
        return {"generation": dict(self.about)} if self.about else {}


class Completions:
    """Id → the completions of that prompt. Owns which ids a record asked for."""

    def __init__(self, completions: Mapping[str, Sequence[Completion]]) -> None:
        self._completions = completions
        self._taken: set[str] = set()

    def of(self, name: str) -> Sequence[Completion]:
        self._taken.add(name)
        return self._completions.get(name, ())

    def unused(self) -> int:
        """How many are of ids that no record asked for."""
        return sum(len(completions) for name, completions in self._completions.items() if name not in self._taken)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What converters go by.

    system         the system message of records that have none
    turns          of a dialogue the last assistant turn, or each
    tools          the registry that samples name, where the source does not decide it
    security_means what `security: true` says in AgentDojo's traces; "by-shape": see `agentdojo`
    goals          what AgentDojo's injection tasks ask for, by suite and task; None: those of an installed `agentdojo`
    completions    those of a file; None where the source has its own
    min_reward     simulations with a smaller reward, or none, are left out; None takes all
    split          the split of messages of your own that name none; None leaves them out
    labels         what a file says of messages of your own: id → split and labels
    """

    system: str | None = None
    turns: Literal["last", "all"] = "last"
    tools: str = "b4_standard_v1"
    security_means: Literal["by-shape", "resisted", "attack-succeeded"] = "by-shape"
    goals: Goals | None = None
    completions: Completions | None = None
    min_reward: float | None = None
    split: Literal["harmful", "retain"] | None = None
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def goals_of(self, suite: str, task: str) -> Sequence[str]:
        """The goals of an injection task, of all suites where the suite is not known."""
        goals = installed_goals()[0] if self.goals is None else self.goals
        if suite:
            return goals.get((suite, task), ())
        return [goal for (_, name), each in goals.items() if name == task for goal in each]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A sample to be.

    source     what `metadata.source` says        id_source  what its id begins with
    hashed     what the id is hashed from beside messages and text
    missing    labels that the source does not have
    read_as    how a value of the source with several meanings was read; empty where there is none
    told       the record's own label; empty where the source tells nothing
    became     what the sample is, in the same words
    """

    source: str
    id_source: str
    split: str
    messages: Sequence[Turn]
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
