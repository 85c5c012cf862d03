"""A dataset → a teacher's signals beside it, and checks of them: `spanloom teacher score`, `carry`, `import` …

In: the root of a dataset, a teacher. Out: the content of the signals' manifest; a `Report`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.dataset.root.places import local_root, staged_root
from spanloom.dataset.statistics import Key
from spanloom.errors import OptionError
from spanloom.families import content_of, dataset_family
from spanloom.findings import Report
from spanloom.megatron.readers import ReaderChoice, chosen_reader, open_with
from spanloom.report.progress import Progress
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.uri import is_uri
from spanloom.teacher.carry import CarriedSignals
from spanloom.teacher.format import OF_TOP, TeacherContent, arrays_for, read_teacher, span_ids
from spanloom.teacher.looking.rank import RankedDocument, strangest
from spanloom.teacher.looking.statistics import SPAN, GroupScores, group_scores
from spanloom.teacher.parts import PART_TOKENS
from spanloom.teacher.places import begun_signals, keeping_parts, publish_signals
from spanloom.teacher.positions import documents_of
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.sources.chosen import chosen_teacher
from spanloom.teacher.sources.distillkit import SETTINGS, Capture, read_compression
from spanloom.teacher.sources.options import ScoringOptions, TeacherOptions
from spanloom.teacher.sources.teacher import StoredSignals, Teacher
from spanloom.teacher.validate import validate_signals


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a scoring run would read and write. `read`: tokens that the teacher reads, without padding."""

    documents: int
    labels: int
    read: int
    bytes: int

    def as_dict(self) -> dict[str, int]:
        return vars(self).copy()


def scored(
    root: str, out: str, options: ScoringOptions, progress: Progress, scratch: Path | None = None
) -> tuple[TeacherContent, bool]:
    """The content of the signals' manifest, and whether they were there already. `root`, `out`: folders or URIs."""
    scoring = Scoring(k=options.top_k, spans=options.spans or None, max_rejects=options.max_rejects)
    with scratch_for("teacher-score", [root, out], scratch) as staging:
        dataset, _ = staged_root(staging, root), begun_signals(staging, out)
        content = content_of(dataset, "teacher")
        with progress.stage("load", "the teacher"):
            teacher = chosen_teacher(dataset, content, dataset_family(content.family), options, options.top_k)
        return _written(staging, root, out, teacher, scoring, progress)


def _written(
    staging: Scratch,
    root: str,
    out: str,
    teacher: Teacher | None,
    scoring: Scoring,
    progress: Progress,
    *,
    carried: StoredSignals | None = None,
    verb: str = "score",
) -> tuple[TeacherContent, bool]:
    """Makes the signals of a staged dataset and publishes them. Returns as `score` does."""
    with progress.stage(verb), progress.counting(verb, "labels") as on_progress:
        result = score(
            staging.path(root),
            staging.path(out),
            teacher,
            scoring,
            carried=carried,
            keep=keeping_parts(staging, out),
            named=root if is_uri(root) else None,
            on_progress=on_progress,
        )
    publish_signals(staging, out)
    return result


def carried(
    folder: str,
    old: str | None,
    root: str,
    out: str,
    options: TeacherOptions,
    missing: bool,
    progress: Progress,
    scratch: Path | None = None,
) -> tuple[TeacherContent, dict[str, Any], bool]:
    """Signals of the dataset at `root`, from those in `folder`, of the dataset `old`, None for where it was scored.

    All are folders or URIs. Documents without entries are scored by the teacher of the options; with `missing` they are
    listed. Returns the content of the new signals' manifest, its environment, and whether they were there already.
    """
    with scratch_for("teacher-carry", [folder, old, root, out], scratch) as staging:
        signals, environment = read_teacher(staging.folder(folder))
        dataset, before = staged_root(staging, root), staged_root(staging, old or str(environment.get("root", "")))
        made, content = begun_signals(staging, out), content_of(dataset, "teacher")
        if not before.is_dir():
            message = "the dataset of the old signals is not there"
            raise OptionError(message, where=str(before), remedy="--old-dataset ROOT")
        if missing == options.given:
            raise OptionError(
                "other documents are scored by a teacher, or listed",
                remedy="give the teacher of the old signals, or --missing",
            )
        with progress.stage("load", "the old signals"):
            stored = CarriedSignals(staging.path(folder), before, content)
            family = dataset_family(content.family)
            teacher = None if missing else chosen_teacher(dataset, content, family, options, signals.k)
        scoring = Scoring(k=signals.k, spans=None if signals.spans is None else tuple(signals.spans))
        written, same = _written(staging, root, out, teacher, scoring, progress, carried=stored)
        return written, read_teacher(made)[1], same


