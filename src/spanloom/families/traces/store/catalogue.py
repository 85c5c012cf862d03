"""Datasets with their counts, and traces line by line, for the terminal.

In: the datasets root, a stored trace. Out: JSON values, lines of text.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanloom.families.traces.errors import InvalidManifestError, UnknownDatasetError
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import StoredTrace
from spanloom.families.traces.store.manifest import dataset_keys, read_manifest
from spanloom.families.traces.trace import Payload
from spanloom.provenance import canonical_json
from spanloom.text import visible


def dataset_list(root: Path) -> list[dict[str, Any]]:
    """The datasets below a root: key, count, build time; `valid` is false if the manifest breaks its schema."""
    datasets = []
    for key in dataset_keys(root):
        entry: dict[str, Any] = {"dataset_key": key, "trace_count": None, "created_at": None, "valid": False}
        try:
            manifest = read_manifest(root, key)
        except UnknownDatasetError:
            continue
        except InvalidManifestError:
            pass
        else:
            entry |= {
                "trace_count": len(manifest.trace_ids),
                "created_at": manifest.as_dict()["created_at"],
                "valid": True,
            }
        datasets.append(entry)
    return datasets


def trace_lines(trace: StoredTrace) -> Iterator[str]:
    """A trace for a terminal; control characters are made visible."""
    version = visible(trace.payload["trace_version"])
    yield f"{trace.id}  {timestamps.shown(trace.created_at)}  version {version}"
    yield from payload_lines(trace.payload)


def payload_lines(payload: Payload, longest: int | None = None) -> Iterator[str]:
    """Prompt, steps, answer and metadata of a trace, one line each. `longest`: characters shown of each; None: all."""

    def shown(text: str) -> str:
        if longest is None or len(text) <= longest:
            return visible(text)
        return f"{visible(text[:longest])}… ({len(text) - longest:,} more characters)"

    yield f"prompt  {shown(payload['prompt'])}"
    for number, step in enumerate(payload["steps"], start=1):
        yield f"{number:6}  {shown(step['content'])}  [{visible(step['type'])} {step['i']}]"
    yield f"answer  {shown(payload['final_answer'])}"
    if payload["meta"] is not None:
        yield f"meta    {shown(canonical_json(payload['meta']).decode())}"
