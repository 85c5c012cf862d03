"""`python -m tools.bench.signals ROOT MODEL SIGNALS [OTHER …]`: signals against a plain forward pass and each other.

In: a dataset, the teacher's folder, signals of it by any source. Out: JSON. Files are read by numpy, and transformers
runs the model in float32, one document at a time; nothing of spanloom is imported. `ids`: how many ranks have the same
id, of those whose neighbours are farther away than `APART`; the others may change places by rounding.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

APART = 1e-3
LOWEST = -32.0

Arrays = dict[str, np.ndarray]


def sequences(prefix: Path) -> list[np.ndarray]:
    """The sequences of a Megatron IndexedDataset."""
    raw = prefix.with_name(prefix.name + ".idx").read_bytes()
    dtype = {1: np.uint8, 4: np.int32, 8: np.uint16}[raw[17]]
    lengths = np.frombuffer(raw, "<i4", int.from_bytes(raw[18:26], "little"), 34)
    flat = np.fromfile(prefix.with_name(prefix.name + ".bin"), dtype)
    return np.split(flat, np.cumsum(lengths)[:-1])


def documents(root: Path, every: int) -> Iterator[tuple[str, int, Arrays]]:
    """Split with shard, number and arrays of one document in `every`, those without labels left out."""
    for index in sorted(root.glob("*/shard_*_tokens.idx")):
        shard = f"{index.parent.name}/{index.name[:8]}"
        of = {name: sequences(root / f"{shard}_{name}") for name in ("tokens", "lossmask")}
        for number in range(0, len(of["tokens"]), every):
            if of["lossmask"][number].any():
                yield shard, number, {name: each[number] for name, each in of.items()}


class Signals:
    def __init__(self, folder: Path) -> None:
        self._folder, self._shards = folder, dict[str, dict[str, list[np.ndarray]]]()
        self.k: int = json.loads((folder / "teacher.json").read_text())["content"]["k"]

    def of(self, shard: str, number: int) -> Arrays:
        """ids int64 [L, k], logp float64 [L, k], own and rest float64 [L]."""
        if shard not in self._shards:
            folder, begin = (self._folder / shard).parent, Path(shard).name
            names = [path.stem.removeprefix(f"{begin}_") for path in folder.glob(f"{begin}_*.idx")]
            self._shards[shard] = {name: sequences(folder / f"{begin}_{name}") for name in names}
        stored = {name: each[number] for name, each in self._shards[shard].items()}
        high = stored.get("topk_high", np.zeros(1, np.uint8)).astype(np.int64)
        logs = {name: LOWEST * (stored[name] / 65535.0) ** 2 for name in ("topk_logp", "own", "rest")}
        return {
            "ids": (stored["topk_low"] + 65536 * high).reshape(-1, self.k),
            "logp": logs["topk_logp"].reshape(-1, self.k),
            "own": logs["own"],
            "rest": logs["rest"],
        }


def forward(model: Any, tokens: np.ndarray, lossmask: np.ndarray, k: int) -> Arrays:
    """What the signals of a document must be, and k + 1 ranks: ids [L, k + 1], logp [L, k + 1], own [L], rest [L]."""
    places = np.flatnonzero(lossmask)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0, places]
    logs = logits.double().log_softmax(-1).numpy()
    ids = np.argsort(-logs, axis=1, kind="stable")[:, : k + 1]
    top = np.take_along_axis(logs, ids, 1)
    rest = np.log(np.maximum(1 - np.exp(top[:, :k]).sum(1), 1e-14))
    return {"ids": ids, "logp": top, "own": logs[np.arange(places.size), tokens[places + 1]], "rest": rest}


def clear(logp: np.ndarray) -> np.ndarray:
    """Which ranks are farther than `APART` from both neighbours: bool [L, k] of log-probabilities [L, k + 1]."""
    gaps = -np.diff(logp, axis=1) > APART
    return gaps & np.hstack([np.ones((len(logp), 1), np.bool_), gaps[:, :-1]])


class Difference:
    def __init__(self) -> None:
        self.farthest = {"logp": 0.0, "own": 0.0, "rest": 0.0}
        self.same = self.ranks = self.labels = 0

    def add(self, one: Arrays, other: Arrays, ranks: np.ndarray) -> None:
        """`ranks`: whose ids are compared, bool [L, k]."""
        k = ranks.shape[1]
        for name in ("logp", "own"):
            mine, its = (
                np.maximum(each[name][..., :k] if name == "logp" else each[name], LOWEST) for each in (one, other)
            )
            self.farthest[name] = max(self.farthest[name], float(np.abs(mine - its).max()))
        of_rest = float(
            np.abs(np.exp(one["rest"]) - np.exp(other["rest"])).max()
        )  # its logarithm has no precision near 0
        self.farthest["rest"] = max(self.farthest["rest"], of_rest)
        self.same += int((one["ids"][:, :k] == other["ids"][:, :k])[ranks].sum())
        self.ranks += int(ranks.sum())
        self.labels += len(ranks)

    def result(self) -> dict[str, Any]:
        apart = {name: round(value, 6) for name, value in self.farthest.items()}
        return {"labels": self.labels, "farthest": apart, "ids": self.same, "of": self.ranks}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.signals", description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("signals", type=Path, nargs="+")
    parser.add_argument("--every", type=int, default=1, help="the forward pass takes one document in so many")
    given = parser.parse_args()
    sources = [Signals(folder) for folder in given.signals]
    k = sources[0].k
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    by_forward = [Difference() for _ in sources]
    by_first = [Difference() for _ in sources[1:]]
    for shard, number, arrays in documents(given.root, 1):
        first, *others = [source.of(shard, number) for source in sources]
        ranks = np.hstack([clear(first["logp"]), np.zeros((len(first["own"]), 1), np.bool_)])
        for difference, other in zip(by_first, others, strict=True):
            difference.add(first, other, ranks)
        if number % given.every == 0:
            expected = forward(model, arrays["tokens"], arrays["lossmask"], k)
            for difference, each in zip(by_forward, (first, *others), strict=True):
                difference.add(expected, each, clear(expected["logp"]))
    names = [str(folder) for folder in given.signals]
    print(
        json.dumps(
            {
                "by a forward pass": {name: each.result() for name, each in zip(names, by_forward, strict=True)},
                "by the first": {name: each.result() for name, each in zip(names[1:], by_first, strict=True)},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
