"""Small models for tests: a folder with a real tokenizer of few tokens, a template, declared stop tokens.

In: a template. Out: a folder as `spanloom model` takes it. The tokenizer is byte-level BPE, with merges of its own for
line feeds and for some words, so that tokens can span boundaries.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

MARKERS = ("<|start|>", "<|end|>", "<|eof|>", "<|bos|>")
TEXT = "the answer is here, and there; assistant user system tool\n\n\n" * 20 + "\n\n" * 50

CHATML = (
    "{% if tools %}<|start|>tools\n{{ tools | tojson }}<|end|>\n{% endif %}"
    "{% for m in messages %}<|start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>"
    "{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
"""A template that does everything right."""


def small_tokenizer(markers: Sequence[str] = MARKERS, plain: Sequence[str] = ("<think>", "</think>")) -> Tokenizer:
    """Byte-level BPE. `markers`: special added tokens; `plain`: added tokens that are not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(["\n\n\n\n", *TEXT.split(" ")], trainer)
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])
    return tokenizer


def write_model(
    folder: Path,
    template: str = CHATML,
    *,
    stops: Sequence[str] = ("<|end|>",),
    config: Mapping[str, Any] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """A model's folder. `stops`: what `generation_config.json` declares; no such file where there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer or small_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = config or {"bos_token": "<|bos|>", "eos_token": "<|eof|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template)
    if stops:
        ids = [tokenizer.token_to_id(stop) for stop in stops]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return folder
