"""A function of keywords has the types, defaults and order of the dataclass that it is made from."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import pytest

from spanloom.errors import OptionError
from spanloom.options.keywords import by_keywords
from spanloom.options.option import option, values_in


@dataclass(frozen=True)
class Copying:
    source: Annotated[str, option("What is copied.")]
    _: KW_ONLY
    times: Annotated[int, option("How often.", min=1)] = 1


@by_keywords(Copying)
def copied(options: Copying) -> str:
    """Copies."""
    return options.source * options.times


def test_it_is_called_by_the_fields() -> None:
    assert (copied("a"), copied(source="a", times=2)) == ("a", "aa")
    with pytest.raises(TypeError, match="tims"):
        copied("a", tims=2)  # type: ignore[call-arg]


def test_numbers_are_held_to_the_limits_of_their_options() -> None:
    for times in (0, 2**63):
        with pytest.raises(OptionError, match="times"):
            copied("a", times=times)


@dataclass(frozen=True, kw_only=True)
class Naming:
    names: Annotated[Sequence[str], option("Names.")] = ()
    pairs: Annotated[Mapping[str, str] | Sequence[str] | None, option("Pairs.")] = None
    places: Annotated[str | Sequence[str], option("Places.")] = ()


@by_keywords(Naming)
def named(options: Naming) -> list[str]:
    return [*options.names, *options.places]


def test_a_text_in_the_place_of_a_list_is_refused() -> None:
    """Each letter would be a name."""
    assert named(names=["ab"], places="c") == ["ab", "c"]
    for given in ({"names": "a,b"}, {"pairs": "a=b"}):
        with pytest.raises(OptionError, match="is a text, not a list"):
            named(**given)
    with pytest.raises(OptionError) as fault:
        named(names="a,b")
    assert fault.value.remedy == "write names=['a', 'b']"


def test_its_signature_is_that_of_the_dataclass() -> None:
    assert str(inspect.signature(copied)) == "(source: str, *, times: int = 1) -> str"
    assert copied.__doc__ == "Copies."


def test_values_are_json_or_texts() -> None:
    assert values_in(["a=1", "b=x", "c=[1]", "d=", "e=x=y"]) == {"a": 1, "b": "x", "c": [1], "d": "", "e": "x=y"}
    for text in ("a", "=1"):
        with pytest.raises(ValueError, match="is not KEY=VALUE"):
            values_in([text])
