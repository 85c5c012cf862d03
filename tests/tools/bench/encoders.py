"""Content text → tokens, by every candidate that is installed, each in a process and on a core of its own.

In: a source. Out: seconds for one pass over text that the process has not seen, start-up apart; and whether the ids
were openai-harmony's, on the whole corpus and on all code points in the contexts of
tests/tokenizers/o200k/test_encoder.py.
`python -m tools.bench.encoders NAME SOURCE --tokenizer FILE --work DIR` measures one and prints JSON; with
`--points FILE` it encodes all code points instead and saves the ids.

Every candidate is called in the way that brings a batch of texts to flat numpy ids the fastest.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.bench.pieces import PATTERN, read_ranks, write_tokenizer_json
from tools.bench.processes import run
from tools.bench.speed import environment

Encoded = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""Tokens of the texts end to end, and how many each has."""
Encode = Callable[[Sequence[str]], Encoded]

RECORD, FLOOR, OURS = "openai-harmony", "tiktoken", "fastokens, as built in"
BATCH_ROWS = 256
CONTEXTS = ("{}", "wor{}d", "a {} b", "x{}'s")
CODE_POINTS = 0x110000 - 0x800
POINTS_AT_ONCE = 4096


@dataclass(frozen=True)
class Candidate:
    """`package` is what it needs; `load` makes its encode function from the asset and a folder to keep things in."""

    package: str
    load: Callable[[Path, Path], Encode]


def _tiktoken(asset: Path, work: Path) -> Encode:
    import tiktoken

    encoding = tiktoken.Encoding("o200k", pat_str=PATTERN, mergeable_ranks=read_ranks(asset), special_tokens={})
    return lambda texts: _flat([encoding.encode_to_numpy(text, disallowed_special=()) for text in texts])


def _harmony(asset: Path, work: Path) -> Encode:
    from spanloom.families.harmony.tokenizer import load_encoding

    encoding = load_encoding(asset)
    return lambda texts: _flat([encoding.encode(text, disallowed_special=()) for text in texts])


def _ours(asset: Path, work: Path) -> Encode:
    from spanloom.tokenizers.o200k.encoder import Encoder

    encoder = Encoder(asset)

    def encode(texts: Sequence[str]) -> Encoded:
        encoded = encoder.encode(texts)
        return encoded.tokens, encoded.lengths.astype(np.int64)

    return encode


def _gigatoken(asset: Path, work: Path) -> Encode:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_tiktoken(asset, pretokenizer="o200k", special_tokens={})

    def encode(texts: Sequence[str]) -> Encoded:
        layout = tokenizer.encode_batch(list(texts), parallel=False).layout
        offsets = np.asarray(layout.offsets.data)
        tokens = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
        return tokens.astype(np.int32), np.diff(offsets).astype(np.int64)

    return encode


def _splintr(asset: Path, work: Path) -> Encode:
    import splintr

    tokenizer = splintr.Tokenizer.from_bytes(asset.read_bytes(), splintr.O200K_BASE_PATTERN, {})
    return lambda texts: _from_bytes(*tokenizer.encode_batch_flat(list(texts)))


def _tokenizers(asset: Path, work: Path) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(work / "o200k_plain.json"))
    return lambda texts: _flat([one.ids for one in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)])


CANDIDATES = {
    RECORD: Candidate("openai-harmony", _harmony),
    FLOOR: Candidate("tiktoken", _tiktoken),
    OURS: Candidate("fastokens", _ours),
    "gigatoken": Candidate("gigatoken", _gigatoken),
    "splintr-rs": Candidate("splintr-rs", _splintr),
    "HF tokenizers": Candidate("tokenizers", _tokenizers),
}


def installed(say: Callable[[str], None]) -> dict[str, str]:
    """Version of each candidate that is there; of the others, how to get them."""
    found = {}
    for name, candidate in CANDIDATES.items():
        try:
            found[name] = version(candidate.package)
        except PackageNotFoundError:
            say(f"{name} is skipped: pip install -c constraints.txt {candidate.package}")
    return found


