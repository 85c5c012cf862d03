"""A token dataset of traces on one machine: a store and a dataset in it → a validated dataset root.

In: `TokenBuildOptions`. Out: the dataset under `out`, with its manifest only if validation found nothing. An
interrupted run can be repeated; it writes the same files.
"""

from dataclasses import dataclass, field
from pathlib import Path

from spanloom.building.disk import Size
from spanloom.building.make import BuildResult, build_dataset, validated_here
from spanloom.building.options import RunOptions
from spanloom.building.shards.files import work_of
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.root.lock import WORK_NAME, BuildRecord, check_apart, data_names
from spanloom.families.traces import dataset as family
from spanloom.families.traces.encoding.tokenizer import load_tokenizer
from spanloom.families.traces.encoding.tokens import ARRAY_DTYPES
from spanloom.families.traces.recipe import FAMILY, TokenizeRules, config_of
from spanloom.families.traces.steps.tokenize_traces import tokenize_traces
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.keys import manifest_file
from spanloom.families.traces.store.manifest import TraceManifest, read_manifest
from spanloom.report.progress import Mode, Progress
from spanloom.split import SPLITS
from spanloom.storage import sha256_file


@dataclass(frozen=True, kw_only=True)
class TokenBuildOptions(RunOptions):
    """The dataset `key` below `root`, the tokenizer file, and the folder `out` for the token dataset."""

    root: Path
    key: str
    tokenizer: Path
    out: Path
    rules: TokenizeRules = field(default_factory=TokenizeRules)
    max_rejects: str | None = None
    shards: int = 1
    on_duplicate: str = "keep"


def build_tokens(store: Store, options: TokenBuildOptions, progress: Progress | None = None) -> BuildResult:
    """Tokenises and validates. The same store, dataset, tokenizer and rules give the same bytes.

    Raises SpanloomError if the build cannot finish. Findings are in the report and raise nothing.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    out = options.out
    options.check()
    check_apart(manifest_file(options.root, options.key).parent, out)
    dataset = read_manifest(options.root, options.key)
    sha256 = sha256_file(manifest_file(options.root, options.key))
    tokenizer = load_tokenizer(options.tokenizer)
    identity = {
        "family": FAMILY,
        "config": config_of(options.rules, tokenizer),
        "source": sha256,
        "tokenizer": tokenizer.sha256,
    }
    rejects = options.max_rejects is not None
    data = data_names(shards=options.shards, splits=SPLITS, arrays=ARRAY_DTYPES, rejects=rejects)
    record = BuildRecord(identity=identity, files=(*data, TOKENIZER_NAME), work=work_of(options.shards))

    def make(root: Path) -> Manifest:
        return tokenize_traces(
            store=store,
            dataset=dataset,
            manifest_sha256=sha256,
            root=root,
            work=out / WORK_NAME,
            tokenizer=tokenizer,
            rules=options.rules,
            shards=options.shards,
            options=options,
            progress=progress,
            environment={"store": store.called, "tokenizer": str(options.tokenizer)},
        )

    result = build_dataset(
        out,
        record,
        family,
        options,
        progress,
        make=make,
        bytes_needed=lambda: _size(dataset).bytes(ARRAY_DTYPES),
        validate=validated_here(family, progress, options.reader),
    )
    assert result is not None, "a dataset of traces is made, or an error"
    return result


def _size(dataset: TraceManifest) -> Size:
    """Of its traces; 0 if the manifest does not say how long they are, as those of others."""
    traces = len(dataset.trace_ids)
    return Size.of_text(float(dataset.stats.get("avg_total_chars", 0)) * traces, traces)
