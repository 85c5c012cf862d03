"""Small finished datasets for the tests of training: arrays in, a root with files and a right manifest out.

Also the slow reference: the same arrays read back from the raw files, by numpy alone.
"""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.megatron.indexed import ParallelWriter
from spanloom.provenance import sha256_json

VOCAB_SIZE, EOD = 96, 95
TOKENIZER_SHA256 = "ab" * 32
SPAN_NAMES = ("context", "analysis", "final")
DTYPES = {"tokens": np.int32, "lossmask": np.uint8, "span": np.uint8}


@dataclass(frozen=True)
class Document:
    """One document as it stands on disk: label-aligned, its last position EOD with mask 0 and span 0."""

    tokens: npt.NDArray[np.int32]
    lossmask: npt.NDArray[np.uint8]
    span: npt.NDArray[np.uint8]


def random_document(random: np.random.Generator, length: int, spans: Sequence[int] = (0, 1, 2)) -> Document:
    """Random tokens, and runs of random spans; trained where the span is not 0."""
    tokens = random.integers(0, EOD, length, dtype=np.int32)
    tokens[-1] = EOD
    span = np.repeat(random.choice(spans, length), random.integers(1, 5, length))[:length].astype(np.uint8)
    span[-1] = 0
    return Document(tokens, (span > 0).astype(np.uint8), span)


def random_shards(seed: int, lengths: Sequence[Sequence[int]]) -> list[list[Document]]:
    random = np.random.default_rng(seed)
    return [[random_document(random, length) for length in shard] for shard in lengths]


def write_dataset(root: Path, splits: Mapping[str, Sequence[Sequence[Document]]]) -> Path:
    """Writes `splits`, name → shards → documents, and the manifest. Returns the root."""
    for split, shards in splits.items():
        for number, documents in enumerate(shards):
            lengths = np.array([document.tokens.size for document in documents], dtype=np.int32)
            parts = {
                name: [np.zeros(0, dtype), *(getattr(d, name) for d in documents)] for name, dtype in DTYPES.items()
            }
            write_shard(root, split, number, lengths, {name: np.concatenate(part) for name, part in parts.items()})
    write_manifest(root, shards=max(len(shards) for shards in splits.values()))
    return root


def write_shard(
    root: Path, split: str, shard: int, lengths: npt.NDArray[np.int32], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Writes one shard of a split. `arrays`: name → the values of all its documents, end to end."""
    prefixes = {name: (root / split / f"shard_{shard:02d}_{name}", values.dtype) for name, values in arrays.items()}
    with ParallelWriter(prefixes) as writer:
        if lengths.size:
            writer.append(lengths, dict(arrays))
        writer.publish()


def write_manifest(
    root: Path,
    shards: int,
    *,
    hashed: bool = True,
    packing: Sequence[Mapping[str, int]] | None = None,
    limits: Sequence[int] = (),
    **changes: Any,
) -> None:
    """A manifest of the files as they lie there now; `changes` replaces keys of `content`.

    `hashed=False` leaves out the hashes of the `.bin` files, which training does not look at. `packing`: of a dataset
    of blocks, what became of the tokens of each shard. `limits`: with lengths here it also counts the documents that
    fit into each, and the tokens of each span.
    """
    splits = [split for split in ("train", "valid") if (root / split).is_dir()]
    entries = []
    for number in range(shards):
        counts = {split: _counts(root, split, number, hashed, limits) for split in splits}
        rows = sum(entry["sequences"] for entry in counts.values())
        entries.append({"shard": number, "rows_read": rows, "rejected": {}, "rejects_file": None, "splits": counts})
        if packing is not None:
            entries[-1]["packing"] = dict(packing[number])
    totals = {split: _added([entry["splits"][split] for entry in entries]) for split in splits}
    all_shards = {"rows_read": sum(entry["rows_read"] for entry in entries), "rejected": {}, "splits": totals}
    if packing is not None:
        all_shards["packing"] = {name: sum(each[name] for each in packing) for name in packing[0]}
    content = {
        "family": "synth_kd",
        "git_sha": "0" * 40,
        "config": {},
        "config_sha256": sha256_json({}),
        "tokenizer": {"name": "test", "sha256": TOKENIZER_SHA256, "vocab_size": VOCAB_SIZE, "eod": EOD},
        "input": {"schema_version": "test", "manifest_sha256": "0" * 64, "shards": []},
        "split": {
            "rule": "test",
            "valid_fraction": 0.5,
            "threshold": "0",
            "realised_valid_fraction": 0.5,
            "repeated_rows": 0,
        },
        "renderer": {"name": "test", "version": "0", "fallback_rows": 0, "audited_rows": 0},
        "alignment": "labels_shift_left_1",
        "arrays": {name: np.dtype(dtype).name for name, dtype in DTYPES.items()},
        "span_names": list(SPAN_NAMES),
        "totals": all_shards,
        "shards": entries,
        **changes,
    }
    environment = {"created_at": "2026-01-01", "libraries": {}, "machine": {}}
    manifest = {"schema_version": "spanloom_dataset_v1", "content": content, "environment": environment}
    (root / "manifest.json").write_text(json.dumps(manifest))


def _counts(root: Path, split: str, number: int, hashed: bool, limits: Sequence[int]) -> dict[str, Any]:
    prefix = root / split / f"shard_{number:02d}_tokens"
    lengths = _lengths(prefix) if prefix.with_suffix(".idx").is_file() else np.zeros(0, dtype=np.int32)
    files = [
        {
            "path": path.relative_to(root).as_posix(),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest() if hashed or path.suffix == ".idx" else "0" * 64,
        }
        for path in sorted((root / split).glob(f"shard_{number:02d}_*"))
    ]
    return {
        "sequences": lengths.size,
        "tokens": int(lengths.sum(dtype=np.int64)),
        "span_tokens": _span_tokens(prefix) if limits else {},
        "longest": int(lengths.max(initial=0)),
        "fitting": {str(limit): int((lengths <= limit).sum()) for limit in limits},
        "files": files,
    }


def _span_tokens(prefix: Path) -> dict[str, int]:
    spans = np.fromfile(str(prefix).removesuffix("tokens") + "span.bin", dtype=DTYPES["span"])
    return dict(zip(SPAN_NAMES, np.bincount(spans, minlength=len(SPAN_NAMES)).tolist(), strict=True))


def _added(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The counts of all shards of a split."""
    return {
        **{key: sum(count[key] for count in counts) for key in ("sequences", "tokens")},
        "longest": max(count["longest"] for count in counts),
        **{
            of: {key: sum(count[of][key] for count in counts) for key in counts[0][of]}
            for of in ("span_tokens", "fitting")
        },
    }


def read_raw(prefix: Path) -> list[Document]:
    """The documents of the shard whose tokens have this prefix, from the bytes alone."""
    stem = str(prefix).removesuffix("_tokens")
    ends = np.cumsum(_lengths(prefix))[:-1]
    arrays = [np.split(np.fromfile(f"{stem}_{name}.bin", dtype=dtype), ends) for name, dtype in DTYPES.items()]
    return [Document(*each) for each in zip(*arrays, strict=True)]


def _lengths(prefix: Path) -> npt.NDArray[np.int32]:
    index = prefix.with_suffix(".idx").read_bytes()
    (count,) = struct.unpack_from("<Q", index, 18)
    return np.frombuffer(index, dtype=np.int32, count=count, offset=34)
