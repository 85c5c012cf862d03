"""Packed chat on one machine: transcripts → a validated dataset.

In: `PackOptions`. Out: the dataset under `root`; it has a manifest only if validation has no findings. Tokenising takes
most of the time. An interrupted run is started again with the same command, and makes the same files.
"""

from dataclasses import dataclass
from pathlib import Path

from spanloom.building.disk import Size
from spanloom.building.make import BuildResult, build_dataset
from spanloom.building.options import RunOptions
from spanloom.building.shards.files import work_of
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.lock import WORK_NAME, BuildRecord, check_apart, data_names
from spanloom.families.chat import dataset, defaults
from spanloom.families.chat.recipe import PackingRules
from spanloom.families.chat.root.blocks import ARRAY_DTYPES, FAMILY, SPLIT
from spanloom.families.chat.steps.pack_chat import identity_of, pack_chat
from spanloom.families.chat.tokenizer import load_tokenizer
from spanloom.families.chat.transcripts.files import OnError, text_bytes, transcript_files
from spanloom.report.progress import Mode, Progress


@dataclass(frozen=True, kw_only=True)
class PackOptions(RunOptions):
    """What to pack.

    `source_as_given`, `tokenizer_as_given`: the paths or URIs that `transcripts` and `tokenizer` were staged from, for
    the manifest. `workers`: None for as many as `useful_workers` returns. `deep`: how many blocks of each shard
    validation packs again.
    """

    transcripts: Path
    root: Path
    tokenizer: Path | None
    rules: PackingRules
    source_as_given: str | None = None
    tokenizer_as_given: str | None = None
    deep: int = defaults.DEEP
    max_rejects: str | None = None
    on_error: OnError = defaults.ON_ERROR


def build_chat(options: PackOptions, progress: Progress | None = None) -> BuildResult:
    """Packs and validates. The same options and transcripts give the same bytes with any number of workers.

    Raises a SpanloomError if it cannot continue. Findings do not raise: they are in the report.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    root = options.root
    options.check()
    check_apart(options.transcripts, root)
    tokenizer = load_tokenizer(options.tokenizer)
    made_of = identity_of(options.rules, tokenizer, options.transcripts)
    identity = {
        "family": FAMILY,
        "config": made_of["config"],
        "source": made_of["inputs"],
        "tokenizer": tokenizer.sha256,
    }
    shards, rejects = options.rules.shards, options.max_rejects is not None
    files = data_names(shards=shards, splits=(SPLIT,), arrays=ARRAY_DTYPES, rejects=rejects)
    record = BuildRecord(identity=identity, files=files, work=work_of(shards))
    return build_dataset(
        root,
        record,
        dataset,
        options,
        progress,
        make=lambda root: _pack(options, root, progress),
        bytes_needed=lambda: _size(options.transcripts).bytes(ARRAY_DTYPES),
        unit="blocks",
        source=options.transcripts,
        deep=options.deep,
        tokenizer=options.tokenizer,
        workers=options.workers,
    )


def _size(transcripts: Path) -> Size:
    return Size.of_text(sum(map(text_bytes, transcript_files(transcripts))), documents=0)


def _pack(options: PackOptions, root: Path, progress: Progress) -> Manifest:
    with progress.stage("pack"), progress.counting("pack", "bytes") as on_progress:
        return pack_chat(
            transcripts=options.transcripts,
            root=root,
            work=options.root / WORK_NAME,
            tokenizer=options.tokenizer,
            rules=options.rules,
            on_error=options.on_error,
            options=options,
            environment={
                "source": options.source_as_given or str(options.transcripts),
                "tokenizer": options.tokenizer_as_given or str(load_tokenizer(options.tokenizer).path),
            },
            on_progress=on_progress,
            warn=progress.say,
        )
