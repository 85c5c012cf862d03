"""`python -m tools.bench.plans`: what planning costs, what it leaves empty beside TRL's packing, and reading a plan.

planning  best fit and sequential over very many lengths: from lengths in a file to the files of a plan, and the check
          that follows; processor time of one thread, memory at its peak, at three sizes
waste     padding on the same lengths: each document alone, plans, TRL's best fit in one batch and in batches as it does
opening   a plan of very many documents: seconds until the first sample, and with every index hashed again
samples   samples a second of packed samples and of Megatron's own `GPTDataset`, which cuts documents end to end
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
import numpy.typing as npt

LENGTH = 4096
LIMITS = {"seconds": 60.0, "MiB": 1024.0, "opening": 0.2}
"""For 80 M lengths, and for each 10 M documents of a plan that is opened."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.plans", description=__doc__)
    parser.add_argument("--lengths", type=int, default=80_000_000, help="of the largest plan")
    parser.add_argument("--documents", type=int, default=10_000_000, help="of the plan that is opened")
    parser.add_argument("--quick", action="store_true", help="try it out; numbers mean little")
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)  # this process plans, alone
    parser.add_argument("--strategy", default="best-fit", help=argparse.SUPPRESS)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)  # this process opens a plan, alone
    given, _ = parser.parse_known_args()
    if given.plan:
        print(json.dumps(plan_lengths(given.plan, given.strategy)))
        return
    if given.open:
        print(json.dumps(open_once(given.open)))
        return
    most, documents, waste_of, runs = (
        (400_000, 100_000, 5_000, 2) if given.quick else (given.lengths, given.documents, 100_000, 15)
    )
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:
        work = Path(temporary)
        for strategy in ("best-fit", "sequential"):
            for lengths in (most // 4, most // 2, most):
                say_planning(work, strategy, lengths, limit=not given.quick and lengths == most)
        say_waste(waste_of)
        say_opening(work, documents)
        say_samples(work, runs)


def lengths_like_conversations(count: int, seed: int = 0) -> npt.NDArray[np.int32]:
    """Lengths of conversations: log-normal, 660 tokens in the mean, one in 1,000 longer than 4,096."""
    drawn = np.random.default_rng(seed).lognormal(6.3, 0.6, count)
    return np.clip(drawn, 20, 30_000).astype(np.int32)


# --- Planning --------------------------------------------------------------------------------------------------------


def say_planning(work: Path, strategy: str, lengths: int, *, limit: bool) -> None:
    folder = work / f"{strategy}_{lengths}"
    folder.mkdir()
    with (folder / "lengths.bin").open("wb") as stream:
        for first in range(0, lengths, 1 << 20):
            stream.write(lengths_like_conversations(min(1 << 20, lengths - first), seed=first).tobytes())
    found = _alone("--plan", str(folder), "--strategy", strategy)
    said = f"planning {lengths:,} lengths, {strategy}: {found['seconds']:.1f} s, peak {found['peak']:.0f} MiB"
    if limit:
        fits = found["seconds"] < LIMITS["seconds"] and found["peak"] < LIMITS["MiB"]
        said += f" ({'ok' if fits else 'above 60 s or 1 GiB'})"
    print(
        f"{said}, check {found['check']:.1f} s, {found['samples']:,} samples, padding {found['padding']:.3%}, "
        f"files {found['bytes'] / lengths:.2f} bytes a document"
    )
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()


def plan_lengths(folder: Path, strategy: Any) -> dict[str, float]:
    """The files of a plan of the lengths in `folder`, in this process alone. Longer documents are left out: windows
    need the loss mask of a document, not its length alone."""
    from spanloom.dataset.plan.check import check_units_and_samples
    from spanloom.dataset.plan.format import PlanOptions, ShardPlan, plan_file
    from spanloom.dataset.plan.writer import document_sizes, write_groups
    from tools.bench.training import _peak

    options = PlanOptions(
        sequence_length=LENGTH, strategy=strategy, seed=0, long="drop", question_tokens=LENGTH // 2, multiple_of=1
    )
    path = folder / "lengths.bin"
    count = path.stat().st_size // 4
    chunk = 1 << 20
    began = time.process_time()
    chunks = (np.fromfile(path, np.int32, chunk, offset=4 * first) for first in range(0, count, chunk))
    sizes, _ = document_sizes(chunks, count, options)
    samples, units, files = write_groups(folder, "train", 0, sizes, options)
    seconds = time.process_time() - began
    positions = int(sizes.sum(dtype=np.int64))
    began = time.process_time()
    shard = ShardPlan(shard=0, documents=count, samples=samples, units=units, windows=0, files=files)
    check_units_and_samples(folder, "train", shard, sizes, LENGTH)
    assert plan_file(folder, "train", 0, "units").is_file()
    return {
        "seconds": seconds,
        "check": time.process_time() - began,
        "peak": _peak() / (1 << 20),
        "samples": samples,
        "padding": 1 - positions / (samples * LENGTH),
        "bytes": sum(file["bytes"] for file in files),
    }


# --- Waste -----------------------------------------------------------------------------------------------------------


def say_waste(count: int) -> None:
    from datasets import Dataset, disable_progress_bars
    from trl.data_utils import pack_dataset

    from spanloom.dataset.plan.bin_packing import best_fit, sequential

    disable_progress_bars()
    lengths = np.minimum(lengths_like_conversations(count), LENGTH)
    there = int(lengths.sum(dtype=np.int64))

    def say(name: str, samples: int, seconds: float) -> None:
        print(
            f"waste of {count:,} documents in {LENGTH:,}, {name}: {1 - there / (samples * LENGTH):.3%}, {seconds:.2f} s"
        )

    say("each alone", count, 0.0)
    for name, groups in (("sequential", sequential), ("best fit", lambda *given: best_fit(*given, seed=0))):
        began = time.process_time()
        samples = sum(counts.size for _, counts in groups(lengths.astype(np.uint16), LENGTH))
        say(f"plan, {name}", samples, time.process_time() - began)
    rows = Dataset.from_dict({"input_ids": np.split(np.zeros(there, dtype=np.int32), np.cumsum(lengths)[:-1])})
    for name, batch in (("in one batch", count), ("in batches of 1,000, its default", 1000)):
        began = time.process_time()
        packed = pack_dataset(rows, LENGTH, "bfd", map_kwargs={"batch_size": batch, "load_from_cache_file": False})
        say(f"TRL's bfd {name}", len(packed), time.process_time() - began)


# --- Reading ---------------------------------------------------------------------------------------------------------


def say_opening(work: Path, documents: int) -> None:
    from spanloom.dataset import manifest
    from spanloom.dataset.plan.format import PlanOptions
    from spanloom.dataset.plan.writer import make_plan
    from tools.bench.training import empty_shard

    root = empty_shard(work / "big", documents)
    options = PlanOptions(
        sequence_length=LENGTH, strategy="best-fit", seed=0, long="window", question_tokens=LENGTH // 2, multiple_of=1
    )
    began = time.process_time()
    make_plan(root, manifest.read(root).content, work / "plan", options)
    made = time.process_time() - began
    found = _alone("--open", str(work / "plan"))
    verdict = "ok" if found["open"] <= LIMITS["opening"] * max(1, documents / 1e7) else "above 0.2 s for each 10 M"
    print(
        f"plan of {documents:,} documents: made in {made:.1f} s with every index hashed and the plan checked; opened, "
        f"and the first sample read, in {found['open']:.3f} s ({verdict}), with all hashed again in "
        f"{found['verify']:.1f} s"
    )


def open_once(folder: Path) -> dict[str, float]:
    """Seconds to open a plan and read a sample, in this process, after its imports."""
    from spanloom.training.packed import PackedDataset

    began = time.process_time()
    PackedDataset(folder)[0]
    opened = time.process_time() - began
    began = time.process_time()
    PackedDataset(folder, verify=True)[0]
    return {"open": opened, "verify": time.process_time() - began}


def say_samples(work: Path, runs: int) -> None:
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset

    from spanloom.dataset import manifest
    from spanloom.dataset.plan.format import PlanOptions
    from spanloom.dataset.plan.writer import make_plan
    from spanloom.training.packed_megatron import packed_datasets
    from support.megatron_options import packing_config
    from support.token_datasets import random_shards, write_dataset
    from tools.bench.training import _open

    torch.set_num_threads(1)
    lengths = np.random.default_rng(0).integers(200, 1000, 6000).tolist()
    root = write_dataset(work / "samples", {"train": random_shards(0, [lengths])})
    for length in (1024, LENGTH):
        options = PlanOptions(
            sequence_length=length,
            strategy="best-fit",
            seed=0,
            long="window",
            question_tokens=length // 2,
            multiple_of=1,
        )
        plan = make_plan(root, manifest.read(root).content, work / f"plan_{length}", options)
        packed = packed_datasets(plan.folder, packing_config(work, length), [None] * 3)[0]
        stock = _open(GPTDataset, root, work, length)
        indices = range(min(500, len(packed), len(stock)))
        best = [1.0, 1.0]
        for _ in range(runs):
            for place, dataset in enumerate((packed, stock)):
                began = time.process_time()
                for index in indices:
                    dataset[index]
                best[place] = min(best[place], (time.process_time() - began) / len(indices))
        print(
            f"packed samples of {length}: {1 / best[0]:,.0f}/s, stock {1 / best[1]:,.0f}/s, "
            f"time ratio {best[0] / best[1]:.2f}"
        )


def _alone(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tools.bench.plans", *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
