"""A small dataset and a teacher with its tokenizer: a Llama of two layers; and its scores by code of its own.

In: a folder. Out: the root of a dataset, a model folder with weights that learned a little of it. `expected` shares
nothing with `spanloom.teacher`.
"""

import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import spanloom
from spanloom.megatron.independent import IndependentDataset
from support.chat_models import write_model
from support.made_once import made_once
from support.model_datasets import record, stored, without_reasoning, write_conversations
from tokenizers import Tokenizer

STEPS = 120


def write_teacher(
    folder: Path,
    *,
    seed: int = 0,
    context: int = 4_096,
    vocabulary: int | None = None,
    learned: Sequence[tuple[np.ndarray, np.ndarray]] = (),
) -> Path:
    """Adds weights to a model folder. `vocabulary`: rows of the output layer, by default the tokenizer's; `learned`:
    documents on which it is trained for some steps."""
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary or size,
        hidden_size=64,  # heads of 32, which vLLM needs
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=context,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(STEPS if learned else 0):
        tokens, _ = learned[step % len(learned)]
        row = torch.from_numpy(tokens[:context].astype(np.int64))[None]
        optimizer.zero_grad()
        model(row, labels=row).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return folder


def write_scored_dataset(folder: Path, *, conversations: int = 40, **options: Any) -> tuple[Path, Path]:
    """A dataset of drawn conversations, and the model it is for: `(root, model folder)`; a copy of one made once."""
    named = "-".join(["scored", str(conversations), *(f"{name}={options[name]}" for name in sorted(options))])
    made = made_once(named, lambda place: _write_scored_dataset(place, conversations, options))
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder / "root", folder / "model"


def _write_scored_dataset(folder: Path, conversations: int, options: dict[str, Any]) -> None:
    model = write_model(folder / "model")
    rows = [[stored(without_reasoning(record(seed))) for seed in range(conversations)]]
    source = write_conversations(folder / "source", rows)
    spanloom.build(source, folder / "root", model=model, max_rejects="100%", allow_unknown_sha=True, **options)
    write_teacher(model, learned=documents(folder / "root"))


@lru_cache(maxsize=4)
def _loaded(model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()


def documents(root: Path, split: str = "train", shard: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tokens and loss mask of each document, label-aligned as on disk."""
    arrays = [IndependentDataset(root / split / f"shard_{shard:02d}_{name}") for name in ("tokens", "lossmask")]
    return [(arrays[0].get(number), arrays[1].get(number)) for number in range(len(arrays[0]))]


def expected(model: Path, tokens: np.ndarray, lossmask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of all tokens at each trained position, float64 [P, V], and the labels, [P]: one document alone
    through the whole model, in float32."""
    loaded = _loaded(model)
    with torch.no_grad():
        logits = loaded(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0].double().numpy()
    shifted = logits - logits.max(-1, keepdims=True)
    logprobs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    places = [place for place in range(tokens.size - 1) if lossmask[place]]
    return logprobs[places], np.array([tokens[place + 1] for place in places])
