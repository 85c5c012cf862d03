"""Step 4, once per shard: rendered documents → the dataset's files, supervision shifted to labels.

In: one rendered shard, its ids. The id decides whether a document is valid. Out: under the dataset root, for each
split that has rows, `shard_NN_{tokens,lossmask,span}.{bin,idx}` and `shard_NN_rows.parquet`; `rejects/shard_NN.jsonl`
if rows were rejected; and the shard's inventory, from which the manifest is made.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom import workers
from spanloom.dataset.manifest import ListedFile
from spanloom.dataset.root.layout import rejects_file
from spanloom.dataset.root.places import publish_data
from spanloom.dataset.split_writer import SplitWriter, split_writers
from spanloom.errors import ArtifactError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.config import ARRAY_DTYPES, split_decided
from spanloom.families.harmony.contract.profile import profile_of_family
from spanloom.families.harmony.render import artifact
from spanloom.families.harmony.render.artifact import OpenPart, documents_of
from spanloom.families.harmony.render.packs import IDS_NAME
from spanloom.families.harmony.render.routes import LIBRARIES
from spanloom.families.harmony.render.work import Rendered, read_parts, staged
from spanloom.kubeflow import split_metrics
from spanloom.provenance import git_sha, part_key, readable_json
from spanloom.split import id_digests, is_valid
from spanloom.storage import publish_bytes, sha256_file, write_atomically
from spanloom.storage.claim import claim_root
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.supervision import ALIGNMENT, TokenDocuments, shift_to_labels, tokens_per_span

_FROM_RENDERED = (
    "family", "shard", "shards", "input", "source", "tokenizer_sha256", "renderer", "audit", "caps", "rules",
)  # fmt: skip

_DECIDES_NOTHING = "environment"
"""The key of `rendered.json` that does not affect the bytes of the dataset."""


def write_indexed(
    *,
    rendered: Path,
    ids: Path,
    root: Path,
    inventory: Path,
    valid_fraction: float = defaults.VALID_FRACTION,
    resume: bool = True,
) -> dict[str, Any]:
    """Writes one shard's share of the dataset under `root` and its inventory to the file `inventory`.

    Files are never overwritten: an existing file with the same bytes counts as written, one with other bytes raises
    ConflictError. With `resume`, a shard whose inventory and files exist is skipped. Returns the inventory's content.
    """
    shard = artifact.read_sidecar(rendered / artifact.RENDERED_JSON)
    ids_json = artifact.read_sidecar(ids / artifact.IDS_JSON)
    _check_belong_together(shard, ids_json, rendered)

    def parts() -> Iterator[OpenPart]:
        for part in shard["parts"]:
            artifact.verify_files(rendered, part["files"])
        for part in ids_json["parts"]:
            artifact.verify_files(ids, part["files"])
        return artifact.read_folders(rendered, ids, shard["parts"])

    return _write(shard, ids_json, parts, root, inventory, valid_fraction, resume)


def _write(
    shard: dict[str, Any],
    ids: dict[str, Any],
    parts: Callable[[], Iterator[OpenPart]],
    root: Path,
    inventory: Path,
    valid_fraction: float,
    resume: bool,
) -> dict[str, Any]:
    """`shard`: the content of `rendered.json`; `ids`: identifies the ids by hash; `parts` opens the parts, once."""
    number, profile = shard["shard"], profile_of_family(shard["family"])
    split = split_decided(profile, valid_fraction)
    made_of = {name: value for name, value in shard.items() if name != _DECIDES_NOTHING}
    key = part_key("harmony", *LIBRARIES, rendered=made_of, ids=ids, split=split)
    if resume and (written := _standing(inventory, root, key)) is not None:
        return written

    options = {"arrays": ARRAY_DTYPES, "span_names": profile.span_names, "about": profile.about}
    rejects: list[bytes] = []
    with split_writers(root, number, **options) as by_split:
        writers = list(by_split.values())
        for part in parts():
            for batch, id_rows in zip(part.documents, part.ids, strict=True):
                rows, documents = documents_of(batch)
                if not np.array_equal(rows, id_rows.column("row").to_numpy()):
                    raise ArtifactError(f"the rendered shard {number:02d} and its ids hold different rows")
                valid = is_valid(id_digests(id_rows.column(profile.split_column).to_pylist()), valid_fraction)
                _append(writers, documents, id_rows, valid, len(profile.span_names))
                if workers.counters_here:
                    workers.counters_here.add(number, written=len(documents))
            rejects.append(part.rejects)
        splits = {name: writer.publish().model_dump(mode="json") for name, writer in by_split.items()}

    result = {
        "artifact": "shard_inventory_v1",
        "key": key,
        **{name: shard[name] for name in _FROM_RENDERED},
        "environment": shard.get(_DECIDES_NOTHING, {}),
        "split": split,
        "alignment": ALIGNMENT,
        "rows_read": shard["rows_read"],
        "rejected": shard["rejected"],
        **({"cutting": shard["cutting"]} if profile.cuts else {}),
        "rejects_file": _publish_rejects(b"".join(rejects), number, root),
        "splits": splits,
    }
    write_atomically(inventory, readable_json(result))
    return result


def _append(
    writers: list[SplitWriter],
    documents: TokenDocuments,
    id_rows: pa.RecordBatch,
    valid: npt.NDArray[np.bool_],
    spans: int,
) -> None:
    """Shifts a batch and distributes its documents to the splits.

    Consecutive documents of one split are written together, as slices without a copy:

        valid [F F T F]  →  train 0:2 · valid 2:3 · train 3:4
    """
    lengths = documents.lengths
    arrays: dict[str, npt.NDArray[Any]] = {
        "tokens": documents.tokens,
        "lossmask": shift_to_labels(documents.loss_mask, lengths),
        "span": shift_to_labels(documents.span_id, lengths),
    }
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    edges = [0, *(np.flatnonzero(valid[1:] != valid[:-1]) + 1).tolist(), len(documents)]
    for first, last in pairwise(edges):
        run = slice(ends[first], ends[last])
        writers[int(valid[first])].append_arrays(
            lengths[first:last], {name: values[run] for name, values in arrays.items()}
        )
    span_tokens = tokens_per_span(arrays["span"], lengths, spans)
    for split, writer in enumerate(writers):
        chosen = valid == bool(split)
        if chosen.any():
            writer.append_rows(id_rows.filter(pa.array(chosen)), lengths[chosen], span_tokens[chosen])


def _check_belong_together(shard: dict[str, Any], ids_json: dict[str, Any], rendered: Path) -> None:
    if any(ids_json[name] != shard[name] for name in ("shard", "rows_read", "rows")):
        raise ArtifactError(
            f"the rendered shard {shard['shard']:02d} and its ids do not belong together",
            where=str(rendered),
            remedy="run render-shard again",
        )


def _standing(inventory: Path, root: Path, key: str) -> dict[str, Any] | None:
    if not inventory.is_file():
        return None
    written = artifact.read_sidecar(inventory)
    if written.get("key") != key:
        return None
    return written if artifact.files_stand(root, {file.path: file.sha256 for file in _files(written)}) else None


def _files(inventory: dict[str, Any]) -> list[ListedFile]:
    """All files of a shard."""
    files = [file for split in inventory["splits"].values() for file in split["files"]]
    files += [inventory["rejects_file"]] if inventory["rejects_file"] else []
    return [ListedFile.model_validate(file) for file in files]


def _publish_rejects(data: bytes, shard: int, root: Path) -> dict[str, Any] | None:
    if not data:
        return None
    path = rejects_file(root, shard)
    publish_bytes(data, path)
    return {"path": path.relative_to(root).as_posix(), "bytes": len(data), "sha256": sha256_file(path)}


def run(
    *,
    rendered: str,
    root: str,
    inventory: str,
    valid_fraction: float = defaults.VALID_FRACTION,
    resume: bool = True,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths or URIs. `rendered`: the manifest of the shard; of the work place only its packs are staged,
    at most two at a time. A remote root is first claimed for this build; the inventory is written after all files.

    Raises ConflictError if another build has claimed the root, if a file exists with other bytes, and for a capped run
    into the canonical root.
    """
    with scratch_for("write-indexed", [rendered, root, inventory], scratch) as staging:
        at = Rendered.read(staging.file(rendered))
        (path,) = staged(staging, [at], artifact.RENDERED_JSON)
        shard = artifact.read_sidecar(path)
        Caps(**shard["caps"]).check_root(root)
        whole = {**shard, _DECIDES_NOTHING: at.given}
        ids = at.entry(IDS_NAME).as_dict()

        def write(local_root: Path, made: Path) -> dict[str, Any]:
            return _write(whole, ids, lambda: read_parts(staging, at, shard), local_root, made, valid_fraction, resume)

        if not is_uri(root):
            result = write(Path(root), staging.path(inventory))
            staging.publish_file(inventory)
            return result
        uri, local_root = parse_uri(root), staging.path(root)
        claim_root(uri, _build_of(shard, valid_fraction))
        made = local_root.parent / "inventory.json"
        result = write(local_root, made)
        publish_data(_files(result), local_root, uri)
        staging.bring_home(made, inventory)
    return result


def _build_of(shard: dict[str, Any], valid_fraction: float) -> dict[str, Any]:
    """The part of a shard's record that decides the bytes below a root; equal for all shards and retries of a build."""
    return {
        "git_sha": git_sha(),
        **{name: shard[name] for name in ("shards", "source", "tokenizer_sha256", "renderer", "caps", "rules")},
        "split": split_decided(profile_of_family(shard["family"]), valid_fraction),
        "alignment": ALIGNMENT,
    }


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rejected = sum(result["rejected"].values())
    return {
        "inventory": {
            "shard": result["shard"],
            "rows_read": result["rows_read"],
            "rejected": rejected,
            "files": sum(len(split["files"]) for split in result["splits"].values()),
            "bytes": sum(file["bytes"] for split in result["splits"].values() for file in split["files"]),
            "input_sha256": result["input"]["sha256"],
        },
        "metrics": {"rows_read": result["rows_read"], "rejected": rejected, **split_metrics(result["splits"])},
    }
