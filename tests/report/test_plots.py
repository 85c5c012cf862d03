"""Plots have ticks at round numbers, and what they draw stays within their axes."""

import re
from typing import Any

import pytest

from spanloom.dataset.statistics import SEQUENCE_LENGTHS
from spanloom.report.pages import plots


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 0.167, [0.0, 0.05, 0.1, 0.15]),
        (0.0, 0.0009, [0.0, 0.0002, 0.0004, 0.0006, 0.0008]),
        (0.0099, 0.0101, [0.0099, 0.00995, 0.01, 0.01005, 0.0101]),
    ],
)
def test_ticks_are_at_round_numbers(low: float, high: float, wanted: list[float]) -> None:
    assert plots._round_numbers(low, high) == pytest.approx(wanted)


def test_powers_of_two_are_thinned_from_one() -> None:
    assert list(plots._powers(3, 40)) == [4, 8, 16, 32]
    many = list(plots._powers(2**-20, 2**20))
    assert len(many) <= plots.MOST_TICKS
    assert 1 in many


def lengths(counts: list[int], below: int, edges: list[int]) -> dict[str, Any]:
    documents = sum(counts)
    return {
        "lengths": {"below": below, "edges": edges, "splits": {"train": counts, "valid": [0] * len(counts)}},
        "total": {"sequences": documents, **{f"fit_{limit}": documents for limit in SEQUENCE_LENGTHS}},
    }


DRAWN = {
    "one document": plots.lengths_plot(lengths([1], 0, [1])),
    "long ones": plots.lengths_plot(lengths([3, 0, 9], 1 << 20, [1 << 21, 1 << 22, 1 << 23])),
    "a ratio": plots.ratios_plot({"edges": [0.5, 1.0, 2.0], "documents": [0, 2, 1, 0]}),
    "outer ratios": plots.ratios_plot({"edges": [0.5, 1.0, 2.0], "documents": [5, 0, 0, 1]}),
    "a fraction": plots.fraction_plot({"asked": 0.01, "realised": 0.012, "interval": [0.008, 0.017]}),
    "no fraction": plots.fraction_plot({"asked": 0.0, "realised": 0.0, "interval": [0.0, 0.0]}),
    "the whole": plots.fraction_plot({"asked": 1.0, "realised": 1.0, "interval": [0.9, 1.0]}),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_is_within_the_axes(name: str) -> None:
    svg = str(DRAWN[name])
    height = float(re.search(r'viewBox="0 0 760.0 ([\d.]+)"', svg)[1])  # type: ignore[index]
    paths = re.findall(r'<path class="([a-z ]+)" d="([^"]+)"', svg)
    assert {"axis"} < {kind for kind, _ in paths} or "limit" in svg
    for _, path in paths:
        for command, numbers in re.findall(r"([MHV])([-\d. ]+)", path):
            values = [float(number) for number in numbers.split()]
            across = values[:1] if command in "MH" else []
            up = values[1:] if command == "M" else values if command == "V" else []
            assert all(plots.LEFT <= x <= plots.RIGHT for x in across), path
            assert all(0 <= y <= height for y in up), path
    assert "nan" not in svg
    assert "style=" not in svg  # the page's policy allows none


def test_the_highest_share_reaches_the_top_and_bars_have_the_height_of_their_share() -> None:
    svg = str(plots.ratios_plot({"edges": [0.5, 1.0, 2.0], "documents": [0, 4, 2, 0]}))
    bottom = 220.0 - plots.BELOW
    tops = [float(up) for up in re.findall(r'class="(?:first|second) bar" d="M[\d.]+ [\d.]+V([\d.]+)', svg)]
    assert tops == pytest.approx([10.0, (bottom + 10.0) / 2], abs=0.06)
