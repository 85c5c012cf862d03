"""Commands of dataclasses: every field is an option, and the objects are made of what was given."""

import operator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from typer.testing import CliRunner

from spanloom.cli.declared import Commands
from spanloom.options.option import as_json, listing, option, running


@dataclass(frozen=True, kw_only=True)
class Rules:
    size: Annotated[int, option("A size.", min=2)] = 4
    keep: Annotated[bool, option("Keep.", "--keep/--drop")] = True
    kind: Annotated[Literal["a", "b"] | None, option("A kind.")] = None
    names: Annotated[tuple[str, ...], listing("Names.", "--name")] = ()
    check: Annotated[bool, running("Do not check.", "--no-check", takes=bool, given=False, read=operator.not_)] = True
    stop: Annotated[
        tuple[str, ...], option("Stops.", takes=list[str] | None, in_steps=as_json("Stops.", "--stops", list))
    ] = ()
    no_option: str = "its default"


def run(*words: str, switches: bool = False) -> Any:
    """What the command is given; the text of its error if it is not called."""
    app, taken = Commands(add_completion=False), []

    @app.command(switches=switches)
    def command(rules: Rules, times: Annotated[int, option("How often.")] = 1) -> None:
        taken.append((rules, times))

    done = CliRunner().invoke(app, [*words])
    return taken[0] if taken else done.output


def test_without_options_the_objects_have_their_defaults() -> None:
    assert run() == (Rules(), 1)


def test_options_of_dataclasses_and_of_the_function_are_read() -> None:
    words = ("--size", "8", "--drop", "--kind", "b", "--name", "x,y", "--name", "z", "--no-check", "--times", "2")
    assert run(*words) == (Rules(size=8, keep=False, kind="b", names=("x", "y", "z"), check=False), 2)


def test_in_a_step_a_bool_is_a_switch_and_a_list_is_json() -> None:
    assert run("--keep", "0", "--stops", '["</s>"]', switches=True)[0] == Rules(keep=False, stop=["</s>"])  # type: ignore[arg-type]
    assert run("--no-check", switches=True)[0] == Rules(check=False, stop=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--size", "1"), "greater than or equal to 2"),
        (("--size", str(2**63)), "more than 64 bits"),
        (("--times", str(2**63)), "more than 64 bits"),
        (("--kind", "c"), "'a', 'b'"),
        (("--stops", "{}"), "give a JSON list"),
    ],
)
def test_what_cannot_be_read_is_named(words: tuple[str, ...], expected: str) -> None:
    output = run(*words, switches=True)
    assert expected in output
    assert words[0] in output
