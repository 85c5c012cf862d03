"""Token datasets to be audited: rendered by transformers as TRL does, written into the containers that trainers read.

In: a model's folder, conversations or documents. Out: files of token datasets.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.megatron.indexed import index_blocks

Document = tuple[list[int], list[int]]
"""Tokens, and 1 where one is trained."""


@dataclass(frozen=True)
class Trainer:
    """transformers' tokenizer of a model's folder with a template of TRL."""

    tokenizer: Any

    def document(self, messages: Sequence[dict[str, Any]], tools: Any = None, **variables: Any) -> Document:
        """What TRL trains on with `assistant_only_loss`."""
        encoded = self.tokenizer.apply_chat_template(
            list(messages),
            tools=tools,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **variables,
        )
        return list(encoded["input_ids"]), list(encoded["assistant_masks"])


def trainer(folder: Path, template: str) -> Trainer:
    """The tokenizer in a folder under a training template."""
    from transformers import PreTrainedTokenizerFast

    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key in ("bos_token", "eos_token", "pad_token") and value
    }
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **named)
    tokenizer.chat_template = template
    return Trainer(tokenizer)


def training_template(name: str) -> str:
    """A template of the TRL that is installed, such as `qwen3_training`."""
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text("utf-8")


def write_masks(path: Path, documents: Sequence[Document], **columns: Any) -> Path:
    """Parquet with `input_ids` and `assistant_masks`. Returns it."""
    table = {"input_ids": [tokens for tokens, _ in documents], "assistant_masks": [mask for _, mask in documents]}
    pq.write_table(pa.table({**table, **columns}), path, row_group_size=64)
    return path


def labels_of(document: Document) -> list[int]:
    """-100 where a token is not trained."""
    return [token if trained else -100 for token, trained in zip(*document, strict=True)]


def write_saved(folder: Path, documents: Sequence[Document]) -> Path:
    """A folder of `save_to_disk` with `labels`, as Axolotl prepares it. Returns it."""
    from datasets import Dataset

    rows = {
        "input_ids": [tokens for tokens, _ in documents],
        "labels": [labels_of(document) for document in documents],
        "attention_mask": [[1] * len(tokens) for tokens, _ in documents],
    }
    Dataset.from_dict(rows).save_to_disk(str(folder))
    return folder


def write_packed(path: Path, documents: Sequence[Document], per_row: int = 3) -> Path:
    """Megatron-Bridge's packed Parquet: the mask is about the next token. Returns it."""
    rows = []
    for first in range(0, len(documents), per_row):
        own = documents[first : first + per_row]
        starts = np.cumsum([0, *(len(tokens) for tokens, _ in own[:-1])]).tolist()
        rows.append(
            {
                "input_ids": [token for tokens, _ in own for token in tokens],
                "loss_mask": [value for _, mask in own for value in [*mask[1:], 0]],
                "seq_start_id": starts,
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_indexed(prefix: Path, documents: Sequence[Document]) -> Path:
    """`.bin` and `.idx` of tokens, and of a mask about labels beside them. Returns the prefix of the tokens."""
    lengths = np.array([len(tokens) for tokens, _ in documents], np.int32)
    arrays = {
        "tokens": np.concatenate([np.array(tokens, np.int32) for tokens, _ in documents]),
        "lossmask": np.concatenate([np.array([*mask[1:], 0][: len(mask)], np.uint8) for _, mask in documents]),
    }
    for name, values in arrays.items():
        file = prefix.with_name(f"{prefix.name}_{name}")
        values.tofile(file.with_suffix(".bin"))
        file.with_suffix(".idx").write_bytes(
            b"".join(bytes(np.ascontiguousarray(block).data) for block in _blocks(lengths, values.dtype))
        )
    return prefix.with_name(f"{prefix.name}_tokens")


def _blocks(lengths: Any, dtype: Any) -> list[Any]:
    return [np.frombuffer(each, np.uint8) if isinstance(each, bytes) else each for each in index_blocks(lengths, dtype)]
