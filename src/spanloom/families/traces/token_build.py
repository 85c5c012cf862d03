"""A token dataset of traces on one machine: a store and a dataset in it → a validated dataset root.

In: `TokenBuildOptions`. Out: the dataset under `out`, with its manifest only if validation found nothing. An
interrupted run can be repeated; it writes the same files.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from spanloom.building.make import BuildResult
from spanloom.building.options import RunOptions
from spanloom.building.request import build_requested
from spanloom.dataset.root.lock import check_apart
from spanloom.families.traces import dataset as family
from spanloom.families.traces.encoding.tokenizer import load_tokenizer
from spanloom.families.traces.recipe import TokenizeRules
from spanloom.families.traces.steps.tokenize_traces import request_of
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.keys import manifest_file
from spanloom.families.traces.store.manifest import read_manifest
from spanloom.options.shared import DealtOptions, OnDuplicate
from spanloom.report.progress import Mode, Progress
from spanloom.storage import sha256_file


@dataclass(frozen=True, kw_only=True)
class TokenBuildOptions(DealtOptions, RunOptions):
    """The dataset `key` below `root`, the tokenizer file, and the folder `out` for the token dataset."""

    root: Path
    key: str
    tokenizer: Path
    out: Path
    rules: TokenizeRules = field(default_factory=TokenizeRules)
    on_duplicate: OnDuplicate = "keep"


def build_tokens(store: Store, options: TokenBuildOptions, progress: Progress | None = None) -> BuildResult:
    """Tokenises and validates. The same store, dataset, tokenizer and rules give the same bytes.

    Raises SpanloomError if the build cannot finish. Findings are in the report and raise nothing.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    options.check()
    manifest = manifest_file(options.root, options.key)
    check_apart(manifest.parent, options.out)
    request = request_of(
        lambda: nullcontext(store),
        read_manifest(options.root, options.key),
        sha256_file(manifest),
        load_tokenizer(options.tokenizer),
        replace(options.rules, max_rows=options.max_rows, longest=options.longest),
        shards=options.shards,
        given={"store": store.called, "tokenizer": str(options.tokenizer)},
    )
    return build_requested(options.out, request, family, options, progress)
