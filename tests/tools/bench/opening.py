"""`python -m tools.bench.opening`: opening a dataset of many shards, against Megatron's own class over the same files.

Each of the classes opens a blend of all shards of a split, as `BlendedMegatronDatasetBuilder` does, in a process of its
own, without a sample index that was cached before. `StreamDataset` opens the split. Printed are seconds of processor
time, and the ratio to the stock class of the same run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("GPTDataset", "SpanGPTDataset", "SpanWireGPTDataset", "StreamDataset")
SHARDS = (50, 100, 200, 1000)
DOCUMENTS, LENGTH, SEQUENCE_LENGTH = 30, 40, 64
FACTOR, SECONDS = 3.0, 1.0
"""Opening may take so many times as long as the stock class, and so many seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.opening", description=__doc__)
    parser.add_argument("--shards", type=int, nargs="+", default=SHARDS)
    parser.add_argument("--quick", action="store_true", help="few shards")
    parser.add_argument("--open", choices=KINDS, help=argparse.SUPPRESS)  # this process opens, alone
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.open:
        print(json.dumps(opened(given.open, given.root)))
        return
    for shards in (20, 50) if given.quick else given.shards:
        measure(shards)


def measure(shards: int) -> None:
    """Prints a line for each class."""
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:
        root = small_shards(Path(temporary) / "root", shards)
        stock = 0.0
        for kind in KINDS:
            command = [sys.executable, "-m", "tools.bench.opening", "--open", kind, "--root", str(root)]
            seconds = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            stock = stock or seconds["open"]
            limit = FACTOR * stock + SECONDS
            print(
                f"opening {shards:,} shards: {kind} {seconds['open']:.2f} s, {seconds['open'] / stock:.1f} × stock "
                f"({'ok' if seconds['open'] <= limit else f'above {limit:.1f} s'}), again {seconds['again']:.2f} s",
                flush=True,
            )


def small_shards(root: Path, shards: int) -> Path:
    """A dataset of so many shards of few documents: only their number matters."""
    from support.token_datasets import random_shards, write_dataset

    random = np.random.default_rng(0)
    lengths = random.integers(LENGTH // 2, 2 * LENGTH, (shards, DOCUMENTS)).tolist()
    return write_dataset(root, {"train": random_shards(0, lengths)})


def opened(kind: str, root: Path) -> dict[str, float]:
    """Seconds to open the split, and to open it again in this process."""
    run = _stream if kind == "StreamDataset" else _blend
    return {name: run(kind, root, name) for name in ("open", "again")}


def _stream(_kind: str, root: Path, _cache: str) -> float:
    from spanloom.training.pytorch import StreamDataset

    began = time.process_time()
    StreamDataset(root, sequence_length=SEQUENCE_LENGTH)
    return time.process_time() - began


def _blend(kind: str, root: Path, cache: str) -> float:
    import torch.distributed as dist
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset

    from spanloom.training import megatron_dataset
    from support.megatron_options import config

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    kinds: dict[str, Any] = {"GPTDataset": GPTDataset}
    class_ = kinds.get(kind) or getattr(megatron_dataset, kind)
    prefixes = [str(path.with_suffix("")) for path in sorted((root / "train").glob("shard_*_tokens.bin"))]
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as work:
        options = config(Path(work) / cache, SEQUENCE_LENGTH, blend_per_split=[(prefixes, None), None, None])
        began = time.process_time()
        BlendedMegatronDatasetBuilder(class_, [None, None, None], lambda: True, options).build()
        return time.process_time() - began


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
