"""Scores a dataset: for each trained label, what a teacher thinks of it and of other tokens.

In: a finished dataset, a teacher, k. Out: a folder of signals (`format`). Parts are scored one after the other and
kept: after an interruption the same command goes on behind the last. The teacher scores one document before the first
part, when it goes on, and at the end; if its scores differ by more than its tolerance, nothing is finished.

With `shards` only those are scored, as one task of several does; `join` makes signals of what all tasks wrote.

With signals that are stored elsewhere (`carry`, an import), their documents are not scored again. Then there may be no
teacher: other documents have no signals.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversations.source.rejects import reject_limit, too_many_rejects
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.lock import check_apart
from spanloom.dataset.root.opened import content_at
from spanloom.errors import ConflictError, DatasetError, OptionError, RejectedRowError
from spanloom.megatron.indexed import ParallelWriter
from spanloom.provenance import environment_here, readable_json
from spanloom.storage import remove_files, write_atomically
from spanloom.storage.folders.filling import Steps, filling_in_steps
from spanloom.teacher.coding import CODING
from spanloom.teacher.format import (
    OF_TOP,
    OWN,
    SCHEMA_VERSION,
    TEACHER_JSON,
    WITHOUT,
    TeacherContent,
    arrays_for,
    check_dataset,
    content_of_shards,
    prefixes,
    read_teacher,
    span_ids,
)
from spanloom.teacher.parts import PART_TOKENS, coded, read_part, write_part
from spanloom.teacher.positions import ScoredDocument, documents_of
from spanloom.teacher.signals import Signals, TeacherError, what_is_wrong
from spanloom.teacher.sources.teacher import TOO_LONG, StoredSignals, Teacher, Without
from spanloom.workers import OnProgress

RECORD_NAME = ".spanloom-teacher-unfinished"
PARTS = ".parts"
CANARY_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What is scored. `k`: tokens a position; `spans`: names of the spans that are scored, None for all; `max_rejects`:
    how many documents of a shard may have no signals, as `reject_limit` takes it, None for any number.

    Raises SpanloomError for a `max_rejects` that is neither a number nor a share.
    """

    k: int
    spans: tuple[str, ...] | None = None
    max_rejects: str | None = None

    def __post_init__(self) -> None:
        if self.max_rejects is not None:
            reject_limit(self.max_rejects, 0)


