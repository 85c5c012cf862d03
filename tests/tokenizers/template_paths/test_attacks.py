"""Templates that hide state, or read values past the log: no wrong text."""

import pytest

from spanloom.tokenizers.template_paths import environment
from spanloom.tokenizers.template_paths.symbols import plain
from support.compared_paths import compared
from support.nightly import drawn
from support.path_attacks import ATTACKS, odd_record


def test_there_are_at_least_72() -> None:
    assert len(ATTACKS) >= 72


@pytest.mark.parametrize("name", ATTACKS)
def test_no_text_is_wrong(name: str) -> None:
    outcomes = compared(ATTACKS[name], [odd_record(seed) for seed in range(drawn(1000, 60))], prompts=(False,))
    assert outcomes.different == []


def test_a_test_that_is_not_logged_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself: with a log that leaves out `in`, texts are wrong."""
    monkeypatch.setattr(environment, "contains", lambda part, whole: plain(part) in plain(whole))
    outcomes = compared(ATTACKS["literal-in"], [odd_record(seed) for seed in range(60)], prompts=(False,))
    assert outcomes.different != []


@pytest.mark.parametrize(
    "name", ["joiner", "cycler", "loop-changed", "escape", "safe-plus", "sameas", "autoescape", "list-append"]
)
def test_state_outside_of_namespaces_is_refused(name: str) -> None:
    outcomes = compared(ATTACKS[name], [odd_record(seed) for seed in range(10)], prompts=(False,))
    assert outcomes.counts == {"unloggable": 10}


def test_attacks_are_walked_and_not_only_refused() -> None:
    records = [odd_record(seed) for seed in range(20)]
    names = sorted(ATTACKS)[::4]
    walked = sum(compared(ATTACKS[name], records, prompts=(False,)).counts["walked"] > 0 for name in names)
    assert walked > len(names) // 3  # the others are refused, or hold for one value
