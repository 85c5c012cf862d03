"""Audits a whole dataset: workers read its units, and their findings are joined.

In: a place, a model, options. Out: `Result`. Memory depends on a batch and the examples, not on the dataset.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from spanloom.auditing.auditor import Auditor, ModelOptions, make_auditor
from spanloom.auditing.conversations import Conversations, merged
from spanloom.auditing.duplicates import Places, Spool
from spanloom.auditing.listing import Listed, Listing, opened_listing
from spanloom.auditing.messages import Written, write_messages
from spanloom.auditing.readers.opened import ROWS_OF_UNIT, Opened, open_data, read_unit
from spanloom.auditing.readers.unit import Reading, Unit
from spanloom.auditing.result import EXAMPLES, Example, Result
from spanloom.auditing.shown import shown_document
from spanloom.building.ordered import in_order
from spanloom.errors import SourceError
from spanloom.families.harmony.tokenizer import NAME as HARMONY
from spanloom.families.models.probe.frames import Learned
from spanloom.families.models.probe.retokenised import retokenised
from spanloom.law import classes
from spanloom.law.documents import Documents, Ints
from spanloom.law.judging import Judged, judge
from spanloom.machine import workers_that_fit
from spanloom.storage.temporaries import temporary_folder
from spanloom.workers import OnProgress, process_pool

ENCODED = 256
"""How many documents are encoded again if there are no messages."""

_OF_FRAMES = (classes.CONTEXT_TRAINED, classes.COMPLETION_UNTRAINED)
"""Classes that a proven document has only if its frames are misread."""

WORKER_BYTES = 1 << 30
_UNIT_BITS = 40


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """`sample`: number of rows, drawn by `seed`, None for all; `declare`: classes reported as notes; `rows`: a file for
    the list of all findings; `tolerated`: class → the share of documents up to which it does not fail the audit."""

    data: Path
    model: ModelOptions
    messages: Path | None = None
    reading: Reading = field(default_factory=Reading)
    sample: int | None = None
    seed: int = 0
    workers: int | None = None
    declare: tuple[str, ...] = ()
    rows: Path | None = None
    tolerated: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A unit for a worker. `rows`: rows of the file to read, None for all; `encode`: number of documents to encode.

    `messages`: the folder of `write_messages`. `joins_answers`: whether an answer that a document does not train is
    looked for in others.
    """

    number: int
    unit: Unit
    rows: Ints | None
    options: AuditOptions
    learned: Learned
    encode: int
    messages: Path | None = None
    joins_answers: bool = False

    @property
    def size(self) -> int:
        """Rows that are read."""
        return self.unit.rows if self.rows is None else self.rows.size


@dataclass
class _Part:
    """The findings of a worker in a unit."""

    number: int
    rows: int = 0
    documents: int = 0
    tokens: int = 0
    trained: int = 0
    encoded: int = 0
    found: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    places: list[Places] = field(default_factory=list)
    answers: list[Places] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    matched: int = 0
    unmatched: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class _Spools:
    """Of whole documents, and of their first questions."""

    def __init__(self, folder: Path) -> None:
        (folder / "documents").mkdir()
        (folder / "answers").mkdir()
        self.documents, self.answers = Spool(folder / "documents"), Spool(folder / "answers")