def score(
    root: Path,
    out: Path,
    teacher: Teacher | None,
    scoring: Scoring,
    *,
    carried: StoredSignals | None = None,
    keep: Callable[[Sequence[str]], None] | None = None,
    named: str | None = None,
    shards: Sequence[int] | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[TeacherContent, bool]:
    """Fills the folder `out`. Returns the content of its manifest, and whether it was there already.

    teacher      None only with `carried`; then it is that of the carried signals
    keep         receives the names of files in `out` that resume the run, after each part
    named        where the dataset is, if `root` is a copy
    shards       numbers of the shards that are scored, None for all; then the environment of the manifest has the
                 `canary`, which `join` compares
    on_progress  receives the number of labels that are done, and their total

    Raises TeacherError for scores that cannot be a teacher's, ConflictError if `out` has anything else, DatasetError if
    `carried` are signals of another teacher, k, or spans, RejectedRowError if more documents of a shard than allowed
    have no signals: what is scored is kept, and the same command with another limit goes on.
    """
    dataset = content_at(root)
    _check(dataset, scoring, root)
    check_apart(root, out)
    names = None if scoring.spans is None else list(scoring.spans)
    identity: dict[str, Any] = {"dataset": dataset.sha256, "k": scoring.k, "spans": names}
    if teacher is not None:
        identity["teacher"] = teacher.identity
    if carried is not None:
        _check_carried(carried, identity)
        identity["teacher"] = carried.identity
    if (out / TEACHER_JSON).is_file() and not (out / RECORD_NAME).exists():
        return _standing(out, root, dataset, identity, shards, _Rejects(dataset, scoring)), True
    identity["part_tokens"] = part_tokens(teacher)
    if shards is not None:
        identity["shards"] = sorted(shards)
    if carried is not None:
        identity |= {"carried": carried.sha256, "scored": teacher is not None}
    _check_begun(out, identity)
    run = _Run(root, out, dataset, teacher, scoring, carried, keep, on_progress, shards)
    with filling_in_steps(out, record_name=RECORD_NAME, identity=identity, last=TEACHER_JSON) as steps:
        if not steps.finished:
            data = run.files(steps, named or str(root.resolve()))
            if content_at(root).sha256 != dataset.sha256:
                raise DatasetError("the dataset was changed while it was scored", where=str(root))
            write_atomically(out / TEACHER_JSON, data)
        remove_files(out, run.parts())
    return read_teacher(out)[0], False


def part_tokens(teacher: Teacher | None) -> int:
    """About how many tokens a part has. It decides where a run goes on, so a begun run keeps it."""
    return PART_TOKENS if teacher is None else min(PART_TOKENS, teacher.at_once)


def _check(dataset: Content, scoring: Scoring, root: Path) -> None:
    span_ids(None if scoring.spans is None else list(scoring.spans), dataset)
    if not 1 <= scoring.k <= dataset.tokenizer.vocab_size:
        raise OptionError(f"k is {scoring.k}; the tokenizer has {dataset.tokenizer.vocab_size:,} tokens")
    if not {"tokens", "lossmask"} <= dataset.arrays.keys():
        raise DatasetError("the dataset has no tokens and loss mask", where=str(root))


def _check_carried(carried: StoredSignals, identity: dict[str, Any]) -> None:
    old = {"teacher": carried.identity, "k": carried.k, "spans": carried.spans}
    if differing := [name for name, value in old.items() if identity.get(name, value) != value]:
        raise DatasetError(
            f"the old signals have another {differing[0]}: {old[differing[0]]}",
            remedy="give the teacher of the old signals as it was given then, with the same dtype",
        )


def _check_begun(out: Path, identity: dict[str, Any]) -> None:
    """Raises ConflictError if the folder has parts of other signals: they took hours, and are not removed."""
    if not (out / RECORD_NAME).is_file():
        return
    with (out / RECORD_NAME).open("rb") as stream:
        first = stream.readline()
    try:
        begun = json.loads(first)["identity"]
        differing = [name for name, value in identity.items() if begun.get(name) != value]
    except (ValueError, KeyError, TypeError, AttributeError):  # killed before it was written
        return
    if differing:
        raise ConflictError(
            f"this folder has the beginning of other signals: {differing[0]} differs",
            where=str(out),
            remedy="run the command that began it, or give another --out",
        )


def _places(dataset: Content, shards: Sequence[int] | None) -> list[tuple[str, int]]:
    return [place for place in dataset.filled() if shards is None or place[1] in shards]


class _Rejects:
    """The documents without signals so far, against the limit of each shard."""

    def __init__(self, dataset: Content, scoring: Scoring) -> None:
        self._limit = scoring.max_rejects
        self._documents = {
            each.shard: sum(split.sequences for split in each.splits.values()) for each in dataset.shards
        }
        self._rejected: Counter[int] = Counter()

    def add(self, shard: int, documents: int, why: str, where: str) -> None:
        """Raises RejectedRowError if these are too many; it says `why`, and `where` they are."""
        self._rejected[shard] += documents
        counts = {"rejected": {TOO_LONG: self._rejected[shard]}, "rows_read": self._documents[shard]}
        if too_many_rejects(counts, self._limit):
            raise RejectedRowError(
                f"{why}; --max-rejects {self._limit} lets no more documents of the shard be without signals",
                where=where,
                remedy="a teacher that takes longer documents, or --max-rejects N (or 0.1%)",
            )


def _standing(
    out: Path,
    root: Path,
    dataset: Content,
    identity: dict[str, Any],
    shards: Sequence[int] | None,
    rejects: _Rejects,
) -> TeacherContent:
    """The signals that are there, if they are the same."""
    content, _ = read_teacher(out)
    check_dataset(content, dataset, out, root)
    there = {"dataset": dataset.sha256, "teacher": content.teacher, "k": content.k, "spans": content.spans}
    differing = [name for name in identity if there[name] != identity[name]]
    if differing := differing or (["shards"] if content.places != _places(dataset, shards) else []):
        raise ConflictError(
            f"this folder has other signals: {differing[0]} differs", where=str(out), remedy="give another --out"
        )
    for split, counts in content.splits.items():
        for entry in counts.shards:
            why = f"{entry.without:,} documents have no signals"
            rejects.add(entry.shard, entry.without, why, f"{out}, {split} shard {entry.shard}")
    return content


class _Run:
    """One run of `score`."""

    def __init__(
        self,
        root: Path,
        out: Path,
        dataset: Content,
        teacher: Teacher | None,
        scoring: Scoring,
        carried: StoredSignals | None,
        keep: Callable[[Sequence[str]], None] | None,
        on_progress: OnProgress | None,
        shards: Sequence[int] | None,
    ) -> None:
        self._keep = keep
        self._root, self._out, self._dataset, self._teacher, self._k = root, out, dataset, teacher, scoring.k
        self._carried = carried
        self._names = None if scoring.spans is None else list(scoring.spans)
        self._spans = span_ids(self._names, dataset)
        self._arrays = arrays_for(dataset.tokenizer.vocab_size, own=carried is None or carried.own)
        self._on_progress = on_progress
        self._part_tokens = part_tokens(teacher)
        self._done = self._answered = 0
        self._parts_in: Counter[tuple[str, int]] = Counter()
        self._rejects = _Rejects(dataset, scoring)
        self._shards, self._all = _places(dataset, shards), shards is None

    def files(self, steps: Steps, named: str) -> bytes:
        """Writes all files but the last. Returns that one. `named`: the dataset's place."""
        canary = self._canary(steps)
        self._check_teacher_of_carried()
        if not steps.ended:
            steps.begin([])
            steps.end({"canary": canary})
        number = 0
        for place in self._shards:
            for documents in self._parts_of(*place):
                number += 1
                self._parts_in[place] += 1
                if len(steps.ended) <= number:
                    self._part(steps, number, documents)
                for sequence, reason, detail in steps.ended[number]["without"]:
                    where = f"{place[0]} shard {place[1]}, document {sequence}"
                    self._rejects.add(place[1], 1, f"{reason}: {detail}", where)
                self._done += sum(each.positions.size for each in documents)
                self._answered = 0
                self._show(0)
        self._same_canary(canary, self._scored_canary(), "at the end")
        return self._assembled(steps, named, canary)

    def _show(self, labels: int) -> None:
        """Shows the labels of the parts that are done and, of the next one, those that have been answered so far.
        `labels`: how many more."""
        self._answered += labels
        if self._on_progress is not None:
            self._on_progress(self._done + self._answered, self._total)

    def _identity(self) -> dict[str, Any]:
        if self._teacher is not None:
            return self._teacher.identity
        assert self._carried is not None
        return self._carried.identity

    def parts(self) -> list[str]:
        """The files that are removed at the end."""
        folder = self._out / PARTS
        return [f"{PARTS}/{path.name}" for path in sorted(folder.glob("*.npz"))]

    def _parts_of(self, split: str, shard: int) -> Iterator[list[ScoredDocument]]:
        return documents_of(self._root, self._dataset, split, shard, self._spans, self._part_tokens)

    @cached_property
    def _total(self) -> int:
        """The labels of the scored spans."""
        spans = self._names if self._names is not None else self._dataset.span_names[1:]
        counts = {shard.shard: shard.splits for shard in self._dataset.shards}
        return sum(counts[shard][split].span_tokens.get(span, 0) for split, shard in self._shards for span in spans)

    def _part(self, steps: Steps, number: int, documents: Sequence[ScoredDocument]) -> None:
        name = f"{PARTS}/{number:06d}.npz"
        padded = 0 if self._teacher is None else self._teacher.padded
        scored, without, fresh = self._scored(documents)
        steps.begin([name])
        sha256 = write_part(self._out / name, coded(scored, self._k, list(self._arrays)))
        steps.end(
            {
                "sha256": sha256,
                "without": [[sequence, each.reason, each.detail] for sequence, each in without],
                "padded": 0 if self._teacher is None else self._teacher.padded - padded,
                "carried": sum(len(each) for each in scored) - fresh,
            }
        )
        if self._keep is not None:
            self._keep([name, RECORD_NAME])

    def _scored(self, documents: Sequence[ScoredDocument]) -> tuple[list[Signals], list[tuple[int, Without]], int]:
        """The signals of each document, of no position where it has none; the documents without; and how many labels
        were scored now."""
        wanted = [each for each in documents if each.positions.size]
        found = {} if self._carried is None else self._carried.of(wanted)
        for each in wanted:
            if each.sequence in found:
                self._prove(each, found[each.sequence], coded=CODING)
        missing = [each for each in wanted if each.sequence not in found]
        fresh: list[Signals] = []
        without = []
        if self._teacher is None:
            assert self._carried is not None
            without = [
                (each.sequence, Without(self._carried.missing, f"{each.tokens.size:,} tokens")) for each in missing
            ]
        else:
            longest = self._teacher.context
            fitting = [each for each in missing if each.tokens.size <= longest]
            fresh = self._teacher.scores(fitting, self._k, self._show)
            for each, signals in zip(fitting, fresh, strict=True):
                self._prove(each, signals)
                found[each.sequence] = signals
            without = [
                (each.sequence, Without(TOO_LONG, f"{each.tokens.size:,} tokens; the teacher takes {longest:,}"))
                for each in missing
                if each.tokens.size > longest
            ]
        signals_of = [found.get(each.sequence, Signals.none(self._k)) for each in documents]
        return signals_of, without, sum(map(len, fresh))

    def _prove(self, document: ScoredDocument, signals: Signals, coded: float = 0) -> None:
        own, sums = (True, 0.0) if self._carried is None else (self._carried.own, self._carried.sums)
        wrong = what_is_wrong(
            signals, document.labels, self._k, self._dataset.tokenizer.vocab_size, coded=coded, sums=sums, has_own=own
        )
        if wrong is not None:
            position, why = wrong
            raise TeacherError(
                f"the teacher's answer is wrong: {why}", where=f"document {document.sequence}, label {position}"
            )

    def _canary(self, steps: Steps) -> list[float]:
        """The scores of one document, which must be those of the run before."""
        scored = self._scored_canary()
        if steps.ended:
            self._same_canary(steps.ended[0]["canary"], scored, "since the run that is resumed")
            known: list[float] = steps.ended[0]["canary"]
            return known
        return scored

    def _scored_canary(self) -> list[float]:
        """Log-probabilities of the labels in the dataset's first document with some, in its first tokens. Empty without
        a teacher."""
        if self._teacher is None:
            return []
        for place in self._dataset.filled():
            for part in self._parts_of(*place):
                for each in part:
                    inside = each.positions < min(CANARY_TOKENS, self._teacher.context)
                    if inside.any():
                        last = int(each.positions[inside][-1]) + 1
                        short = ScoredDocument(
                            sequence=each.sequence,
                            tokens=each.tokens[:last],
                            positions=each.positions[inside],
                            labels=each.labels[inside],
                        )
                        (signals,) = self._teacher.scores([short], self._k)
                        self._prove(short, signals)
                        return [round(value, 6) for value in signals.own.tolist()]
        raise DatasetError("the dataset has no label to score", where=str(self._root))

    def _check_teacher_of_carried(self) -> None:
        """The teacher must score the first document that is carried as it is stored."""
        if self._carried is None or self._teacher is None:
            return
        for place in self._shards:
            for part in self._parts_of(*place):
                for each in part:
                    if each.positions.size and each.tokens.size <= self._teacher.context and self._carried.has(each):
                        self._carried.check_teacher(self._teacher, each)
                        return

    def _same_canary(self, before: list[float], now: list[float], when: str) -> None:
        if self._teacher is None:
            return
        differ = np.abs(np.array(before) - np.array(now)).max() if len(before) == len(now) else np.inf
        if not differ <= self._teacher.tolerance:
            raise TeacherError(
                f"the teacher scores one document otherwise {when}: by {differ:.2g}, its tolerance is "
                f"{self._teacher.tolerance:g}",
                where=str(self._out),
                remedy="score with one teacher, on one kind of machine",
            )

    def _assembled(self, steps: Steps, named: str, canary: list[float]) -> bytes:
        """Joins the parts to the files of signals. Returns the manifest."""
        names = [
            f"{path.relative_to(self._out)}{suffix}"
            for split, shard in self._shards
            for path in prefixes(self._out, split, shard, self._arrays).values()
            for suffix in (".bin", ".idx")
        ]
        steps.begin([*names, WITHOUT])
        records = list(steps.ended[1:])
        entries: list[tuple[str, dict[str, Any]]] = []
        without: list[dict[str, Any]] = []
        number = 0
        for split, shard in self._shards:
            (self._out / split).mkdir(exist_ok=True)
            own = records[number : number + self._parts_in[split, shard]]
            files, positions, documents = self._shard(split, shard, number, own)
            number += len(own)
            missing = [each for record in own for each in record["without"]]
            without += [
                {"split": split, "shard": shard, "sequence": sequence, "reason": reason, "detail": detail}
                for sequence, reason, detail in missing
            ]
            counts = {"documents": documents, "positions": positions, "without": len(missing)}
            entries.append((split, {"shard": shard, **counts, "files": files}))
        carried = sum(record["carried"] for record in records)
        padded = sum(record["padded"] for record in records)
        if self._carried is not None and carried:
            padded += self._carried.padded  # of all its documents: how many these had is not stored
        made = {"teacher": self._identity(), "k": self._k, "spans": self._names, "padded": padded}
        made["own"] = OWN in self._arrays
        content, listing = content_of_shards(self._dataset, made, entries, without)
        write_atomically(self._out / WITHOUT, listing)
        steps.end({})
        environment = environment_here({"root": named})
        if self._carried is not None:
            environment["carried"] = {"labels": carried, "from": self._carried.sha256}
        if not self._all and self._teacher is not None:
            environment["canary"] = {"logprobs": canary, "tolerance": self._teacher.tolerance}
        return readable_json({"schema_version": SCHEMA_VERSION, "content": content, "environment": environment})

    def _shard(
        self, split: str, shard: int, before: int, records: Sequence[dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], int, int]:
        """Writes the files of one split of one shard. Returns them, its labels with signals, and its documents."""
        places = prefixes(self._out, split, shard, self._arrays)
        with ExitStack() as stack:
            writers = {
                top: stack.enter_context(
                    ParallelWriter(
                        {name: (places[name], dtype) for name, dtype in self._arrays.items() if (name in OF_TOP) == top}
                    )
                )
                for top in (True, False)
            }
            positions = 0
            for number, record in enumerate(records, before + 1):
                lengths, values = read_part(self._out / f"{PARTS}/{number:06d}.npz", record["sha256"], self._k)
                for top, writer in writers.items():
                    own = {name: flat for name, flat in values.items() if (name in OF_TOP) == top}
                    count = lengths[next(iter(own))]
                    writer.append(count, own)
                    positions += 0 if top else int(count.sum())
            documents = writers[True].sequences
            written = [file for writer in writers.values() for file in writer.publish()] if positions else []
        files = [{"path": f"{split}/{file.path.name}", "bytes": file.bytes, "sha256": file.sha256} for file in written]
        return files, positions, documents
