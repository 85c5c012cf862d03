"""Templates that run away end within twice the limits, and those that reach for more than texts are refused."""

from collections.abc import Iterator

import pytest

from spanloom.tokenizers.chat_template import ChatTemplate
from spanloom.tokenizers.rendering.process import TemplateProcess
from spanloom.tokenizers.rendering.wire import Limits
from support.nightly import drawn
from support.requirements import ATTACKS, absent
from support.template_attacks import REFUSED, STOPPED, Ended, attacks_beside, attempt, own_attacks

LIMITS = Limits(seconds=1, memory=512 << 20, output=16 << 20)
OWN = own_attacks()
EVERY = drawn(1, 4)
"""One in so many of those that take a second each."""

STOP = [name for name, attack in OWN.items() if attack.ends == STOPPED]
REFUSE = [name for name, attack in OWN.items() if attack.ends == REFUSED]
END = [name for name, attack in OWN.items() if attack.ends == "ends"]


@pytest.fixture(scope="module")
def process() -> Iterator[TemplateProcess]:
    process = TemplateProcess(LIMITS)
    yield process
    process.close()


def ended(template: str, process: TemplateProcess, *, traced: bool = False) -> Ended:
    """How it ended. The process is there before, and again afterwards."""
    assert ChatTemplate("{{ 1 + 1 }}", process=process).render([]) == "2"
    end = attempt(template, process, traced=traced)
    assert end.seconds <= 2 * LIMITS.seconds, end
    assert ChatTemplate("{{ 1 + 1 }}", process=process).render([]) == "2"
    return end


def check_said(end: Ended) -> None:
    """One error with its place and what to do, and no traceback."""
    if end.how in (STOPPED, REFUSED):
        lines = end.said.split("\n")
        assert [line.split(":")[0] for line in lines[1:]] == ["  where", "  remedy"], end
        assert "mine.jinja" in lines[1]
        assert "Traceback" not in end.said
        assert len(end.said) < 5000


def test_there_are_many_of_each_kind() -> None:
    assert len(STOP) >= 60
    assert len(REFUSE) >= 25
    assert len(END) >= 15


@pytest.mark.parametrize("name", STOP[::EVERY])
def test_what_runs_away_is_stopped_by_a_limit(name: str, process: TemplateProcess) -> None:
    end = ended(OWN[name].template, process)
    check_said(end)
    assert end.how == STOPPED, end
    assert "runs for more than 1 seconds" in end.said or "MiB" in end.said


@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
@pytest.mark.parametrize("name", REFUSE)
def test_what_reaches_for_more_than_texts_is_refused(name: str, traced: bool, process: TemplateProcess) -> None:
    end = ended(OWN[name].template, process, traced=traced)
    check_said(end)
    assert end.how == REFUSED, end


@pytest.mark.parametrize("name", END)
def test_what_is_strange_ends(name: str, process: TemplateProcess) -> None:
    check_said(ended(OWN[name].template, process))


@pytest.mark.beside
def test_attacks_of_others_end(process: TemplateProcess) -> None:
    attacks = attacks_beside() or absent(ATTACKS)
    assert len(attacks) > 50
    for name in sorted(attacks)[:: drawn(1, 7)]:
        end = ended(attacks[name], process)
        check_said(end)
