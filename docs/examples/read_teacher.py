"""Reads a teacher's signals with numpy alone: `python read_teacher.py ROOT SIGNALS SPLIT SHARD DOCUMENT`.

Prints a line for each label: its id, its log-probability, the log of the rest, and the most probable tokens.
"""

import json
import sys
from pathlib import Path

import numpy as np


def sequence(prefix: Path, number: int) -> np.ndarray:
    """One sequence of a Megatron IndexedDataset."""
    raw = prefix.with_name(prefix.name + ".idx").read_bytes()
    dtype = {1: np.uint8, 4: np.int32, 8: np.uint16}[raw[17]]
    count = int.from_bytes(raw[18:26], "little")
    length = np.frombuffer(raw, "<i4", count, 34)[number]
    begin = np.frombuffer(raw, "<i8", count, 34 + 4 * count)[number]
    return np.fromfile(prefix.with_name(prefix.name + ".bin"), dtype, length, offset=begin)


def main(root: Path, signals: Path, split: str, shard: int, number: int) -> None:
    k = json.loads((signals / "teacher.json").read_text())["content"]["k"]
    of = {name: sequence(root / split / f"shard_{shard:02d}_{name}", number) for name in ("tokens", "lossmask")}
    names = [path.name[9:-4] for path in (signals / split).glob(f"shard_{shard:02d}_*.bin")]
    said = {name: sequence(signals / split / f"shard_{shard:02d}_{name}", number) for name in names}
    ids = said["topk_low"].astype(np.int64) + 65536 * said.get("topk_high", np.zeros(1)).astype(np.int64)
    said.setdefault("own", np.nan * said["rest"])  # imported signals have none
    logprobs, own, rest = (-32 * (said[name] / 65535.0) ** 2 for name in ("topk_logp", "own", "rest"))
    for entry, place in enumerate(np.flatnonzero(of["lossmask"])):  # label-aligned: place predicts the token behind it
        top = zip(ids.reshape(-1, k)[entry].tolist(), logprobs.reshape(-1, k)[entry], strict=True)
        label = of["tokens"][place + 1]
        print(label, f"{own[entry]:.4f} {rest[entry]:.4f}", *(f"{token}:{logprob:.4f}" for token, logprob in top))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
