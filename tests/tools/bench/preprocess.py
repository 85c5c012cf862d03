"""Megatron's own route: what its tools/preprocess_data.py does, in its shape, for one process.

In: JSON lines with conversations already rendered to text, which is not timed. Out: one `.bin` and `.idx` of tokens.
`python -m tools.bench.preprocess TEXT OUT --tokenizer FILE --kind tiktoken|hf` prints its tokens as JSON.

The wheel does not carry the tool, so this is written after it: read a line, parse, tokenize, append EOD,
`add_document`. What it lacks beside `spanloom build`: loss mask and spans, splits, checks, manifest, validation, row
tables. And specials are read out of the text: content that spells `<|end|>` becomes a token, the injection that
openai-harmony rules out.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

from tools.bench.pieces import PATTERN, SPECIALS, read_ranks

VOCABULARY = 201088
EOD = SPECIALS["<|endoftext|>"]
Tokenize = Callable[[str], list[int]]


def encode_lines(path: Path, tokenize: Tokenize) -> Iterator[tuple[list[int], list[int]]]:
    """Ids of each document, and the lengths of its sentences: one, the whole."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            ids = tokenize(json.loads(line)["text"])
            ids.append(EOD)
            yield ids, [len(ids)]


def preprocess(text: Path, out: Path, tokenize: Tokenize) -> int:
    """Writes `out`/text_document.{bin,idx}. Returns the tokens written."""
    out.mkdir(parents=True)
    prefix = out / "text_document"
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=DType.optimal_dtype(VOCABULARY))
    written = 0
    for ids, lengths in encode_lines(text, tokenize):
        builder.add_document(ids, lengths)
        written += len(ids)
    builder.finalize(f"{prefix}.idx")
    return written


def load_tokenize(kind: str, asset: Path, tokenizer_json: Path) -> Tokenize:
    if kind == "tiktoken":
        import tiktoken

        encoding = tiktoken.Encoding(
            "o200k_harmony", pat_str=PATTERN, mergeable_ranks=read_ranks(asset), special_tokens=SPECIALS
        )
        return lambda text: encoding.encode(text, allowed_special="all")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def read_tokens(out: Path) -> np.ndarray:
    return np.fromfile(out / "text_document.bin", dtype=np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--tokenizer-json", type=Path, required=True)
    parser.add_argument("--kind", choices=("tiktoken", "hf"), required=True)
    given = parser.parse_args()
    tokenize = load_tokenize(given.kind, given.tokenizer, given.tokenizer_json)
    print(json.dumps({"tokens": preprocess(given.text, given.out, tokenize)}))


if __name__ == "__main__":
    main()
