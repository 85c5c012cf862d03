"""A stage of a pipeline: one command, or the same command once per shard.

In: names, words and sizes from a family's task list. Out: `Stage`, and the list as JSON.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spanloom.errors import SpanloomError
from spanloom.tasks.sizes import QUANTITY

INDEX = "{index}"
"""Placeholder in a word of a stage's command: the number of the task, from 0."""

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
    """`count` tasks of one command. `after`: the stages that must succeed before a task of this one starts. If both
    have a task per shard, a task waits only for the task of the same shard.

    `cpu`, `memory` and `scratch` are quantities as in Kubernetes: `2`, `16Gi`. `hours` is the time limit of a task;
    `accelerators` a number of GPUs, empty for none.
    `each`: whether the command runs once per shard; then its words contain `{index}`.
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
    accelerators: str = ""

    @property
    def each(self) -> bool:
        return any(INDEX in word for word in self.argv)

    def command(self, index: int) -> list[str]:
        """The command of the task with this number."""
        return [word.replace(INDEX, str(index)) for word in self.argv]

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        if not self.accelerators:
            del values["accelerators"]
        return {"stage": values.pop("name"), **values, "argv": list(self.argv), "after": list(self.after)}


def given(*options: tuple[str, str]) -> tuple[str, ...]:
    """Options with their values. Options with an empty value are left out, so the step's own default applies."""
    return tuple(word for option, value in options if value for word in (option, value))


def parameters_of(words: Sequence[str], declared: Mapping[str, str | None]) -> dict[str, str]:
    """The values of `NAME=VALUE` words, and defaults for the others. `declared`: name → default, None if there is none.

    Raises SpanloomError for a word that is not NAME=VALUE, an unknown name, a value that cannot be put into a command,
    and a missing value of a parameter without a default.
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


def scratch_size(quantity: str) -> str:
    """A size as Kubernetes takes it: `200Gi`, `10G`. Raises SpanloomError for other text, such as `10GB`."""
    if QUANTITY.fullmatch(quantity) is None:
        raise SpanloomError(f"{quantity!r} is not a size that Kubernetes takes", remedy="write it as 200Gi or 10G")
    return quantity


def scratch_bytes(quantity: str) -> int:
    """`200Gi` → 214748364800, `10G` → 10000000000. Raises SpanloomError as `scratch_size` does."""
    text = scratch_size(quantity)
    for power, letter in enumerate("kMGTPE", start=1):
        if text.endswith(f"{letter}i") or (text.endswith("Ki") and letter == "k"):
            return int(float(text[:-2]) * 1024**power)
        if text.endswith(letter):
            return int(float(text[:-1]) * 1000**power)
    return int(float(text))


def mebibytes(quantity: str) -> int:
    """`16Gi` → 16384; rounded up to a whole number of MiB. Raises SpanloomError for invalid text."""
    match = _SIZE.fullmatch(quantity)
    if match is None:
        raise SpanloomError(f"{quantity!r} is not an amount of memory", remedy="write it as 16Gi or 500Mi")
    return max(1, -int(-int(match[1]) * _UNITS[match[2]] // 1))


def whole_cpus(quantity: str) -> int:
    """`2` → 2, `500m` → 1. Raises SpanloomError for invalid text."""
    match = _CPU.fullmatch(quantity)
    if match is None:
        raise SpanloomError(f"{quantity!r} is not a number of CPUs", remedy="write it as 2 or 500m")
    return -(-int(match[1]) // 1000) if match[2] else int(match[1])
