"""Step 4, once a shard: rendered documents → the dataset's files, supervision shifted to labels.

In: one rendered shard, its ids, the split. Out: under the dataset root, for each split that has rows,
`shard_NN_{tokens,lossmask,span}.{bin,idx}` and `shard_NN_rows.parquet`; `rejects/shard_NN.jsonl` where rows were set
aside; and the shard's inventory, which the manifest is made of.
"""

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
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.config import ARRAY_DTYPES
from spanloom.families.harmony.contract.profile import profile_of_family
from spanloom.families.harmony.render import artifact
from spanloom.families.harmony.split_files import SPLIT_JSON, read_valid
from spanloom.kubeflow import split_metrics
from spanloom.provenance import code_sha256, git_sha, readable_json, sha256_json
from spanloom.storage import publish_bytes, sha256_file, write_atomically
from spanloom.storage.claim import claim_root
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.supervision import ALIGNMENT, TokenDocuments, shift_to_labels, tokens_per_span

_FROM_RENDERED = (
    "family", "shard", "shards", "input", "source", "tokenizer_sha256", "renderer", "audit", "caps", "rules",
)  # fmt: skip

_DECIDES_NOTHING = "environment"
"""What the rendered shard says of its making, which no byte of the dataset depends on."""


def write_indexed(
    *, rendered: Path, ids: Path, split: Path, root: Path, inventory: Path, resume: bool = True
) -> dict[str, Any]:
    """Writes one shard's share of the dataset under `root` and its inventory to the file `inventory`.

    Every file is created, never overwritten: one that exists with the same bytes counts as written, one with other
    bytes raises ConflictError. With `resume`, a shard whose inventory and files are is left alone.
    Returns what the inventory holds.
    """
    shard = artifact.read_sidecar(rendered / artifact.RENDERED_JSON)
    ids_json = artifact.read_sidecar(ids / artifact.IDS_JSON)
    split_json = artifact.read_sidecar(split / SPLIT_JSON)
    _check_belong_together(shard, ids_json, split_json, rendered)
    made_of = {name: value for name, value in shard.items() if name != _DECIDES_NOTHING}
    code = code_sha256("harmony")
    key = sha256_json({"rendered": made_of, "ids": ids_json, "split": split_json, "code_sha256": code})
    if resume and (standing := _standing(inventory, root, key)) is not None:
        return standing
    for part in shard["parts"]:
        artifact.verify_files(rendered, part["files"])
    for part in ids_json["parts"]:
        artifact.verify_files(ids, part["files"])

    number, profile = shard["shard"], profile_of_family(shard["family"])
    valid = read_valid(split, number, shard["rows_read"])
    options = {"arrays": ARRAY_DTYPES, "span_names": profile.span_names, "about": profile.about}
    with split_writers(root, number, **options) as by_split:
        writers = list(by_split.values())
        pairs = zip(
            artifact.read_rendered(rendered, shard["parts"]), artifact.read_ids(ids, ids_json["parts"]), strict=True
        )
        for (rows, documents), id_rows in pairs:
            if not np.array_equal(rows, id_rows.column("row").to_numpy()):
                raise ArtifactError("the rendered shard and its ids hold different rows", where=str(rendered))
            _append(writers, documents, id_rows, valid[rows], len(profile.span_names))
            if workers.counters_here:
                workers.counters_here.add(number, written=len(documents))
        splits = {name: writer.publish().model_dump(mode="json") for name, writer in by_split.items()}

    result = {
        "artifact": "shard_inventory_v1",
        "key": key,
        **{name: shard[name] for name in _FROM_RENDERED},
        "environment": shard.get(_DECIDES_NOTHING, {}),
        "split": {name: split_json[name] for name in ("rule", "valid_fraction", "threshold", "repeated_rows")},
        "alignment": ALIGNMENT,
        "rows_read": shard["rows_read"],
        "rejected": shard["rejected"],
        **({"cutting": shard["cutting"]} if profile.cuts else {}),
        "rejects_file": _publish_rejects(rendered, shard, root),
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
    """Shifts a batch and deals its documents out to the splits.

    Arrays go in runs of neighbours of one split, as slices without a copy:

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


def _check_belong_together(
    shard: dict[str, Any], ids_json: dict[str, Any], split_json: dict[str, Any], rendered: Path
) -> None:
    number = shard["shard"]
    split_rows = {count["shard"]: (count["rows_read"], count["rows"]) for count in split_json["shards"]}
    rows = (shard["rows_read"], shard["rows"])
    if (
        ids_json["shard"] != number
        or (ids_json["rows_read"], ids_json["rows"]) != rows
        or split_rows.get(number) != rows
    ):
        raise ArtifactError(
            f"the rendered shard {number:02d}, its ids and the split are not of one making",
            where=str(rendered),
            remedy="run render-shard and assemble-split again",
        )


def _standing(inventory: Path, root: Path, key: str) -> dict[str, Any] | None:
    if not inventory.is_file():
        return None
    found = artifact.read_sidecar(inventory)
    if found.get("key") != key:
        return None
    return found if artifact.files_stand(root, {file.path: file.sha256 for file in _files(found)}) else None


def _files(inventory: dict[str, Any]) -> list[ListedFile]:
    """All files of a shard."""
    files = [file for split in inventory["splits"].values() for file in split["files"]]
    files += [inventory["rejects_file"]] if inventory["rejects_file"] else []
    return [ListedFile.model_validate(file) for file in files]


def _publish_rejects(rendered: Path, shard: dict[str, Any], root: Path) -> dict[str, Any] | None:
    names = [f"{artifact.part_name(part['part'])}.rejects.jsonl" for part in shard["parts"] if part["rejected"]]
    if not names:
        return None
    path = rejects_file(root, shard["shard"])
    data = b"".join((rendered / name).read_bytes() for name in names)
    publish_bytes(data, path)
    return {"path": path.relative_to(root).as_posix(), "bytes": len(data), "sha256": sha256_file(path)}


def run(
    *,
    rendered: str,
    ids: str,
    split: str,
    root: str,
    inventory: str,
    resume: bool = True,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over places. A remote root is claimed for this build first; the inventory appears when all files are.

    Raises ConflictError when another build has the root, or holds other bytes under one of the names, and for a capped
    run into the canonical root.
    """
    with scratch_for("write-indexed", [rendered, ids, split, root, inventory], scratch) as here:
        folders = {"rendered": here.folder(rendered), "ids": here.folder(ids), "split": here.folder(split)}
        Caps(**artifact.read_sidecar(folders["rendered"] / artifact.RENDERED_JSON)["caps"]).check_root(root)
        if not is_uri(root):
            result = write_indexed(**folders, root=Path(root), inventory=here.path(inventory), resume=resume)
            here.publish_file(inventory)
            return result
        uri, local_root = parse_uri(root), here.path(root)
        claim_root(uri, _build_of(folders["rendered"], folders["split"]))
        made = local_root.parent / "inventory.json"
        result = write_indexed(**folders, root=local_root, inventory=made, resume=resume)
        publish_data(_files(result), local_root, uri)
        here.bring_home(made, inventory)
    return result


def _build_of(rendered: Path, split: Path) -> dict[str, Any]:
    """What decides the bytes below a root, as far as one shard knows: equal for all shards and retries of a build."""
    shard, decided = artifact.read_sidecar(rendered / artifact.RENDERED_JSON), artifact.read_sidecar(split / SPLIT_JSON)
    return {
        "git_sha": git_sha(),
        **{name: shard[name] for name in ("shards", "source", "tokenizer_sha256", "renderer", "caps", "rules")},
        "split": {name: decided[name] for name in ("rule", "valid_fraction", "threshold")},
        "alignment": ALIGNMENT,
    }


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What Kubeflow shows of this step's artifacts: artifact → metadata. `result`: what `run` returns."""
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