def imported(
    capture: str,
    root: str,
    out: str,
    compression: Path | None,
    spans: tuple[str, ...],
    progress: Progress,
    scratch: Path | None = None,
) -> tuple[TeacherContent, bool, int]:
    """Signals of the dataset at `root` from a capture of DistillKit. All are folders or URIs. `compression`: the file
    of its settings, None for that in the capture. Returns as `scored`, and at how many labels approximated values were
    lowered in this run."""
    with scratch_for("teacher-import", [capture, root, out], scratch) as staging, temporary_folder("capture-") as copy:
        folder, dataset, _ = staging.folder(capture), staged_root(staging, root), begun_signals(staging, out)
        content = content_of(dataset, "teacher")
        settings = read_compression(compression or folder / SETTINGS)
        with progress.stage("load", "the capture"):
            stored = Capture(folder, settings, dataset, content, list(spans) or None, Path(copy))
        scoring = Scoring(k=settings.k, spans=spans or None)
        result = _written(staging, root, out, None, scoring, progress, carried=stored, verb="import")
    return *result, stored.lowered


def size_of(place: str, options: ScoringOptions, scratch: Path | None = None) -> Size:
    """What `scored` would read and write."""
    counted = {"documents": 0, "labels": 0, "read": 0}
    with local_root(place, scratch) as root:
        content = content_of(root, "teacher")
        spans = span_ids(list(options.spans) or None, content)
        for split, shard in content.filled():
            for part in documents_of(root, content, split, shard, spans, PART_TOKENS):
                counted["documents"] += len(part)
                counted["labels"] += sum(each.positions.size for each in part)
                counted["read"] += sum(each.tokens.size for each in part)
    each = sum(
        dtype.itemsize * (options.top_k if name in OF_TOP else 1)
        for name, dtype in arrays_for(content.tokenizer.vocab_size).items()
    )
    return Size(**counted, bytes=each * counted["labels"])


def checked(
    folder: str,
    root: str,
    options: TeacherOptions,
    deep: int,
    reader: ReaderChoice,
    progress: Progress,
    scratch: Path | None = None,
) -> Report:
    """The report of `teacher validate`. `folder`, `root`: folders or URIs."""
    with scratch_for("teacher-validate", [folder, root], scratch) as staging:
        signals, dataset = staging.folder(folder), staged_root(staging, root)
        content = content_of(dataset, "teacher")
        if options.given != (deep > 0):
            raise OptionError("--deep N needs a teacher, and a teacher --deep N: it scores documents again")
        k, family = read_teacher(signals)[0].k, dataset_family(content.family)
        teacher = chosen_teacher(dataset, content, family, options, k) if options.given else None
        used = chosen_reader(reader)
        with progress.stage("validate"), progress.counting("validate", "documents") as on_progress:
            report = validate_signals(
                signals, dataset, open_with(used), teacher=teacher, deep=deep, on_progress=on_progress
            )
    report.reader = used
    return report


def ranked(
    folder: str, root: str, count: int, at_least: int, progress: Progress, scratch: Path | None = None
) -> list[RankedDocument]:
    """The documents that the teacher finds strangest. `folder`, `root`: folders or URIs."""
    with scratch_for("teacher-rank", [folder, root], scratch) as staging, progress.stage("rank"):
        return strangest(staging.folder(folder), staged_root(staging, root), count, at_least=at_least)


def grouped(
    folder: str, root: str, by: Sequence[Sequence[str]] | None, progress: Progress, scratch: Path | None = None
) -> dict[tuple[str, ...], dict[Key, GroupScores]]:
    """What the teacher thinks of the labels of each group, for each grouping. `folder`, `root`: folders or URIs; `by`:
    None for no grouping, by span, by split, and by each column that the dataset has."""
    with scratch_for("teacher-stats", [folder, root], scratch) as staging, progress.stage("stats"):
        dataset = staged_root(staging, root)
        columns = dataset_family(content_of(dataset, "teacher").family).GROUP_COLUMNS
        signals = staging.folder(folder)
        chosen = [(), (SPAN,), ("split",), *((name,) for name in columns)] if by is None else by
        return {tuple(names): group_scores(signals, dataset, names, columns) for names in chosen}


def summary_of(content: TeacherContent) -> dict[str, Any]:
    """The counts of signals, for a command that ends."""
    return {
        "k": content.k,
        "labels": {split: counts.positions for split, counts in content.splits.items()},
        "documents": {split: counts.documents for split, counts in content.splits.items()},
        "without": content.without,
        "padded_ids": content.padded,
        "sha256": content.sha256,
    }
