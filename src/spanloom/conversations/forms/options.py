"""The options that say how records are read, as commands take them: checked once, for every command.

In: values of options. Out: a `KeyMap`, a `Reading`, names to leave out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, get_args

from spanloom.conversations.forms.keys import KeyMap, key_map
from spanloom.conversations.reading.flags import NOT_DROPPED
from spanloom.conversations.reading.markup import CALL_STYLES
from spanloom.conversations.turns import Reading, Role
from spanloom.errors import SpanloomError


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options of reading, as `spanloom convert` has them. Raises SpanloomError for an invalid value.

    `maps`: `MEANING=KEY`, see `keys.key_map`. `metadata`: keys that are always metadata. `think_tags`, `call_tags`,
    `text_as_is`: see `turns.Reading`. `roles`: `NAME=ROLE`. `drop`: keys, `role:NAME`, `part:TYPE`, `think`.
    """

    maps: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    think_tags: bool | None = None
    call_tags: str | None = None
    text_as_is: bool = False
    roles: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.call_tags is not None and self.call_tags not in CALL_STYLES:
            raise SpanloomError(
                f"--call-tags takes the style of calls, not {self.call_tags!r}",
                remedy=f"use one of: {', '.join(CALL_STYLES)}",
            )
        if flags := sorted(NOT_DROPPED & set(self.drop)):
            raise SpanloomError(
                f"--drop {flags[0]} would train what is marked as not to be trained",
                remedy="omit it: what its mark says is honoured",
            )
        _ = self.keys, self.reading()

    @cached_property
    def keys(self) -> KeyMap:
        """The meaning of the keys of records."""
        return key_map(self.maps, self.metadata)

    def reading(self, rendered: Callable[[str], list[dict[str, Any]]] | None = None) -> Reading:
        """How texts and keys are read. `rendered`: the parser of rendered Harmony text."""
        keys = self.keys
        return Reading(
            think_tags=self.think_tags,
            call_tags=self.call_tags,
            text_as_is=self.text_as_is,
            metadata=frozenset(self.metadata),
            roles=dict(map(_role, self.roles)),
            trained_if=keys.names.get("trained", ()),
            masked_if=keys.names.get("masked", ()),
            rendered=rendered,
        )


def _role(pair: str) -> tuple[str, Role]:
    """`human=user` → `("human", "user")`. Raises SpanloomError for an invalid pair."""
    name, _, role = pair.partition("=")
    if not name.strip() or role not in get_args(Role):
        raise SpanloomError(
            f"--role takes NAME=ROLE, not {pair!r}",
            remedy=f"name the role of your records first, then one of {', '.join(get_args(Role))}: --role human=user",
        )
    return name.strip().lower(), cast(Role, role)