def measure(
    source: Path, work: Path, tokenizer: Path, repeats: range, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Every candidate that is installed over `source`, once a repeat, in turns."""
    versions = installed(say)
    if "HF tokenizers" in versions:
        write_tokenizer_json(tokenizer, work / "o200k_plain.json", specials=False)
    trials = []
    for repeat in repeats:
        for name, at in versions.items():
            timed = json.loads(_child(name, source, work, tokenizer))
            trials.append({"encoder": name, "version": at, "repeat": repeat, **timed})
            say(f"run {repeat + 1}, {name}: {timed['tokens']:,} tokens in {timed['seconds']:.2f} s")
    return trials


def measure_points(work: Path, tokenizer: Path, stride: int, say: Callable[[str], None]) -> dict[str, Any]:
    """On how many code points (every `stride`-th) each candidate differs from openai-harmony in any context."""
    versions = installed(say)
    if "HF tokenizers" in versions:
        write_tokenizer_json(tokenizer, work / "o200k_plain.json", specials=False)
    record, other = work / "points_record.npz", work / "points_other.npz"
    _child(RECORD, work, work, tokenizer, "--points", str(record), str(stride))
    different = {RECORD: 0}
    for name in versions:
        if name != RECORD:
            _child(name, work, work, tokenizer, "--points", str(other), str(stride))
            different[name] = different_points(record, other)
            say(f"{name}: {different[name]:,} of {len(range(0, CODE_POINTS, stride)):,} code points differ")
    for file in (record, other):
        file.unlink(missing_ok=True)
    return {"stride": stride, "contexts": list(CONTEXTS), "versions": versions, "different": different}


def summary(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a candidate: medians over repeats; the ratio to tiktoken is taken within a repeat."""
    floor = {trial["repeat"]: trial for trial in trials if trial["encoder"] == FLOOR}
    record = {trial["digest"] for trial in trials if trial["encoder"] == RECORD}
    lines = []
    for name in dict.fromkeys(trial["encoder"] for trial in trials):
        own = [trial for trial in trials if trial["encoder"] == name]
        ratios = [
            (trial["tokens"] / trial["seconds"])
            / (floor[trial["repeat"]]["tokens"] / floor[trial["repeat"]]["seconds"])
            for trial in own
            if trial["repeat"] in floor
        ]
        lines.append(
            {
                "encoder": name,
                "version": own[-1]["version"],
                "tokens": own[0]["tokens"],
                "rate": median(trial["tokens"] / trial["seconds"] for trial in own),
                "ratio": median(ratios) if ratios else None,
                "startup": median(trial["startup"] for trial in own),
                "equal": {trial["digest"] for trial in own} == record if record else None,
            }
        )
    return lines


def different_points(record: Path, other: Path) -> int:
    """How many code points give other ids than the record's in any of the contexts."""
    one, two = np.load(record), np.load(other)
    wrong = np.zeros(one["lengths_0"].size, dtype=np.bool_)
    for context in range(len(CONTEXTS)):
        sides = [
            padded(side[f"tokens_{context}"], side[f"lengths_{context}"].astype(np.int64), width=24)
            for side in (one, two)
        ]
        wrong |= (sides[0] != sides[1]).any(axis=1)
    return int(wrong.sum())


def padded(tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int32]:
    """Flat tokens as rows of `width`, filled up with -1.

    tokens [5 6 7]   lengths [1 2]   width 3   →   [[5 -1 -1] [6 7 -1]]
    """
    if lengths.size and int(lengths.max()) > width:
        raise ValueError(f"a text has {lengths.max()} tokens, more than {width}")
    rows = np.full((lengths.size, width), -1, dtype=np.int32)
    rows[np.arange(width) < lengths[:, None]] = tokens
    return rows


def _flat(arrays: Sequence[Any]) -> Encoded:
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    flat = [np.asarray(array, dtype=np.int32) for array in arrays]
    return np.concatenate([np.empty(0, dtype=np.int32), *flat]), lengths


def _from_bytes(ids: bytes, offsets: bytes) -> Encoded:
    """Ids as little-endian u32 and N + 1 offsets as u64, which two of the candidates return."""
    return np.frombuffer(ids, dtype="<u4").astype(np.int32), np.diff(np.frombuffer(offsets, dtype="<u8")).astype(
        np.int64
    )


def _child(name: str, source: Path, work: Path, tokenizer: Path, *more: str) -> str:
    command = [sys.executable, "-m", "tools.bench.encoders", name, str(source), "--work", str(work)]
    one_thread = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return run([*command, "--tokenizer", str(tokenizer), *more], {**environment(), **one_thread}).stdout


def _contents(source: Path) -> Iterator[list[str]]:
    """The texts of user and assistant messages, batch by batch; system and developer messages repeat."""
    import pyarrow.parquet as pq

    for path in sorted(source.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS, columns=["messages_json"]):
            messages = [m for row in batch.column(0).to_pylist() for m in json.loads(row)["messages"]]
            parts = [m["content"] for m in messages if m["role"] in ("user", "assistant")]
            yield [part if isinstance(part, str) else part[0]["text"] for part in parts]


def _time_contents(name: str, source: Path, asset: Path, work: Path) -> dict[str, Any]:
    batches = list(_contents(source))
    clock = time.perf_counter()
    encode = CANDIDATES[name].load(asset, work)
    encode(["a", "é", "字"])  # whatever is made at first use is start-up
    startup, seconds, tokens, digest = time.perf_counter() - clock, 0.0, 0, hashlib.sha256()
    for batch in batches:
        clock = time.perf_counter()
        flat, lengths = encode(batch)
        seconds += time.perf_counter() - clock
        tokens += flat.size
        digest.update(flat.tobytes() + lengths.tobytes())
    return {"startup": startup, "seconds": seconds, "tokens": tokens, "digest": digest.hexdigest()[:16]}


def _save_points(name: str, asset: Path, work: Path, out: Path, stride: int) -> None:
    encode = CANDIDATES[name].load(asset, work)
    points = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF][::stride]
    found = {}
    for context, frame in enumerate(CONTEXTS):
        texts = [frame.format(chr(point)) for point in points]
        chunks = [encode(texts[at : at + POINTS_AT_ONCE]) for at in range(0, len(texts), POINTS_AT_ONCE)]
        found[f"tokens_{context}"] = np.concatenate([tokens for tokens, _ in chunks])
        found[f"lengths_{context}"] = np.concatenate([lengths for _, lengths in chunks]).astype(np.uint8)
    np.savez(out, **found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=CANDIDATES)
    parser.add_argument("source", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--points", nargs=2, metavar=("FILE", "STRIDE"))
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        # One core, whatever threads a candidate likes to start.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if given.points:
        _save_points(given.name, given.tokenizer, given.work, Path(given.points[0]), int(given.points[1]))
    else:
        print(json.dumps(_time_contents(given.name, given.source, given.tokenizer, given.work)))


if __name__ == "__main__":
    main()
