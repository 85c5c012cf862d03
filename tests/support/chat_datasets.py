"""Small packed chat for tests: a tokenizer that is a `tokenizers` file, transcripts, a dataset."""

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spanloom.building.make import BuildResult
from spanloom.families.chat.blocks.markers import CONTROL_STRINGS
from spanloom.families.chat.build import PackOptions, build_chat
from spanloom.families.chat.recipe import PackingRules
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = (
    "Why is the sky blue?",
    "Rayleigh scattering: ☃ blue light, 波長が短い.",
    "Grüße! And then?\nA new line.",
    "42",
)


@cache
def _tokenizer() -> str:
    """Byte-level BPE of a few hundred merges over our own texts, the control strings as special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(CONTROL_STRINGS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    return str(tokenizer.to_str())


def write_tokenizer(path: Path) -> Path:
    path.write_text(_tokenizer())
    return path


def transcript(pairs: int = 1, *, system: str | None = "Be brief.", seed: int = 0, long: int = 0) -> str:
    """One conversation; `long` more words in the first question."""
    draw = random.Random(seed)
    parts = [f"<|SYSTEM|>{system}<|END|>"] if system else []
    for pair in range(pairs):
        question = draw.choice(TEXTS) + " word" * (long if pair == 0 else 0)
        parts.append(f"<|USER|>{question}<|END|><|ASSISTANT|>{draw.choice(TEXTS)}<|END|>")
    return "".join(parts)


def transcripts(count: int) -> list[str]:
    """Ordinary conversations, some with a question much longer than a small block."""
    return [
        transcript(
            1 + number % 4, system="Be brief." if number % 3 else None, seed=number, long=90 * (number % 11 == 5)
        )
        for number in range(count)
    ]


def write_transcripts(path: Path, texts: Sequence[str | None]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def packed(
    folder: Path, texts: Sequence[str | None] | None = None, *, name: str = "dataset", **options: Any
) -> BuildResult:
    """Transcripts packed under `folder`; `options` are those of PackingRules and PackOptions."""
    rules = {"block_size": 64, "post_training": True, "shards": 2}
    source = options.pop("transcripts", folder / "transcripts.jsonl")
    rules |= {key: options.pop(key) for key in list(options) if key in PackingRules.__dataclass_fields__}
    tokenizer = folder / "tokenizer.json"
    if not source.exists():
        write_transcripts(source, transcripts(60) if texts is None else texts)
    if not tokenizer.exists():
        write_tokenizer(tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_GIT_SHA", "0" * 40)
        settings = {"workers": 1, "deep": 8, **options}
        return build_chat(
            PackOptions(
                transcripts=source, root=folder / name, tokenizer=tokenizer, rules=PackingRules(**rules), **settings
            )
        )
