"""Checks signals against their dataset: structure, hashes, values, and that each entry is at its label.

In: a folder of signals, its dataset, maybe the teacher. Out: a `Report`. The arrays are read through the reader of
validation, not through that of users, and decoded here a second time.

    all files      size and sha256; lengths of documents against their labels
    all entries    order, sums, ids, the label's own value against its rank
    all labels     top 1 agrees with the label more often than with its neighbours: entries are not shifted
    some           documents that the teacher scores again, where it is given
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.root.opened import content_at
from spanloom.dataset.validate.placed_documents import reading_in_order
from spanloom.errors import ArtifactError, DatasetError
from spanloom.findings import Report
from spanloom.megatron.readers import OpenIndexed
from spanloom.storage import sha256_file
from spanloom.teacher.coding import CODING
from spanloom.teacher.format import (
    OF_TOP,
    OWN,
    REST,
    TEACHER_JSON,
    TOP_HIGH,
    TOP_LOGP,
    TOP_LOW,
    WITHOUT,
    ShardSignals,
    TeacherContent,
    check_dataset,
    prefixes,
    read_teacher,
)
from spanloom.teacher.parts import PART_TOKENS
from spanloom.teacher.positions import ScoredDocument, documents_of
from spanloom.teacher.signals import Agreement, Signals, what_is_wrong
from spanloom.teacher.sources.teacher import Teacher
from spanloom.workers import OnProgress


class SignalsCheck:
    """One validation. `report`: filled by `run`."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        content: TeacherContent,
        open_with: OpenIndexed,
        *,
        listing: Sequence[str] | None = None,
        teacher: Teacher | None = None,
        deep: int = 0,
    ) -> None:
        """`content`, `listing`: of signals that have no manifest yet, and are of some shards: what is in it, and the
        lines of their WITHOUT. Without a listing the signals are of all shards, and the file is read."""
        self._folder, self._root, self._content, self._listing = folder, root, content, listing
        self._open = reading_in_order(open_with)
        self._teacher, self._deep = teacher, deep
        self.report = Report()
        self._agreement = Agreement()
        self._again: list[tuple[str, int, ScoredDocument, Signals]] = []

    def run(self, on_progress: OnProgress | None = None) -> Report:
        content, dataset = self._content, content_at(self._root)
        check_dataset(content, dataset, self._folder, self._root)
        self._files(content)
        if not self.report.clean:
            return self.report
        known, spans = self._without(content), content.span_ids(dataset)
        total = sum(split.documents for split in content.splits.values())
        places = {(split, each.shard): each for split, counts in content.splits.items() for each in counts.shards}
        expected = dataset.filled()
        if self._listing is None and places.keys() != {*expected}:
            self.report.wrong(
                "teacher", f"there are signals of {len(places)} splits of shards, of {len(expected)} in all"
            )
            return self.report
        step = max(1, total // self._deep) if self._deep else 0
        done = 0
        for (split, shard), entry in places.items():
            for documents in documents_of(self._root, dataset, split, shard, spans, PART_TOKENS):
                for document in documents:
                    chosen = bool(step) and done % step == 0
                    self._document(
                        content, split, entry, document, known.get((split, shard, document.sequence)), chosen
                    )
                    done += 1
                if on_progress is not None:
                    on_progress(done, total)
            self.report.ran("signals", entry.positions)
        self._not_shifted()
        self._scored_again(content.k)
        return self.report

    def _files(self, content: TeacherContent) -> None:
        for split, counts in content.splits.items():
            for each in counts.shards:
                made = prefixes(Path(), split, each.shard, content.arrays).values() if each.positions else ()
                names = {f"{prefix}{suffix}" for prefix in made for suffix in (".bin", ".idx")}
                if names != {file.path for file in each.files}:
                    self.report.wrong(
                        "files",
                        "the manifest lists other files than its arrays have",
                        split=split,
                        shard=each.shard,
                        file=TEACHER_JSON,
                    )
        listed = [
            *(content.files if self._listing is None else ()),
            *(file for split in content.splits.values() for each in split.shards for file in each.files),
        ]
        for file in listed:
            path = self._folder / file.path
            if not path.is_file() or path.stat().st_size != file.bytes:
                self.report.wrong("files", f"the file is missing or has not {file.bytes:,} bytes", file=file.path)
            elif sha256_file(path) != file.sha256:
                self.report.wrong(
                    "files", "the file was changed: its sha256 is not that of the manifest", file=file.path
                )
        self.report.ran("files", len(listed))

    def _without(self, content: TeacherContent) -> dict[tuple[str, int, int], str]:
        """The documents that have no signals, and why."""
        known = {}
        lines = (self._folder / WITHOUT).read_text().splitlines() if self._listing is None else self._listing
        for number, line in enumerate(lines, 1):
            try:
                each = json.loads(line)
                known[each["split"], each["shard"], each["sequence"]] = str(each["reason"])
            except (ValueError, KeyError, TypeError):
                self.report.wrong("without", "the line is not that of a document", file=WITHOUT, line=number)
        counted: dict[str, int] = {}
        for reason in known.values():
            counted[reason] = counted.get(reason, 0) + 1
        if counted != content.without:
            self.report.wrong(
                "without", f"{WITHOUT} lists {counted}, the manifest counts {content.without}", file=WITHOUT
            )
        return known

    def _document(
        self,
        content: TeacherContent,
        split: str,
        entry: ShardSignals,
        document: ScoredDocument,
        without: str | None,
        chosen: bool,
    ) -> None:
        where = {"split": split, "shard": entry.shard, "sequence": document.sequence}
        wanted = 0 if without is not None else document.positions.size
        stored = self._read(content, split, entry, document.sequence)
        for name, values in stored.items():
            items = wanted * (content.k if name in OF_TOP else 1)
            if values.size != items:
                self.report.wrong("entries", f"{name} has {values.size} entries, the document has {items}", **where)
                return
        if without is not None and not document.positions.size:
            self.report.wrong("without", "the document has no label, and is listed as without signals", **where)
        if not wanted:
            return
        signals = _decoded(stored, content.k)
        wrong = _wrong_values(signals, document.labels, content)
        if wrong is not None:
            self.report.wrong("values", wrong[1], **where, offset=int(document.positions[wrong[0]]))
        self._agreement.add(signals.ids[:, 0], document.labels)
        if chosen and self._teacher is not None and document.tokens.size <= self._teacher.context:
            self._again.append((split, entry.shard, document, signals))

    def _read(
        self, content: TeacherContent, split: str, entry: ShardSignals, sequence: int
    ) -> dict[str, npt.NDArray[Any]]:
        if not entry.positions:
            return {name: np.empty(0, dtype) for name, dtype in content.arrays.items()}
        found = {}
        for name, prefix in prefixes(self._folder, split, entry.shard, content.arrays).items():
            opened = self._open(prefix)
            if len(opened) != entry.documents:
                raise ArtifactError(f"{name} has {len(opened)} sequences, not {entry.documents}", where=str(prefix))
            found[name] = opened.get(sequence)
        return found

    def _not_shifted(self) -> None:
        found = self._agreement
        if not found.enough:
            return
        self.report.ran("labels compared with the entries beside them", found.labels)
        words = found.in_words
        if found.best != 0 and found.sure:
            self.report.wrong("alignment", f"top 1 is the label most often {found.best:+d} labels away: {words}")
        elif not found.sure:
            message = f"the teacher agrees with the labels no more often than with those beside them: {words}"
            self.report.wrong("alignment unknown", message, severity="warning")

    def _scored_again(self, k: int) -> None:
        """Scores the chosen documents with the teacher, one by one."""
        if self._teacher is None:
            return
        for split, shard, document, stored in self._again:
            (scored,) = self._teacher.scores([document], k)
            tolerance = self._teacher.tolerance + CODING
            differ = np.abs(scored.own.clip(min=-32) - stored.own)
            ranked = np.abs(scored.logprobs.clip(min=-32) - stored.logprobs).max(axis=1)
            clear = _clear(scored, tolerance)
            wrong = (differ > tolerance) | (ranked > tolerance) | ((scored.ids != stored.ids) & clear).any(axis=1)
            if wrong.any():
                at = int(wrong.argmax())
                self.report.wrong(
                    "teacher",
                    f"the teacher scores it otherwise: {scored.own[at]:.4f}, stored is {stored.own[at]:.4f}",
                    split=split,
                    shard=shard,
                    sequence=document.sequence,
                    offset=int(document.positions[at]),
                )
            self.report.ran("documents scored again", 1)


def _clear(signals: Signals, gap: float) -> npt.NDArray[np.bool_]:
    """Whether each rank is farther than `gap` from those beside it, so that its id is certain: bool [P, k]."""
    apart = -np.diff(signals.logprobs, axis=1) > 2 * gap
    edge = np.zeros((len(signals), 1), np.bool_)  # the last rank may lose its place to a token that is not held
    clear: npt.NDArray[np.bool_] = np.hstack([~edge, apart]) & np.hstack([apart, edge])
    return clear


def _decoded(stored: dict[str, npt.NDArray[Any]], k: int) -> Signals:
    """As docs/format.md says, by code of its own."""

    def logprobs(codes: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        return (-32 * np.square(codes.astype(np.float64) / 65535)).astype(np.float32)

    ids = stored[TOP_LOW].astype(np.int64)
    if TOP_HIGH in stored:
        ids = ids + 65536 * stored[TOP_HIGH].astype(np.int64)
    return Signals(
        ids=ids.astype(np.int32).reshape(-1, k),
        logprobs=logprobs(stored[TOP_LOGP]).reshape(-1, k),
        own=logprobs(stored[OWN]) if OWN in stored else np.full(stored[REST].size, np.nan, np.float32),
        rest=logprobs(stored[REST]),
    )


def _wrong_values(signals: Signals, labels: npt.NDArray[np.int32], content: TeacherContent) -> tuple[int, str] | None:
    """What `what_is_wrong` finds, and sums that the rest does not complete to 1, within the precision of the coding."""
    sums = content.sums
    wrong = what_is_wrong(
        signals, labels, content.k, content.dataset.vocabulary, coded=CODING, sums=sums, has_own=content.own
    )
    if wrong is not None or content.padded:
        return wrong
    total = np.exp(signals.logprobs.astype(np.float64)).sum(axis=1) + np.exp(signals.rest.astype(np.float64))
    far = np.abs(total - 1) > CODING + sums
    return (
        (int(far.argmax()), f"the probabilities and the rest are {total[far][0]:.4f} together") if far.any() else None
    )


def validate_signals(
    folder: Path,
    root: Path,
    open_with: OpenIndexed,
    *,
    teacher: Teacher | None = None,
    deep: int = 0,
    on_progress: OnProgress | None = None,
) -> Report:
    """The report of all checks. `deep`: how many documents the teacher scores again.

    Raises DatasetError if the signals are those of another dataset, ArtifactError if they cannot be read.
    """
    if deep and teacher is None:
        raise DatasetError("documents are scored again by a teacher", remedy="give --model DIR too")
    return SignalsCheck(folder, root, read_teacher(folder)[0], open_with, teacher=teacher, deep=deep).run(on_progress)
