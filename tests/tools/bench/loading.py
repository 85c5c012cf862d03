"""`python -m tools.bench.loading`: documents a second of `DocumentDataset`, against slices of three memory maps.

10,000 random documents, 128 a call, as torch's loader asks for those of a batch; CPU time of this process, the best of
five turns each, which alternate.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from spanloom.training.pytorch import DocumentDataset
from support.token_datasets import random_shards, write_dataset

DOCUMENTS, CALLED, TURNS = 10_000, 128, 5
ARRAYS = {"tokens": np.int32, "lossmask": np.uint8, "span": np.uint8}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.loading", description=__doc__)
    parser.add_argument("--length", type=int, default=1_150, help="tokens of a document, on average")
    given = parser.parse_args()
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, 2 * given.length, 9_000).tolist()
    with tempfile.TemporaryDirectory() as folder:
        root = write_dataset(Path(folder) / "root", {"train": random_shards(0, [lengths])})
        dataset = DocumentDataset(root)
        maps = [np.memmap(root / f"train/shard_00_{name}.bin", dtype=dtype, mode="r") for name, dtype in ARRAYS.items()]
        ends = np.cumsum(lengths)
        chosen = draw.integers(0, len(lengths), DOCUMENTS).tolist()
        calls = [chosen[at : at + CALLED] for at in range(0, DOCUMENTS, CALLED)]

        def slices() -> None:
            for call in calls:
                for index in call:
                    end = int(ends[index])
                    _ = [array[end - lengths[index] : end] for array in maps]

        def documents() -> None:
            for call in calls:
                dataset.__getitems__(call)

        ways = {"slices of three memory maps": slices, "DocumentDataset": documents}
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(TURNS):
            for name, way in ways.items():
                best[name] = min(best[name], _seconds(way))
    base = best["slices of three memory maps"]
    for name, seconds in best.items():
        print(f"{name}: {DOCUMENTS / seconds:,.0f} documents/s, {base / seconds:.2f} × slices")


def _seconds(way: Callable[[], None]) -> float:
    began = time.process_time()
    way()
    return time.process_time() - began


if __name__ == "__main__":
    main()
