"""Converts records in order, in this process or in workers, with the same results and counts.

In: parsed records, or lines that a worker parses. Out: rows, rejects, and the counts up to each of them.

    this process   lines ─► batches ─────────────► ids, counts ─► the shard
    workers                   └─► read, convert ─┘

Workers take batches of records and do not know the ids and contents of earlier batches. So this process checks whether
an id is new, and then, of duplicates to be left out, whether the content is. If one is not, or if a shard ends within a
batch, this process counts the affected records again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from spanloom.building.ordered import in_order
from spanloom.conversations.forms import Form, KeyMap
from spanloom.conversations.forms.registry import FORMS
from spanloom.conversations.ids import SeenIds
from spanloom.conversations.outcomes import Counts, LeftAway, Read, Rejected
from spanloom.conversations.source.writer import OutputRow
from spanloom.conversations.turns import Refusal
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted, Converter, duplicate
from spanloom.records.json_lines import unique_value
from spanloom.workers import Pool

BATCH = 256
Outcome = OutputRow | Rejected | None
"""The result of converting a record; None if it is left out."""


class InOrder:
    """The results for records, in order. `counts`: up to the last result yielded, including those of an earlier run;
    `refused`: how many count against the limit."""

    def __init__(
        self, form: Form, conversion: ChatConversion, reads: Iterator[Read], counts: Counts, ids: SeenIds
    ) -> None:
        self._form, self._conversion = form, conversion
        self._reads, self._ids = reads, ids
        self._contents = SeenIds() if conversion.leaves_out_duplicates else None
        self._before = counts
        self.refused = counts.refused.total()
        self._batch: tuple[Sequence[Read], Counts] = ((), Counts())
        self._done = 0
        self._repeated: list[Counts] = []
        self._here_by: Converter | None = None

    def outcomes(self, pool: Pool | None) -> Iterator[Outcome]:
        """The outcome of each record. `pool`: the workers that convert; None converts in this process."""
        if pool is None:
            yield from self._in_this_process()
            return
        for reads, outcomes, counts in self._batches(pool):
            self._batch, self._done, self._repeated = (reads, counts), 0, []
            for read, outcome in zip(reads, outcomes, strict=True):
                if isinstance(outcome, dict) and (repeats := self._repeats(read, outcome)) is not None:
                    self._correct(read, repeats)
                    outcome = repeats
                self._done += 1
                self.refused += isinstance(outcome, Rejected) and outcome.counts
                yield outcome
            self._before = self.counts
            self._batch, self._done, self._repeated = ((), Counts()), 0, []

    def _in_this_process(self) -> Iterator[Outcome]:
        """The outcomes, converted in this process one after the other."""
        converter = self._here_by = Converter(self._form, self._conversion, self._before)
        converter.ids = self._ids
        for read in self._reads:
            outcome = _outcome(converter.convert(read))
            self.refused += isinstance(outcome, Rejected) and outcome.counts
            yield outcome

    @property
    def counts(self) -> Counts:
        """The counts up to the last outcome yielded."""
        if self._here_by is not None:
            return self._here_by.counts
        reads, counts = self._batch
        if self._done < len(reads):
            counts = convert_batch(self._form.name, self._form.keys, self._conversion, reads[: self._done])[1]
        return _sum([self._before, counts, *self._repeated])

    def _repeats(self, read: Read, row: OutputRow) -> Rejected | None:
        """The rejection of a record whose id or content an earlier record has. A record that is left out for its
        content has taken its id, as in one process."""
        if not self._ids.add(str(row["id"])):
            return Rejected(
                read=parsed(read),
                reason=Refusal.ID_REPEATED.value,
                detail=f"the id {str(row['id'])!r} is that of a record before",
                remedy="--map id= (make ids)",
            )
        if self._contents is not None and not self._contents.add(row["messages_json"] or b""):
            return duplicate(parsed(read))
        return None

    def _correct(self, read: Read, rejected: Rejected) -> None:
        """Corrects the counts of the batch, in which the record was converted."""
        (_, alone) = convert_batch(self._form.name, self._form.keys, self._conversion, [read])
        taken_back: dict[str, Any] = {
            name: Counter({key: -count for key, count in value.items()}) if isinstance(value, Counter) else -value
            for name, value in vars(alone).items()
        }
        instead = Counts(read=1, files=Counter({read.file: 1}), skipped=Counter({rejected.reason: 1}))
        self._repeated += [Counts(**taken_back), instead]

    def _batches(self, pool: Pool) -> Iterator[tuple[Sequence[Read], Sequence[Outcome], Counts]]:
        """Each batch of records with its outcomes and counts."""
        batches = iter(lambda: list(islice(self._reads, BATCH)), [])
        convert = partial(convert_batch, self._form.name, self._form.keys, self._conversion)
        done = in_order(batches, convert, pool, what=lambda batch: f"the records from {batch[0].where} on")
        return ((batch, *results) for batch, results in done)


def convert_batch(
    form: str, keys: KeyMap, conversion: ChatConversion, reads: Sequence[Read]
) -> tuple[list[Outcome], Counts]:
    """The outcomes of records and their counts, without knowledge of earlier records."""
    kind = next(kind for kind in FORMS if kind.name == form)
    converter = Converter(Form(kind=kind, keys=keys), conversion)
    converter.contents = None  # only the process that has all records decides
    outcomes = [_outcome(converter.convert(parsed(read))) for read in reads]
    return outcomes, converter.counts


def _outcome(done: Converted | Rejected | LeftAway) -> Outcome:
    if isinstance(done, Converted):
        return done.row
    return done if isinstance(done, Rejected) else None


def parsed(read: Read) -> Read:
    """Parses a record that is still a line: returns it with its value or its fault."""
    if read.line is None:
        return read
    value, fault = unique_value(read.line)
    return replace(read, line=None, value=value, fault=fault)


def _sum(parts: Sequence[Counts]) -> Counts:
    """The sum of the counts of all parts, without zeros."""
    total = Counts()
    for part in parts:
        for name, value in vars(part).items():
            if isinstance(value, Counter):
                getattr(total, name).update(value)
            else:
                setattr(total, name, getattr(total, name) + value)
    for name, value in vars(total).items():
        if isinstance(value, Counter):
            setattr(total, name, Counter({key: count for key, count in value.items() if count}))
    return total
