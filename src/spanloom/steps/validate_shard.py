"""Validates one shard of a dataset. Runs once per shard, in parallel; assemble-validation joins the reports.

In: a dataset root, pending or promoted, of which the manifest, one shard and the files of no shard are read; the
source, or the shard of it that this one was made of, if available. Out: the shard's `Report`, also as a small file; a
file with the digests of ids and of documents' tokens, 16 bytes per document.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.root.places import listed_root, staged_root
from spanloom.dataset.validate.by_shard import files_of_shard, validate_shard
from spanloom.dataset.validate.checks import GivenSource
from spanloom.findings import Report
from spanloom.provenance import readable_json
from spanloom.storage import write_atomically
from spanloom.storage.scratch import chosen_scratch, scratch_for
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.workers import OnProgress


def run(
    *,
    root: str,
    shard: int,
    report: str,
    digests: str,
    family_of: Callable[[str], DatasetFamily],
    source: str | None = None,
    deep: int = 0,
    tokenizer: str | None = None,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> Report:
    """The step on paths and URIs. `report` and `digests` are also written if there are findings.

    `family_of`: family name of a manifest → the family's functions.
    """
    with scratch_for("validate-shard", [root, shard, source, report, digests], scratch) as staging:
        local_root = staged_root(staging, root, only=lambda name: False)  # noqa: ARG005  # the manifest alone
        content = manifest.read_any(local_root).content
        family = family_of(content.family)
        own = {file.path for file in files_of_shard(content, shard)}
        versions: dict[str, str] = {}
        if is_uri(root):
            listed = listed_root(parse_uri(root))
            versions = {name: entry.version for name, entry in listed.items() if name in own}
            needed = own.union(file.path for file in content.files)
            staged_root(staging, root, only=needed.__contains__)
        named_source = None
        if source is not None:
            named_source = GivenSource(
                place=family.stage_source(staging, source, (shard,)),
                deep=deep,
                tokenizer=family.stage_tokenizer(staging, tokenizer),
                at_hand=(shard,),
            )
        result, recorded = validate_shard(
            local_root,
            content,
            family,
            shard,
            digests_file=staging.path(digests),
            source=named_source,
            versions=versions,
            on_progress=on_progress,
            scratch=chosen_scratch(scratch),
        )
        write_atomically(staging.path(report), readable_json(recorded))
        for place in (digests, report):
            staging.publish_file(place, replace=True)
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    findings = sum(result["found"].values())
    return {
        "report": {"clean": result["clean"], "findings": findings},
        "metrics": {"findings": findings, "documents": result["checked"].get("documents", 0)},
    }
