"""The plain route: what one would write first, from openai-harmony's Python wrapper and Megatron's builder.

In: a `synth_harmony_v1` folder. Out: the same `.bin` and `.idx` files as `spanloom build`, without checks, manifest or
row tables. `python -m tools.bench.plain SOURCE OUT --tokenizer FILE --valid-fraction F` prints its tokens as JSON.
"""

import argparse
import json
from collections.abc import Iterator
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from openai_harmony import Conversation, HarmonyEncoding

from spanloom.families.harmony.tokenizer import load_encoding

EOD, END, RETURN = 199999, 200007, 200002
ARRAYS = {"tokens": np.int32, "lossmask": np.uint8, "span": np.uint8}


def build_plain(source: Path, out: Path, encoding: HarmonyEncoding, valid_fraction: float) -> int:
    """Writes `out`/{train,valid}/shard_NN_{tokens,lossmask,span}.{bin,idx}. Returns the tokens written."""
    threshold = int(Decimal(str(valid_fraction)) * 2**64)
    written = 0
    for shard, path in enumerate(sorted(source.glob("*.parquet"))):
        builders: dict[str, dict[str, Any]] = {}
        for synth_id, messages_json in _read(path):
            digest = int.from_bytes(blake2b(synth_id.encode(), digest_size=8).digest(), "big")
            split = "valid" if digest < threshold else "train"
            if split not in builders:
                builders[split] = _open(out / split, shard)
            arrays = render(messages_json, encoding)
            for name, builder in builders[split].items():
                builder.add_item(torch.tensor(arrays[name]))
                builder.end_document()
            written += len(arrays["tokens"])
        for split, opened in builders.items():
            for name, builder in opened.items():
                builder.finalize(f"{_prefix(out / split, shard, name)}.idx")
    return written


def render(messages_json: str, encoding: HarmonyEncoding) -> dict[str, list[int]]:
    """One conversation, message by message, as the three lists that go to disk."""
    messages = Conversation.from_json(messages_json).messages
    tokens: list[int] = []
    lossmask: list[int] = []
    span: list[int] = []
    for index, message in enumerate(messages):
        rendered = encoding.render(message)
        trained = message.author.role.value == "assistant"
        if index == len(messages) - 1 and trained and message.channel == "final" and rendered[-1] == END:
            rendered[-1] = RETURN
        tokens += rendered
        lossmask += [int(trained)] * len(rendered)
        span += [{"analysis": 1, "final": 2}.get(message.channel or "", 0) if trained else 0] * len(rendered)
    tokens.append(EOD)
    return {"tokens": tokens, "lossmask": [*lossmask[1:], 0, 0], "span": [*span[1:], 0, 0]}


def _read(path: Path) -> Iterator[tuple[str, str]]:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=256, columns=["synth_id", "messages_json"]):
        yield from zip(*(batch.column(name).to_pylist() for name in ("synth_id", "messages_json")), strict=True)


def _open(folder: Path, shard: int) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    return {
        name: IndexedDatasetBuilder(f"{_prefix(folder, shard, name)}.bin", dtype=dtype)
        for name, dtype in ARRAYS.items()
    }


def _prefix(folder: Path, shard: int, name: str) -> Path:
    return folder / f"shard_{shard:02d}_{name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--valid-fraction", type=float, default=0.001)
    given = parser.parse_args()
    tokens = build_plain(given.source, given.out, load_encoding(given.tokenizer), given.valid_fraction)
    print(json.dumps({"tokens": tokens}))


if __name__ == "__main__":
    main()
