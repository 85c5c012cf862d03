"""What a converter makes of a record, before it gets its id and is checked.

In: nothing. Out: `Draft`, `Completion`, `Completions`, `Options`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from spanloom.families.toolcalls.turns import Turn


@dataclass(frozen=True, kw_only=True)
class Completion:
    """An assistant turn from a file of completions. `about`: model, temperature, created_at."""

    text: str
    about: Mapping[str, Any]


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
        return sum(len(found) for name, found in self._completions.items() if name not in self._taken)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What converters go by.

    system         the system message of records that have none
    turns          of a dialogue the last assistant turn, or each
    tools          the registry that samples name, where the source does not decide it
    security_means what `security: true` says in AgentDojo's traces; "by-shape": see `convert_agentdojo`
    completions    those of a file; None where the source has its own
    """

    system: str | None = None
    turns: Literal["last", "all"] = "last"
    tools: str = "b4_standard_v1"
    security_means: Literal["by-shape", "resisted", "attack-succeeded"] = "by-shape"
    completions: Completions | None = None


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A sample to be.

    source     what `metadata.source` says        id_source  what its id begins with
    hashed     what the id is hashed from beside messages and text
    missing    labels that the source does not have
    read_as    how a value of the source with several meanings was read; empty where there is none
    """

    source: str
    id_source: str
    split: str
    messages: Sequence[Turn]
    assistant_raw: str
    tools: str | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    hashed: Mapping[str, Any] = field(default_factory=dict)
    missing: Sequence[str] = ()
    read_as: str = ""