class _Whole(_Part):
    """The findings of all units so far. Units end in order."""

    def __init__(self) -> None:
        super().__init__(0)

    def add(self, part: _Part, spools: "_Spools") -> None:
        for name in ("rows", "documents", "tokens", "trained", "encoded", "matched", "unmatched"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.refused.update(part.refused)
        self.found.update(part.found)
        for name, shown in part.examples.items():
            self.examples[name] = [*self.examples.get(name, ()), *shown][:EXAMPLES]
        for spool, batches in ((spools.documents, part.places), (spools.answers, part.answers)):
            first = part.number << _UNIT_BITS
            for places in batches:
                spool.add(places, first)
                first += places.lengths.size


def audit(
    options: AuditOptions,
    on_progress: OnProgress = lambda _done, _of: None,
    *,
    auditor: Auditor | None = None,
) -> Result:
    """Audits a dataset. Raises SpanloomError for unreadable data or an incomplete model.

    `auditor`: of `options.model`, to share it between datasets; by default it is made here.
    """
    opened = open_data(options.data, options.reading)
    if opened.as_text:
        options = replace(options, model=replace(options.model, control_texts="text"))
    auditor = auditor or make_auditor(options.model)
    _check_tokenizer(opened, auditor, options.data)
    misread = [name for name in _OF_FRAMES if name in auditor.unshown]
    if misread and options.messages is None:
        raise SourceError(
            f"frames cannot be read off the tokens of this template: {misread[0]} is found in proven documents",
            where=auditor.model.name,
            remedy="give the conversations: --messages PLACE",
        )
    all_rows = opened.rows
    chosen = _chosen(all_rows, options)
    whole = _Whole()
    with temporary_folder("spanloom-audit-") as folder, opened_listing(options.rows) as listing:
        spools = _Spools(Path(folder))
        written, scratch = Written(), None
        if options.messages is not None:
            scratch = Path(folder) / "messages"
            scratch.mkdir()
            written = write_messages(options.messages, scratch, auditor.model.template)
        tasks = _tasks(opened.units, chosen, options, auditor, scratch)
        total = sum(task.size for task in tasks)
        for part in _parts(tasks, options, auditor):
            whole.add(part, spools)
            listing.add(part.listed)
            on_progress(whole.rows, total)
        joined = _joined(spools, whole.found, {task.number: task.unit.shown for task in tasks}, listing)
    if not whole.documents:
        raise SourceError("the dataset has no documents", where=str(options.data), remedy="give another")
    if written.read and not whole.matched:
        raise _no_conversations(options, whole.documents)
    for name, numbers in joined.items():
        whole.examples[name] = list(_shown_again(name, numbers, tasks, auditor))
    messages = {
        "rows": written.read,
        "refused": dict(sorted(written.refused.items())),
        "matched": whole.matched,
        "unmatched": whole.unmatched,
        "not_proven": dict(sorted(whole.refused.items())),
    }
    return Result(
        data=str(options.data),
        container=opened.container,
        model=auditor.model.name,
        rows=whole.rows,
        all_rows=all_rows,
        documents=whole.documents,
        tokens=whole.tokens,
        trained=whole.trained,
        found=dict(whole.found),
        examples={name: tuple(shown) for name, shown in whole.examples.items()},
        declared={**opened.declared, **dict.fromkeys(options.declare, "--declare")},
        unshown=auditor.unshown,
        proven=auditor.proven,
        encoded=whole.encoded,
        messages=messages if options.messages is not None else None,
        seed=options.seed if chosen is not None else None,
        tolerated=options.tolerated,
    )


def _check_tokenizer(opened: Opened, auditor: Auditor, data: Path) -> None:
    """Raises SourceError if the manifest names another `tokenizer.json` than the model's.

    The asset of Harmony is another file of the vocabulary that gpt-oss has in its `tokenizer.json`.
    """
    made, given = opened.tokenizer, auditor.model.tokenizer
    if made is None or made.name == HARMONY or made.sha256 == given.sha256:
        return
    raise SourceError(
        f"the dataset was made with the tokenizer {made.name} (sha256 {made.sha256[:12]}), the model has {given.name} "
        f"(sha256 {given.sha256[:12]})",
        where=str(data),
        remedy="give the model that it was built for: --model DIR",
    )


def _no_conversations(options: AuditOptions, documents: int) -> SourceError:
    return SourceError(
        f"none of the {documents:,} documents is of a conversation in these messages",
        where=str(options.messages),
        remedy="give the conversations that the dataset was made of, or none: frames alone are judged then",
    )


def _chosen(rows: int, options: AuditOptions) -> Ints | None:
    """The sorted numbers of the rows to read; None for all."""
    if options.sample is None or options.sample >= rows:
        return None
    drawn = np.random.default_rng(options.seed).choice(rows, options.sample, replace=False, shuffle=False)
    return np.sort(drawn)


def _tasks(
    units: list[Unit], chosen: Ints | None, options: AuditOptions, auditor: Auditor, messages: Path | None
) -> list[_Task]:
    """The units with rows to read."""
    encode = -(-ENCODED // max(len(units), 1))
    tasks = []
    begin = 0
    for number, unit in enumerate(units):
        rows = None
        if chosen is not None:
            own = chosen[np.searchsorted(chosen, begin) : np.searchsorted(chosen, begin + unit.rows)]
            rows = own - begin + unit.first
        begin += unit.rows
        if rows is None or rows.size:
            tasks.append(
                _Task(
                    number=number,
                    unit=unit,
                    rows=rows,
                    options=options,
                    learned=auditor.learned,
                    encode=encode,
                    messages=messages,
                    joins_answers=chosen is None and messages is None and classes.HISTORY_UNTRAINED in auditor.unshown,
                )
            )
    return tasks


def _parts(tasks: list[_Task], options: AuditOptions, auditor: Auditor) -> Iterator[_Part]:
    """Yields the findings of each finished unit; a single unit is read in this process."""
    rows = sum(task.size for task in tasks)
    # A worker loads the tokenizer anew: not for a few rows.
    fitting = options.workers or min(workers_that_fit(WORKER_BYTES), max(1, rows // (4 * ROWS_OF_UNIT)))
    workers = min(fitting, len(tasks))
    if workers <= 1:
        conversations = _conversations(tasks, auditor)
        for task in tasks:
            yield _audit_unit(task, auditor, conversations)
        return
    with process_pool(workers) as pool:
        for _, part in in_order(tasks, _in_worker, pool, what=lambda _: "the audit"):
            yield part


def _conversations(tasks: list[_Task], auditor: Auditor) -> Conversations | None:
    """The conversations that all tasks share."""
    folder = tasks[0].messages if tasks else None
    return Conversations(folder, auditor) if folder is not None else None


_made: dict[int, tuple[Auditor, Conversations | None]] = {}
"""The auditor that all units of a worker share."""


def _in_worker(task: _Task) -> _Part:
    if 0 not in _made:
        auditor = make_auditor(task.options.model, learned=task.learned)
        _made[0] = auditor, _conversations([task], auditor)
    return _audit_unit(task, *_made[0])


def _audit_unit(task: _Task, auditor: Auditor, conversations: Conversations | None) -> _Part:
    part = _Part(task.number)
    for documents in read_unit(task.unit, task.rows):
        if not len(documents):
            continue
        judged, proven_wrong, findings = _judged(documents, auditor, conversations, part, task.encode - part.encoded)
        for name, (numbers, places) in findings.items():
            if name in task.learned.unshown:  # only a proof shows it
                shows = np.isin(numbers, proven_wrong)
                numbers, places = numbers[shows], places[shows]
            if not numbers.size:
                continue
            part.found[name] += numbers.size
            shown = part.examples.setdefault(name, [])
            both = list(zip(numbers.tolist(), places.tolist(), strict=True))
            for number, place in both[: EXAMPLES - len(shown)]:
                shown.append(_example(auditor, documents, judged, number, place, name))
            if task.options.rows is not None:
                part.listed += [_listed(documents, number, place, name) for number, place in both]
        part.documents += len(documents)
        part.tokens += documents.tokens.size
        part.trained += int(np.count_nonzero(documents.trained))
        part.places.append(Places.whole(documents))
        if task.joins_answers:
            part.answers.append(Places.questions(documents, judged.frames))
    part.rows = task.size
    return part


def _judged(
    documents: Documents, auditor: Auditor, conversations: Conversations | None, part: _Part, encode: int
) -> tuple[Judged, Ints, dict[str, tuple[Ints, Ints]]]:
    """The findings of a batch, with those of proofs or of a second encoding; and the documents whose mask a proof shows
    to be wrong."""
    judged = judge(documents, auditor.tables)
    if conversations is None:
        places = retokenised(auditor.model, documents, judged.frames, max(encode, 0))
        part.encoded += min(max(encode, 0), len(documents))
        added = {classes.RETOKENISED: places} if places else {}
        return judged, np.zeros(0, np.int64), merged(judged.found, added, documents.ends)
    flags = auditor.tables.of(documents.tokens)
    proofs, compared = conversations.compare(documents, judged.frames, flags)
    judged = judge(documents, auditor.tables, proofs)
    part.matched += compared.matched
    part.unmatched += compared.unmatched
    part.refused.update(compared.refused)
    starts = documents.ends - documents.lengths
    differs = np.add.reduceat(documents.trained != proofs.sampled, starts) > 0
    return judged, np.flatnonzero(proofs.known & differs), merged(judged.found, compared.places, documents.ends)


def _example(auditor: Auditor, documents: Documents, judged: Judged, number: int, place: int, name: str) -> Example:
    start = int(documents.ends[number] - documents.lengths[number])
    return Example(
        place=documents.place(number),
        row=int(documents.rows[number]),
        token=place - start,
        document=shown_document(auditor, documents, judged, number, place, name),
    )


def _listed(documents: Documents, number: int, place: int, name: str) -> Listed:
    start = int(documents.ends[number] - documents.lengths[number])
    return documents.file, int(documents.rows[number]), int(documents.parts[number]), name, place - start


def _joined(spools: _Spools, found: Counter[str], files: Mapping[int, str], listing: Listing) -> dict[str, list[int]]:
    """Counts and lists documents that repeat an earlier one, and those whose first answer no document trains. Returns
    the numbers of the first ones by class. `files`: of units."""
    first: dict[str, list[int]] = {}
    for name, batches in (
        (classes.DUPLICATE, spools.documents.repeated()),
        (classes.HISTORY_UNTRAINED, spools.answers.untrained()),
    ):
        for records in batches:
            if not records.size:
                continue
            found[name] += records.size
            numbers = np.sort(records["number"])[:EXAMPLES].tolist()
            first[name] = sorted([*first.get(name, ()), *numbers])[:EXAMPLES]
            listing.add(
                (files[int(record["number"]) >> _UNIT_BITS], int(record["row"]), int(record["part"]), name, token)
                for record in (records if listing.is_open else ())
                for token in [int(record["tokens"]) if name == classes.HISTORY_UNTRAINED else 0]
            )
    return first


def _shown_again(name: str, numbers: list[int], tasks: list[_Task], auditor: Auditor) -> Iterator[Example]:
    """Reads the documents with these numbers again."""
    by_number = {task.number: task for task in tasks}
    for unit in sorted({number >> _UNIT_BITS for number in numbers}):
        wanted = {number & ((1 << _UNIT_BITS) - 1) for number in numbers if number >> _UNIT_BITS == unit}
        first = 0
        for documents in read_unit(by_number[unit].unit, by_number[unit].rows):
            own = sorted(number - first for number in wanted if first <= number < first + len(documents))
            if own:
                judged = judge(documents, auditor.tables)
            for number in own:
                place = int(documents.ends[number] - documents.lengths[number])
                yield _example(auditor, documents, judged, number, place, name)
            first += len(documents)
            if first > max(wanted):
                break
