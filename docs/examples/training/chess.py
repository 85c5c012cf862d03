"""A small transformer that learns from games or thinking rows: which field of a batch is for which head.

    python docs/examples/training/chess.py --games data/chess/prepared --thinking data/chess/prepared --steps 50

In: prepared games or Parquet files. Out: the losses of the steps.

Two forward passes over the same tokens, with the same weights:

    causal   each position attends to itself and to earlier ones → board head: the next token, or generic_move
    prefix   the tokens of one board also attend to each other (`block_id`); values are inputs at their tokens
             → move, thinking move and value heads

The board head must not attend to a whole board: it would copy the token that it has to predict. The move heads may:
moves are predicted from the last token of a board, or from a token after all relevant boards.

    head      reads          target
    board     every position board_target_ids, from the first position on that predicts a move
    move      move_mask      move_target_ids
    thinking  thinking_move_mask   move_target_ids
    win-loss  the token before each wl_value   wl_targets there, where wdl_valid
    draw      each wl_value  d_targets at the d_value after it, where wdl_valid
"""

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spanloom.errors import SpanloomError, extra_for
from spanloom.families.chess import defaults
from spanloom.families.chess.errors import ChessError

with extra_for(__name__, "megatron"):
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.data import DataLoader

    from spanloom.families.chess.encoding.vocabulary import BOARD_SIZE, IGNORE, MOVE_COUNT, PAD, VOCABULARY_SIZE
    from spanloom.families.chess.loader import ChessIterableDataset, FinetuneIterableDataset

Batch = Mapping[str, torch.Tensor]
LOSSES = ("board", "move", "thinking", "wl", "d")


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The outputs of the heads: board [B, S, 41], move and thinking [B, S, 1924], wl and d [B, S]."""

    board: torch.Tensor
    move: torch.Tensor
    thinking: torch.Tensor
    wl: torch.Tensor
    d: torch.Tensor


class ChessTransformer(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy here
    """Embeddings, `layers` transformer layers, five output heads. `width` must be a multiple of `heads`."""

    def __init__(self, max_seq_len: int, *, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY_SIZE, width, padding_idx=PAD)
        self.places = nn.Embedding(max_seq_len, width)
        self.value_in = nn.Linear(2, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.board, self.values = nn.Linear(width, BOARD_SIZE), nn.Linear(width, 2)
        self.move, self.thinking = nn.Linear(width, MOVE_COUNT), nn.Linear(width, MOVE_COUNT)

    def forward(self, batch: Batch) -> Outputs:
        ids = batch["input_ids"]
        at = torch.arange(ids.shape[1], device=ids.device)
        plain = self.tokens(ids) + self.places(at)
        causal = at[:, None] >= at[None, :]
        causal_seen = self._look(plain, causal.expand(ids.shape[0], -1, -1))
        prefix_seen = self._look(plain + self._value_inputs(batch), prefix_mask(batch["block_id"]))
        values = self.values(prefix_seen)
        return Outputs(
            board=self.board(causal_seen),
            move=self.move(prefix_seen),
            thinking=self.thinking(prefix_seen),
            wl=torch.tanh(values[..., 0]),
            d=torch.sigmoid(values[..., 1]),
        )

    def _value_inputs(self, batch: Batch) -> torch.Tensor:
        """The embedded values at their own tokens; 0 elsewhere, because the model predicts the targets there."""
        wl = batch["wl_targets"] * batch["wl_positions"]
        d = batch["d_targets"] * batch["d_positions"]
        known = (batch["wl_positions"] | batch["d_positions"])[..., None]
        inputs: torch.Tensor = self.value_in(torch.stack([wl, d], dim=-1)) * known
        return inputs

    def _look(self, hidden: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        heads = self.layers[0].self_attn.num_heads
        mask = ~seen.repeat_interleave(heads, dim=0)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask)
        out: torch.Tensor = self.norm(hidden)
        return out


def prefix_mask(block_id: torch.Tensor) -> torch.Tensor:
    """The attention mask, int64 [B, S] → bool [B, S, S].

    Each position attends to itself, to all earlier positions, and to its whole board.

    block_id  0 0 5 1 1      sees   1 1 . . .
                                    1 1 . . .
                                    1 1 1 . .
                                    1 1 1 1 1
                                    1 1 1 1 1
    """
    at = torch.arange(block_id.shape[1], device=block_id.device)
    return (at[:, None] >= at[None, :]) | (block_id[:, :, None] == block_id[:, None, :])


def losses(outputs: Outputs, batch: Batch) -> dict[str, torch.Tensor]:
    """The mean of each head's loss over the positions with its target; 0 if there are none."""
    thinking = batch.get("thinking_move_mask", torch.zeros_like(batch["move_mask"]))
    # A board before the first move is input, not predicted.
    after = (batch["move_mask"] | thinking).long().cumsum(dim=1) > 0
    at_wl = (batch["wl_positions"] & batch["wdl_valid"])[:, 1:]
    at_d = (batch["d_positions"] & batch["wdl_valid"])[:, 1:]
    return {
        "board": _cross_entropy(outputs.board, batch["board_target_ids"], after),
        "move": _cross_entropy(outputs.move, batch["move_target_ids"], batch["move_mask"]),
        "thinking": _cross_entropy(outputs.thinking, batch["move_target_ids"], thinking),
        "wl": _squared_error(outputs.wl[:, :-1], batch["wl_targets"][:, 1:], at_wl),
        "d": _squared_error(outputs.d[:, :-1], batch["d_targets"][:, 1:], at_d),
    }


