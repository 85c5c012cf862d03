"""The training example in docs/examples: losses fall, masks mean what they say, nothing is seen that must not be."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from spanloom.families.chess.loader import ChessIterableDataset, FinetuneIterableDataset
from support import examples
from support.chess_games import folder_of_games, thinking_rows, write_games, write_thinking

LENGTH = 220
EXAMPLE = examples.load(examples.CHESS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("training")
    return (
        folder_of_games(place / "games", [6]),
        write_thinking(place / "thinking/x.parquet", thinking_rows(6)).parent,
    )


@pytest.fixture(scope="module")
def batch(folders: tuple[Path, Path]) -> dict[str, torch.Tensor]:
    samples = [
        sample
        for sample, _ in zip(
            FinetuneIterableDataset(*folders, LENGTH, 0.5, skip_board_prob=0.4, seed=2), range(6), strict=False
        )
    ]
    made: dict[str, torch.Tensor] = default_collate(samples)
    assert made["thinking_move_mask"].any()
    assert made["move_mask"][~made["thinking_move_mask"].any(dim=1)].any()
    return made


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return EXAMPLE.ChessTransformer(LENGTH, width=32, layers=1, heads=2)


def test_every_loss_falls(model: Any, batch: dict[str, torch.Tensor]) -> None:
    history = EXAMPLE.train(model, [batch] * 20, steps=20, learning_rate=1e-2)
    assert len(history) == 20
    for name in EXAMPLE.LOSSES:
        assert history[-1][name] < 0.8 * history[0][name], name


def test_an_ignored_position_has_no_gradient(model: Any, batch: dict[str, torch.Tensor]) -> None:
    outputs = model(batch)
    heads = {name: getattr(outputs, name) for name in EXAMPLE.LOSSES}
    for value in heads.values():
        value.retain_grad()
    torch.stack(list(EXAMPLE.losses(outputs, batch).values())).sum().backward()
    after = (batch["move_mask"] | batch["thinking_move_mask"]).long().cumsum(dim=1) > 0
    ahead = torch.zeros_like(batch["move_mask"])
    wl, d = ahead.clone(), ahead.clone()
    wl[:, :-1] = (batch["wl_positions"] & batch["wdl_valid"])[:, 1:]
    d[:, :-1] = (batch["d_positions"] & batch["wdl_valid"])[:, 1:]
    trained = {
        "board": after & (batch["board_target_ids"] >= 0),
        "move": batch["move_mask"],
        "thinking": batch["thinking_move_mask"],
        "wl": wl,
        "d": d,
    }
    for name, where in trained.items():
        gradient = heads[name].grad
        touched = gradient.abs().reshape(*gradient.shape[:2], -1).sum(-1) > 0
        assert not touched[~where].any(), name
        assert touched[where].float().mean() > 0.95, name


def test_a_batch_without_thinking_or_values_costs_nothing_there(folders: tuple[Path, Path], model: Any) -> None:
    made = default_collate(list(ChessIterableDataset(folders[0], LENGTH)))
    made["wdl_valid"] = torch.zeros_like(made["wdl_valid"])
    said = EXAMPLE.losses(model(made), made)
    assert [float(said[name].detach()) for name in ("thinking", "wl", "d")] == [0.0, 0.0, 0.0]
    assert torch.isfinite(torch.stack(list(said.values()))).all()


def test_tokens_of_one_board_see_each_other() -> None:
    seen = EXAMPLE.prefix_mask(torch.tensor([[0, 0, 5, 1, 1]]))[0].int().tolist()
    assert seen == [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]


def test_the_board_head_does_not_see_what_it_predicts(model: Any, batch: dict[str, torch.Tensor]) -> None:
    changed = {**batch, "input_ids": batch["input_ids"].clone()}
    at = 30  # within the first board
    changed["input_ids"][:, at] = 1930
    one, other = model(batch).board, model(changed).board
    assert torch.equal(one[:, :at], other[:, :at])
    assert not torch.equal(one[:, at:], other[:, at:])


def test_a_value_is_not_seen_before_it_is_predicted(model: Any, batch: dict[str, torch.Tensor]) -> None:
    row = int(batch["d_positions"].sum(dim=1).argmax())
    single = {name: value[row : row + 1] for name, value in batch.items()}
    at = int(torch.nonzero(single["d_positions"][0])[1])
    changed = {**single, "d_targets": single["d_targets"].clone()}
    changed["d_targets"][0, at] += 0.5
    one, other = model(single), model(changed)
    assert torch.equal(one.d[0, :at], other.d[0, :at])
    assert torch.equal(one.move[0, :at], other.move[0, :at])
    assert not torch.equal(one.move[0, at:], other.move[0, at:])


def test_the_example_runs_on_either_kind(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--batch-size=4", "--max-seq-len=160"]
    games, thinking = f"--games={folders[0]}", f"--thinking={folders[1]}"
    for given in ([games], [thinking], [games, thinking]):
        assert EXAMPLE.main([*given, *sizes, "--steps=2"]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["step", "0", "1"]
    write_games(tmp_path / "x.parquet", [])
    assert EXAMPLE.main([f"--games={tmp_path}", *sizes]) == 1
    assert "no sample" in capsys.readouterr().err
