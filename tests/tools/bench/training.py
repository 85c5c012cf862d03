"""`python -m tools.bench.training`: what training reads and computes, against a stock run, in one process and run.

samples   samples a second of `SpanWireGPTDataset` (what `pretrain_gpt.py` takes), of `SpanGPTDataset` and of Megatron's
          own `GPTDataset`, over the same shard and index
loss      `span_loss_func` against a plain masked mean, forward and backward, at a batch of real size
index     opening a shard of very many documents and building its sample index: seconds, and memory at its peak

All on one thread, in seconds of processor time, the best of the runs: what else runs disturbs those least.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.megatron.indexed import index_blocks

RATIOS = {"SpanWireGPTDataset": 1.2, "SpanGPTDataset": 1.5}
"""How much longer a sample may take than the stock class's."""
DTYPES = {"tokens": np.int32, "lossmask": np.uint8, "span": np.uint8}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.training", description=__doc__)
    parser.add_argument("--documents", type=int, default=10_000_000, help="of the index build")
    parser.add_argument("--runs", type=int, default=15, help="repeats, of which the best counts")
    parser.add_argument("--quick", action="store_true", help="try it out; numbers mean little")
    parser.add_argument("--index", type=Path, help=argparse.SUPPRESS)  # this process builds the index, alone
    parser.add_argument("--stock", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.index:
        print(json.dumps(build_index(given.index, stock=given.stock)))
        return
    documents, runs = (200_000, 2) if given.quick else (given.documents, given.runs)
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:
        for sequence_length in (1024, 4096):
            *ours, stock = samples(Path(temporary), sequence_length, runs)
            for (name, limit), times in zip(RATIOS.items(), ours, strict=True):
                ratio = min(times) / min(stock)
                print(
                    f"samples of {sequence_length}: {name} {1 / min(times):,.0f}/s, stock {1 / min(stock):,.0f}/s, "
                    f"time ratio {ratio:.2f} ({'ok' if ratio <= limit else f'above {limit}'})"
                )
        mine, plain = loss(runs)
        print(f"loss over 8 × 4,096 tokens: ours {min(mine) * 1e3:.2f} ms, masked mean {min(plain) * 1e3:.2f} ms")
        root = empty_shard(Path(temporary) / "big", documents)
        for kind in ((), ("--stock",)):
            command = [sys.executable, "-m", "tools.bench.training", "--index", str(root), *kind]
            built = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(
                f"index of {documents:,} documents, {'stock' if kind else 'ours'}: open {built['open']:.1f} s, "
                f"build {built['build']:.1f} s, open again {built['again']:.1f} s, peak {built['peak'] >> 20:,} MiB "
                f"({built['idle'] >> 20:,} MiB of it imports)"
            )


def samples(work: Path, sequence_length: int, runs: int) -> list[list[float]]:
    """Seconds a sample of our classes and of the stock one, run by run, over conversations of about 600 tokens."""
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset

    from spanloom.training.megatron_dataset import SpanGPTDataset, SpanWireGPTDataset
    from support.token_datasets import random_shards, write_dataset

    root = work / "samples"
    if not root.is_dir():
        lengths = np.random.default_rng(0).integers(200, 1000, 6000).tolist()
        write_dataset(root, {"train": random_shards(0, [lengths])})
    kinds = (SpanWireGPTDataset, SpanGPTDataset, GPTDataset)
    datasets = [_open(kind, root, work, sequence_length) for kind in kinds]
    torch.set_num_threads(1)
    indices = range(min(500, len(datasets[0])))
    times: list[list[float]] = [[] for _ in datasets]
    for _ in range(runs):
        for dataset, seconds in zip(datasets, times, strict=True):
            began = time.process_time()
            for index in indices:
                dataset[index]
            seconds.append((time.process_time() - began) / len(indices))
    return times


def loss(runs: int) -> tuple[list[float], list[float]]:
    """Seconds of our loss and of a plain masked mean with its gradient."""
    import torch

    from spanloom.training.loss import SpanCounts, SpanWeights, span_loss_func

    shape = (8, 4096)
    losses, span = torch.rand(shape, requires_grad=True), torch.randint(0, 3, shape)
    mask = (span > 0).float()
    weights = SpanWeights({"analysis": 1.0, "final": 1.0})
    counts = SpanCounts.of(mask, span, len(weights))

    def ours() -> None:
        span_loss_func(mask, span, counts, weights, losses)[0].backward()

    def plain() -> None:
        ((losses * mask).sum() / mask.sum()).backward()

    return tuple([_seconds(each) for _ in range(runs)] for each in (ours, plain))  # type: ignore[return-value]


def empty_shard(root: Path, documents: int) -> Path:
    """A shard of so many documents whose `.bin` files are sparse: only lengths matter to an index."""
    from support.token_datasets import write_manifest

    lengths = np.random.default_rng(0).integers(100, 700, documents, dtype=np.int32)
    (root / "train").mkdir(parents=True)
    for name, dtype in DTYPES.items():
        prefix = root / f"train/shard_00_{name}"
        with prefix.with_suffix(".idx").open("wb") as stream:
            for block in index_blocks(lengths, dtype):
                stream.write(block if isinstance(block, bytes) else block.tobytes())
        with prefix.with_suffix(".bin").open("wb") as stream:
            stream.truncate(int(lengths.sum(dtype=np.int64)) * np.dtype(dtype).itemsize)
    write_manifest(root, shards=1, hashed=False)
    return root


def build_index(root: Path, *, stock: bool) -> dict[str, float]:
    """Seconds to open the shard, to build an index of one epoch at 4,096 tokens, and to open both again; peak bytes."""
    from megatron.core.datasets.gpt_dataset import GPTDataset

    from spanloom.training.megatron_dataset import SpanGPTDataset

    kind = GPTDataset if stock else SpanGPTDataset
    idle = _peak()
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as cache:
        options = _options(Path(cache), 4096)
        began = time.process_time()
        kind.build_low_level_dataset(str(root / "train/shard_00_tokens"), options)
        opened = time.process_time() - began
        whole = _seconds(lambda: _open(kind, root, Path(cache), 4096))
        again = _seconds(lambda: _open(kind, root, Path(cache), 4096))
    return {"open": opened, "build": whole - opened, "again": again, "idle": idle, "peak": _peak()}


def _options(cache: Path, sequence_length: int) -> Any:
    from support.megatron_options import config

    return config(cache / "index", sequence_length)


def _open(kind: Any, root: Path, cache: Path, sequence_length: int) -> Any:
    from support.megatron_options import open_dataset

    return open_dataset(root / "train/shard_00_tokens", _options(cache, sequence_length), kind=kind)


def _seconds(run: Callable[[], Any]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _peak() -> int:
    """Bytes resident at most. Not rusage's: that counts what the parent held when it forked."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
