"""How far an expression looks: which prefixes of a conversation have the same outcome for a message.

In: an expression or test. Out: a `Reach`. A walk evaluates a test once for a message if it reads only this message and
earlier ones, again for the last messages of each prefix if it looks at what follows (`loop.last`, the next role), and
for each prefix if it reads state that depends on the end.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spanloom.tokenizers.template_paths.expressions import Expression

NEAREST = 2
"""Messages behind the current one that a test may look at and still be near."""


@dataclass(frozen=True)
class Reach:
    """far    it depends on the number of messages in any way, or on messages far behind
    near      it depends on the end where that is at most `NEAREST` messages away, and is the same for all before
    slots     the attributes of namespaces that it reads
    later     it reads messages behind the current one
    """

    far: bool = False
    near: bool = False
    slots: frozenset[Any] = frozenset()
    later: bool = False

    @property
    def local(self) -> bool:
        """Whether it reads neither state nor the end nor messages behind the current one."""
        return not (self.far or self.near or self.slots or self.later)

    def with_(self, other: "Reach") -> "Reach":
        return Reach(
            self.far or other.far, self.near or other.near, self.slots | other.slots, self.later or other.later
        )


_LOCAL = Reach()


@lru_cache(maxsize=100_000)
def reach_of(expression: Expression) -> Reach:
    """The reach of an expression or test."""
    kind = expression[0]
    if kind == "k":
        return _LOCAL
    if kind == "ns":
        return Reach(slots=frozenset((expression[1],)))
    if kind in ("messages", "nsv"):
        return Reach(far=True)
    if kind == "form":
        return _of_comparison(expression[2])
    if kind == "M":
        return _of_message(expression[1])
    if kind in ("int", "mod"):
        return _of_form(expression[1])
    return _of_parts(expression[1:])


def _of_parts(parts: tuple[Any, ...]) -> Reach:
    whole = _LOCAL
    for part in parts:
        if isinstance(part, tuple) and part:
            whole = whole.with_(reach_of(part) if isinstance(part[0], str) else _of_parts(part))
    return whole


def _atoms(form: Any) -> Reach:
    return _of_parts(tuple(atom for atom, _ in form[1] if isinstance(atom, tuple)))


def _of_form(form: Any) -> Reach:
    return Reach(far=True).with_(_atoms(form)) if "n" in dict(form[1]) else _atoms(form)


def _of_comparison(form: Any) -> Reach:
    """`i - n + 1 == 0`: the same for all messages that are `NEAREST` or more before the end."""
    constant, factors = form[0], dict(form[1])
    if "n" not in factors:
        return _atoms(form)
    count, place = factors["n"], factors.get("i", 0)
    near = set(factors) <= {"i", "n"} and abs(count) == 1 and place in (0, -count) and abs(constant) <= NEAREST
    return Reach(near=True) if near else Reach(far=True).with_(_atoms(form))


def _of_message(form: Any) -> Reach:
    constant, factors = form[0], dict(form[1])
    if factors.get("n") or any(isinstance(atom, tuple) for atom in factors):
        return Reach(far=True, later=True).with_(_atoms(form))
    if factors.get("i", 0) == 1 and constant > 0:
        return Reach(near=constant <= NEAREST, far=constant > NEAREST, later=True)
    if factors.get("i", 0) not in (0, 1) or (not factors and constant > NEAREST):
        return Reach(far=True, later=True)
    return _LOCAL
