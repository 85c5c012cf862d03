"""`--train` is read alike for gpt-oss and for any model."""

import pytest

from spanloom.conversations.source.format import SYNTH
from spanloom.conversations.trained import SPAN_NAMES, parsed_train
from spanloom.errors import EXIT_FAILURE, SpanloomError
from spanloom.families.harmony import defaults as of_harmony
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.models import defaults as of_models


def test_names_are_sorted_by_their_spans() -> None:
    assert parsed_train(" final, analysis,") == ("analysis", "final")
    assert parsed_train(of_harmony.TRAIN) == parsed_train(of_models.TRAIN) == SPAN_NAMES[1:]


@pytest.mark.parametrize("text", ["", ",", "answer", "final,answer", "context", "final,final"])
def test_no_name_an_unknown_one_or_one_twice_is_refused(text: str) -> None:
    with pytest.raises(
        SpanloomError, match=r"^--train must name spans of analysis, final, commentary, each once"
    ) as of:
        parsed_train(text)
    assert of.value.exit_code == EXIT_FAILURE


def test_the_names_in_a_manifest_are_checked_too() -> None:
    with pytest.raises(SpanloomError, match="each once, not 'final,final'"):
        CutRules(train=("final", "final"))


def test_both_families_number_the_spans_alike() -> None:
    """`defaults.py` of a family imports nothing, so that its names are written again."""
    assert of_models.SPAN_NAMES == SPAN_NAMES
    assert SYNTH.span_names == SPAN_NAMES[:3]