def _cross_entropy(scores: torch.Tensor, targets: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    targets = torch.where(valid, targets, IGNORE)
    total = functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return total / (targets != IGNORE).sum().clamp(min=1)


def _squared_error(predictions: torch.Tensor, targets: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    return ((predictions - targets).square() * valid).sum() / valid.sum().clamp(min=1)


def train(
    model: ChessTransformer, batches: Iterable[Batch], *, steps: int, learning_rate: float = 3e-3
) -> list[dict[str, float]]:
    """Runs up to `steps` optimizer steps. Returns the losses of each step by name, and `total`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    history = []
    for _, batch in zip(range(steps), batches, strict=False):
        parts = losses(model(batch), batch)
        parts["total"] = torch.stack(list(parts.values())).sum()
        optimizer.zero_grad()
        parts["total"].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append({name: float(value.detach()) for name, value in parts.items()})
    return history


def batches(games: Path | None, thinking: Path | None, options: argparse.Namespace) -> Iterator[Batch]:
    """Batches of games, of thinking rows, or of both, epoch after epoch. Raises ChessError if an epoch has none."""
    if thinking is None and games is not None:
        dataset: ChessIterableDataset | FinetuneIterableDataset = ChessIterableDataset(
            games, options.max_seq_len, seed=options.seed
        )
    else:
        dataset = FinetuneIterableDataset(
            games, thinking, options.max_seq_len, options.variation_ratio, seed=options.seed
        )
    for epoch in itertools.count():
        dataset.set_epoch(epoch)
        batch = None
        for batch in DataLoader(dataset, batch_size=options.batch_size):
            yield batch
        if batch is None:
            raise ChessError("an epoch gives no sample", remedy="look at the games: spanloom chess validate")


def main(arguments: list[str] | None = None) -> int:
    """Trains and prints the losses of some steps. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Train a small transformer on prepared games: the losses fall.")
    parser.add_argument("--games", type=Path, help="prepared games or Parquet files")
    parser.add_argument("--thinking", type=Path, help="the same, of thinking rows")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-seq-len", type=int, default=256, help="tokens of a sample")
    parser.add_argument("--variation-ratio", type=float, default=defaults.VARIATION_RATIO, help="of thinking samples")
    parser.add_argument("--seed", type=int, default=0, help="of the model and of the samples")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    try:
        model = ChessTransformer(options.max_seq_len)
        history = train(model, batches(options.games, options.thinking, options), steps=options.steps)
    except SpanloomError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("step  " + "".join(f"{name:>10}" for name in (*LOSSES, "total")))
    for number, line in enumerate(history):
        if number % max(1, len(history) // 20) == 0 or number == len(history) - 1:
            print(f"{number:4d}  " + "".join(f"{line[name]:10.4f}" for name in (*LOSSES, "total")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
