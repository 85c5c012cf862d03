"""Plans and their samples by slow loops, from docs/format.md alone: nothing here is shared with what it checks.

In: a dataset's documents, read from the raw files (`token_datasets.read_raw`), and the raw files of a plan. Out:
windows, samples as lists, groups.
"""

import hashlib
import itertools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.token_datasets import Document, read_raw

Window = tuple[int, int, int, int, int]
MASK64 = (1 << 64) - 1


def windows_of(lossmask: Sequence[int], length: int, most: int) -> list[Window]:
    """The windows of a document longer than `length`: head, question_begin, question_end, begin, end."""
    size = len(lossmask)
    trained = [position for position in range(size) if lossmask[position]]
    if not trained:
        return [(0, 0, 0, 0, length)]
    windows: list[Window] = []
    had = 0  # every position before it lies in a window, or is not trained
    if trained[0] < length:
        windows.append((0, 0, 0, 0, max(p for p in trained if p < length) + 1))
        had = length
    while any(position >= had for position in trained):
        begin = min(position for position in trained if position >= had)
        # The answer that it begins in: back to its first trained position, whose token ends the question.
        answer = begin
        while answer > 0 and lossmask[answer - 1]:
            answer -= 1
        # The question: tokens before it that are not themselves trained. Token p is trained where position p - 1 is.
        question = [p for p in range(answer + 1) if p == 0 or not lossmask[p - 1]]
        first = [p for p in question if p <= trained[0]]
        own = [p for p in question if all(not lossmask[q] for q in range(p, answer))]
        own = [p for p in own if p not in (first if answer != trained[0] else [])]
        if begin == answer:
            own = [p for p in own if p != answer]  # the body begins with it
        if answer == trained[0]:
            kept = own if len(own) <= most else own[: most // 2] + own[len(own) - (most - most // 2) :]
        else:
            last = min(len(own), most - min(len(first), most // 2))
            kept = first[: most - last] + (own[len(own) - last :] if last else [])
        end = begin + length - len(kept)
        had = end
        last_trained = max(p for p in trained if p < end)
        head = 0
        while head < len(kept) and kept[head] == head:
            head += 1
        rest = kept[head:]
        windows.append((head, rest[0] if rest else 0, rest[-1] + 1 if rest else 0, begin, last_trained + 1))
    return windows


def normal(window: Sequence[int]) -> list[int]:
    """The positions that a window reads, one by one, and -1 before its body: equal windows have equal lists."""
    head, question_begin, question_end, begin, end = map(int, window)
    return [*range(head), *range(question_begin, question_end), -1, *range(begin, end)]


@dataclass(frozen=True)
class ShardPlan:
    """One shard of a plan, as lists."""

    documents: list[Document]
    groups: list[list[int]]
    windows: list[list[int]]


def read_shard(plan: Path, root: Path, split: str, shard: int) -> ShardPlan:
    def values(name: str, form: str) -> list[int]:
        path = plan / split / f"shard_{shard:02d}_{name}.bin"
        data = path.read_bytes() if path.is_file() else b""
        return list(struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data))

    units, bounds, flat = values("units", "i"), values("samples", "q"), values("windows", "i")
    groups = [units[begin:end] for begin, end in itertools.pairwise(bounds)]
    windows = [flat[at : at + 6] for at in range(0, len(flat), 6)]
    return ShardPlan(read_raw(root / split / f"shard_{shard:02d}_tokens"), groups, windows)


def read_split(plan: Path, root: Path, split: str) -> list[ShardPlan]:
    shards = json.loads((plan / "plan.json").read_text())["content"]["splits"][split]["shards"]
    return [read_shard(plan, root, split, entry["shard"]) for entry in shards]


def pieces(shard: ShardPlan, unit: int) -> tuple[Document, list[tuple[int, bool]]]:
    """The document of a unit, and its positions with whether they are trained as the disk says."""
    if unit < len(shard.documents):
        document = shard.documents[unit]
        return document, [(position, True) for position in range(document.tokens.size)]
    number, head, question_begin, question_end, begin, end = shard.windows[unit - len(shard.documents)]
    read_again = [*range(head), *range(question_begin, question_end)]
    return shard.documents[number], [(p, False) for p in read_again] + [(p, True) for p in range(begin, end)]


def sample_of(shard: ShardPlan, group: Sequence[int], length: int, multiple_of: int) -> dict[str, list[int]]:
    """A sample by the table of docs/format.md."""
    made: dict[str, list[int]] = {
        name: [] for name in ("tokens", "labels", "loss_mask", "span_id", "position_ids", "cu_seqlens")
    }

    def add(token: int, label: int, mask: int, span: int, position: int) -> None:
        for name, value in zip(made, (token, label, mask, span, position), strict=False):
            made[name].append(value)

    for unit in group:
        made["cu_seqlens"].append(len(made["tokens"]))
        document, positions = pieces(shard, unit)
        last = document.tokens.size - 1
        count = 0
        for position, trained in positions:
            label = int(document.tokens[position + 1]) if position < last else 0
            learns = trained and position < last
            mask = int(document.lossmask[position]) if learns else 0
            span = int(document.span[position]) if learns else 0
            add(int(document.tokens[position]), label, mask, span, count)
            count += 1
        while count % multiple_of:
            add(0, 0, 0, 0, count)
            count += 1
    if len(made["tokens"]) < length:
        made["cu_seqlens"].append(len(made["tokens"]))
    count = 0
    while len(made["tokens"]) < length:
        add(0, 0, 0, 0, count)
        count += 1
    made["cu_seqlens"].append(length)
    assert len(made["tokens"]) == length, "a sample is too long"
    return made


def all_samples(plan: Path, root: Path, split: str) -> list[dict[str, list[int]]]:
    """Every sample of a split, in the order of its numbers."""
    options = json.loads((plan / "plan.json").read_text())["content"]["options"]
    return [
        sample_of(shard, group, options["sequence_length"], options["multiple_of"])
        for shard in read_split(plan, root, split)
        for group in shard.groups
    ]


def check_laws(plan: Path, root: Path, split: str) -> None:
    """Each document once, each trained label once, and nothing of documents that are left out."""
    options = json.loads((plan / "plan.json").read_text())["content"]["options"]
    for shard in read_split(plan, root, split):
        seen = [[0] * document.tokens.size for document in shard.documents]
        whole = [0] * len(shard.documents)
        for group in shard.groups:
            for unit in group:
                number = unit if unit < len(shard.documents) else shard.windows[unit - len(shard.documents)][0]
                whole[number] += unit < len(shard.documents)
                for position, trained in pieces(shard, unit)[1]:
                    seen[number][position] += trained
        for number, document in enumerate(shard.documents):
            fits = document.tokens.size <= options["sequence_length"]
            assert whole[number] == fits
            for position, trained in enumerate(document.lossmask.tolist()):
                times = seen[number][position]
                if fits or (trained and options["long"] == "window"):
                    assert times == 1, (split, number, position)
                elif options["long"] == "window":
                    assert times <= 1
                else:
                    assert times == (options["long"] == "truncate" and position < options["sequence_length"])


def best_fit(sizes: Sequence[int], length: int) -> list[int]:
    """How full each sample gets, sorted: unit by unit, the largest first, into the fullest that takes it."""
    samples: list[int] = []
    for size in sorted((size for size in sizes if size), reverse=True):
        fitting = [(length - filled, number) for number, filled in enumerate(samples) if length - filled >= size]
        if fitting:
            samples[min(fitting)[1]] += size
        else:
            samples.append(size)
    return sorted(samples)


def sequential(sizes: Sequence[int], length: int) -> list[list[int]]:
    """The units of each sample."""
    samples: list[list[int]] = []
    filled = 0
    for unit, size in enumerate(sizes):
        if not size:
            continue
        if not samples or filled + size > length:
            samples.append([])
            filled = 0
        samples[-1].append(unit)
        filled += size
    return samples


def unit_sizes(shard: ShardPlan, length: int, multiple_of: int) -> list[int]:
    """Positions that each unit takes: 0 for a document that is too long."""
    sizes = [document.tokens.size if document.tokens.size <= length else 0 for document in shard.documents]
    sizes += [row[1] + row[3] - row[2] + row[5] - row[4] for row in shard.windows]
    return [-(-size // multiple_of) * multiple_of for size in sizes]


def sample_at(position: int, samples: int, seed: int, epoch: int) -> int:
    """The sample at a position of an epoch, in Python's integers."""

    def mix(value: int) -> int:
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
        return value ^ (value >> 31)

    bits = 1
    while 1 << (2 * bits) < samples:
        bits += 1
    text = "\0".join(map(str, (seed, epoch, samples))).encode()
    keys = struct.unpack("<4Q", hashlib.blake2b(text, digest_size=32).digest())
    while True:
        left, right = position >> bits, position & ((1 << bits) - 1)
        for key in keys:
            left, right = right, left ^ (mix(right ^ key) & ((1 << bits) - 1))
        position = left << bits | right
        if position < samples:
            return position


def as_lists(sample: dict[str, Any]) -> dict[str, list[int]]:
    return {name: values.tolist() for name, values in sample.items()}
