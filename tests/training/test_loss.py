"""The loss per span: its definition on small numbers, its shares over micro-batches and ranks, Megatron's contract."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.errors import DatasetError
from spanloom.training.batch import ReadAhead, split_wire
from spanloom.training.loss import SpanCounts, SpanWeights, span_loss_func, span_normalized_loss, span_sums
from support.nightly import drawn, nightly
from support.ranks import run_ranks

LOSS = torch.tensor([[5.0, 1.0, 3.0, 2.0, 4.0, 9.0]])
MASK = torch.tensor([[0.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
SPAN = torch.tensor([[0, 1, 1, 2, 2, 2]])
"""analysis: 1 and 3, mean 2; final: 2 and 4, mean 3; the last answer token is not trained."""

EQUAL = SpanWeights({"analysis": 1.0, "final": 1.0})


def alone(loss: torch.Tensor, mask: torch.Tensor, span: torch.Tensor, weights: SpanWeights) -> float:
    return float(span_normalized_loss(loss, mask, span, SpanCounts.of(mask, span, len(weights)), weights))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (EQUAL, 2 + 3),
        (SpanWeights({"analysis": 0.0, "final": 1.0}), 3),
        (SpanWeights({"analysis": 1.0, "final": 0.0}), 2),
        (SpanWeights({"analysis": 0.5, "final": 2.0}), 1 + 6),
    ],
)
def test_the_loss_is_the_weighted_sum_of_the_means_of_the_spans(weights: SpanWeights, expected: float) -> None:
    assert alone(LOSS, MASK, SPAN, weights) == expected


def test_a_span_without_tokens_adds_nothing_and_nothing_at_all_is_zero_with_a_gradient_of_zero() -> None:
    assert alone(LOSS, MASK * (SPAN == 2), SPAN, EQUAL) == 3
    loss = LOSS.clone().requires_grad_()
    nothing = torch.zeros_like(MASK)
    share = span_normalized_loss(loss, nothing, SPAN, SpanCounts.of(nothing, SPAN, 2), EQUAL)
    share.backward()
    assert share.item() == 0
    assert loss.grad is not None
    assert loss.grad.tolist() == torch.zeros_like(LOSS).tolist()


def test_what_is_not_trained_does_not_count_even_when_it_is_not_a_number() -> None:
    loss = torch.where(MASK > 0, LOSS, torch.nan).requires_grad_()
    share = span_normalized_loss(loss, MASK, SPAN, SpanCounts.of(MASK, SPAN, 2), EQUAL)
    share.backward()
    assert share.item() == 5
    assert loss.grad is not None
    assert loss.grad.tolist() == [[0, 0.5, 0.5, 0.5, 0.5, 0]]


def test_half_precision_losses_are_added_in_float32() -> None:
    """4,096 ones and one 2^-7 more: bfloat16 has 8 bits, and would stay at 256."""
    loss = torch.ones(1, 4096, dtype=torch.bfloat16)
    mask, span = torch.ones(1, 4096), torch.ones(1, 4096, dtype=torch.int64)
    sums = span_sums(loss, mask, span, 2)
    assert sums.dtype == torch.float32
    assert sums.tolist() == [4096, 0]


def test_a_mean_of_means_is_another_loss() -> None:
    """1 token of loss 8 in one micro-batch and 3 of loss 0 in the other: 8 / 4, not (8 + 0) / 2."""
    loss = torch.tensor([[8.0, 7.0, 7.0], [0.0, 0.0, 0.0]])
    mask, span = torch.tensor([[1.0, 0, 0], [1, 1, 1]]), torch.ones(2, 3, dtype=torch.int64)
    counts = SpanCounts.of(mask, span, 2)
    shares = [span_normalized_loss(loss[i], mask[i], span[i], counts, EQUAL) for i in range(2)]
    assert float(sum(shares)) == alone(loss, mask, span, EQUAL) == 2
    assert sum(alone(loss[i], mask[i], span[i], EQUAL) for i in range(2)) / 2 == 4


def test_each_of_three_spans_has_its_own_mean_and_one_without_tokens_adds_nothing() -> None:
    weights = SpanWeights({"reasoning": 1.0, "call": 0.5, "answer": 2.0})
    loss = torch.tensor([[6.0, 4.0, 8.0, 7.0], [1.0, 3.0, 5.0, 9.0]])
    mask = torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1]])
    span = torch.tensor([[1, 2, 2, 3], [3, 3, 3, 0]])  # reasoning: 6; call: 4 and 8; answer: 1, 3 and 5
    assert alone(loss, mask, span, weights) == 1.0 * 6 + 0.5 * 6 + 2.0 * 3
    assert SpanCounts.of(mask, span, 3).tokens.tolist() == [1, 2, 3]
    without_calls = mask * (span != 2)
    assert alone(loss, without_calls, span, weights) == 1.0 * 6 + 2.0 * 3
    _, trained, report = span_loss_func(without_calls, span, SpanCounts.of(without_calls, span, 3), weights, loss)
    assert trained == 4
    logged = {name: float(total / count) for name, (total, count) in report.items()}
    # 1 of 4 tokens is reasoning and 3 are answer: w · N / N_s.
    expected = {"lm loss": (6 + 9) / 4, "weighted loss": 12}
    expected |= {"reasoning loss": 6, "reasoning tokens": 1, "reasoning weight": 1.0 * 4 / 1}
    expected |= {"call loss": 0, "call tokens": 0, "call weight": 0}
    expected |= {"answer loss": 3, "answer tokens": 3, "answer weight": pytest.approx(2.0 * 4 / 3)}
    assert logged == expected


def test_weights_are_one_for_each_trained_span_of_a_dataset_in_the_order_of_their_ids() -> None:
    weights = SpanWeights.equal(["context", "reasoning", "call", "answer"])
    assert weights.names == ("reasoning", "call", "answer")
    assert weights.on(torch.device("cpu")).tolist() == [1, 1, 1]


steps = st.lists(
    st.lists(st.tuples(st.integers(0, 64), st.integers(0, 1), st.integers(0, 4)), min_size=4, max_size=4),
    min_size=1,
    max_size=6,
)


@given(step=steps, weight_of=st.lists(st.integers(0, 3), min_size=1, max_size=4))
@settings(max_examples=drawn(150, 25))
def test_shares_add_up_and_megatrons_quotient_is_the_loss(step: list[Any], weight_of: list[int]) -> None:
    """Against the definition in plain Python, over any cut of a step into micro-batches, for one to four spans.

    Ids from 0 to 4: those beyond the last span are trained by nobody, as those of context.
    """
    values = torch.tensor(step, dtype=torch.float64)
    loss, mask, span = values[..., 0].float(), values[..., 1].float(), values[..., 2].long()
    spans = range(1, len(weight_of) + 1)
    weights = SpanWeights({f"span {number}": float(weight) for number, weight in zip(spans, weight_of, strict=True)})
    tokens = [token for row in step for token in row if token[1]]
    means = [
        sum(member) / len(member) if (member := [token[0] for token in tokens if token[2] == span_id]) else 0.0
        for span_id in spans
    ]
    expected = sum(weight * mean for weight, mean in zip(weight_of, means, strict=True))
    counts = SpanCounts.of(mask, span, len(weights))
    shares = [span_normalized_loss(loss[i], mask[i], span[i], counts, weights) for i in range(len(step))]
    assert float(sum(shares)) == pytest.approx(expected, rel=1e-5)
    # What Megatron does with what loss_func returns: add, add, divide; and the same with each report.
    returned = [span_loss_func(mask[i], span[i], counts, weights, loss[i]) for i in range(len(step))]
    total, trained = sum(float(each[0]) for each in returned), sum(int(each[1]) for each in returned)
    assert trained == sum(1 for token in tokens if token[2] in spans)
    assert total / max(trained, 1) == pytest.approx(expected, rel=1e-5)
    trained_losses = [token[0] for token in tokens if token[2] in spans]
    figures = {"weighted loss": expected, "lm loss": sum(trained_losses) / max(len(trained_losses), 1)}
    for number in spans:
        count = sum(token[2] == number for token in tokens)
        weight = weight_of[number - 1] * trained / count if count else 0.0
        name = f"span {number}"
        figures |= {f"{name} loss": means[number - 1], f"{name} tokens": count, f"{name} weight": weight}
    assert set(returned[0][2]) == set(figures)
    for name, value in figures.items():
        reported = torch.stack([each[2][name] for each in returned]).sum(0)
        assert float(reported[0] / reported[1]) == pytest.approx(value, rel=1e-5)


def test_a_micro_batch_without_a_span_adds_nothing_to_the_denominator_of_its_mean() -> None:
    """Evaluation adds over its iterations too: (8 + 4) / 2 of the first and nothing of the second is 6, not 12 / 3."""
    mask, span = torch.ones(1, 2), torch.tensor([[[1, 1]], [[2, 2]]])
    loss = torch.tensor([[[8.0, 4.0]], [[3.0, 5.0]]])
    steps = [span_loss_func(mask, span[i], SpanCounts.of(mask, span[i], 2), EQUAL, loss[i])[2] for i in range(2)]
    for name, mean in (("analysis loss", 6), ("final loss", 4), ("lm loss", 5)):
        total, count = (steps[0][name] + steps[1][name]).tolist()
        assert total / count == mean


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_wire_gives_back_what_went_in_whatever_the_float(dtype: torch.dtype) -> None:
    mask, span = torch.tensor([0.0, 0, 1, 1, 1]), torch.tensor([0, 2, 1, 2, 0])
    wire = (mask * span).to(torch.float32)
    back_mask, back_span = split_wire(wire.to(dtype))
    # A label that is not trained loses its span, and one in neither span its mask: neither carries loss.
    assert back_mask.tolist() == [0, 0, 1, 1, 0]
    assert back_span.tolist() == [0, 0, 1, 2, 0]


def test_a_step_is_read_before_its_first_micro_batch_is_given_out() -> None:
    drawn = []

    def stream(name: str) -> Iterator[dict[str, Any]]:
        for number in range(4):
            drawn.append((name, number))
            yield {"name": (name, number), "loss_mask": torch.full((1, 2), float(1 + number % 2))}

    ahead = ReadAhead(next, lambda: 2, lambda: None, spans=2)
    train, valid = stream("train"), stream("valid")
    first, counts = ahead(train)
    assert drawn == [("train", 0), ("train", 1)], "both micro-batches of the step, and none of the next"
    assert (first["name"], first["span_id"].tolist(), first["loss_mask"].tolist()) == (("train", 0), [[1, 1]], [[1, 1]])
    assert counts is not None
    assert counts.tokens.tolist() == [2, 2]
    other, _ = ahead(valid)  # an evaluation in between does not mix with it
    second, same = ahead(train)
    assert (other["name"], second["name"], same) == (("valid", 0), ("train", 1), counts)
    assert ahead(train)[0]["name"] == ("train", 2)


def test_a_stage_without_the_mask_counts_nothing() -> None:
    ahead = ReadAhead(lambda _: {"tokens": None, "loss_mask": None}, lambda: 3, lambda: None, spans=2)
    assert ahead(None) == ({"tokens": None, "loss_mask": None, "span_id": None}, None)


def test_a_plain_mask_is_not_taken_for_the_wire() -> None:
    ahead = ReadAhead(lambda _: {"loss_mask": MASK, "span_id": SPAN}, lambda: 1, lambda: None, spans=2)
    with pytest.raises(DatasetError, match="SpanWireGPTDataset"):
        ahead(None)


@pytest.mark.parametrize("world", [nightly(1), 2, 4])
def test_gradients_are_those_of_one_full_batch_step(world: int, tmp_path: Path) -> None:
    """Real processes, gloo: Megatron's schedule, data, tensor and context parallel, and a step in plain torch."""
    out = tmp_path / "out.json"
    done = run_ranks("support.gradients", out, ranks=world)
    assert not any(rank.returncode for rank in done), "\n".join(rank.stderr for rank in done)
    results = json.loads(out.read_text())
    assert len(results) == {1: 20, 2: 40, 4: 30}[world]
    for result in results:
        assert result["gradient"] <= 1e-6, result
        assert result["loss"][0] == pytest.approx(result["loss"][1], rel=1e-6), result
        assert result["counts"][0] == result["counts"][1], result
        assert (result["largest"] == 0) == ("nothing trained" in result["case"]), result
