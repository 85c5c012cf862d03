"""A stage of a pipeline: one command, or the same command once a shard.

In: names, words and sizes, as a family's task list gives them. Out: `Stage`, and the list as JSON.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spanloom.errors import SpanloomError

INDEX = "{index}"
"""In a word of a stage's command: the number of the task, from 0."""

_UNITS = {
    "Ki": 1 / 1024,
    "Mi": 1,
    "Gi": 1024,
    "Ti": 1 << 20,
    "K": 1e3 / (1 << 20),
    "M": 1e6 / (1 << 20),
    "G": 1e9 / (1 << 20),
}
_SIZE = re.compile(r"(\d+)(Ki|Mi|Gi|Ti|K|M|G)")
_CPU = re.compile(r"([1-9]\d*)(m?)")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """`count` tasks of one command. `after`: the stages whose tasks have all ended well before one of these begins;
    where both have a task for each shard, the task of the same shard has.

    `cpu`, `memory` and `scratch` are quantities as Kubernetes writes them: `2`, `16Gi`. `hours` is the longest that a
    task may take. `each` is whether the command is run once a shard; its words hold `{index}` then.
    """

    name: str
    count: int
    image: str
    argv: tuple[str, ...]
    cpu: str
    memory: str
    scratch: str
    hours: int
    after: tuple[str, ...]

    @property
    def each(self) -> bool:
        return any(INDEX in word for word in self.argv)

    def command(self, index: int) -> list[str]:
        """The words of the task of this number."""
        return [word.replace(INDEX, str(index)) for word in self.argv]

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {"stage": values.pop("name"), **values, "argv": list(self.argv), "after": list(self.after)}


def given(*options: tuple[str, str]) -> tuple[str, ...]:
    """Options with their values; one whose value is empty is left out, so that the step's own default holds."""
    return tuple(word for option, value in options if value for word in (option, value))


def parameters_of(words: Sequence[str], declared: Mapping[str, str | None]) -> dict[str, str]:
    """The values of `NAME=VALUE` words, and the defaults of the others. `declared`: name → default, None where there is
    none.

    Raises SpanloomError for what is not NAME=VALUE, a name that the pipeline has not, a value that cannot be put into a
    command, and a parameter without a default that is not given.
    """
    values = {name: default for name, default in declared.items() if default is not None}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SpanloomError(f"{word!r} is not NAME=VALUE", remedy="write it as source_uri=/data/source")
        if name not in declared:
            raise SpanloomError(
                f"the pipeline has no parameter {name!r}", remedy=f"it has {', '.join(sorted(declared))}"
            )
        if INDEX in value or "\0" in value or "\n" in value:
            raise SpanloomError(f"the value of {name} holds {INDEX}, a line feed or NUL: {value!r}", remedy="rename it")
        values[name] = value
    if missing := [name for name in declared if not values.get(name) and declared[name] is None]:
        raise SpanloomError(f"the pipeline needs {', '.join(missing)}", remedy=f"give {missing[0]}=VALUE")
    return values


def mebibytes(quantity: str) -> int:
    """`16Gi` → 16384; what is no whole number of MiB is rounded up. Raises SpanloomError for another text."""
    match = _SIZE.fullmatch(quantity)
    if match is None:
        raise SpanloomError(f"{quantity!r} is no amount of memory", remedy="write it as 16Gi or 500Mi")
    return max(1, -int(-int(match[1]) * _UNITS[match[2]] // 1))


def whole_cpus(quantity: str) -> int:
    """`2` → 2, `500m` → 1. Raises SpanloomError for what is no number of CPUs."""
    match = _CPU.fullmatch(quantity)
    if match is None:
        raise SpanloomError(f"{quantity!r} is no number of CPUs", remedy="write it as 2 or 500m")
    return -(-int(match[1]) // 1000) if match[2] else int(match[1])
