"""Columns of a table → documents: masks of all names, packed rows, padding.

In: a batch of rows. Out: `Documents`. Raises SourceError with file, row and remedy.

    input_ids  [a b c d e]   seq_lengths [3 2]     two documents: [a b c] [d e]
    labels     [-100 b c -100 e]                   trained 0 1 1 | 0 1

The mask is `labels`, otherwise `completion_mask` and `assistant_masks` (their conjunction if both exist, as in TRL),
otherwise `loss_mask`. Megatron-Bridge's rows have `seq_start_id`, and their `loss_mask` refers to the next token.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spanloom.auditing.readers.unit import LABELS, Reading
from spanloom.errors import SourceError
from spanloom.law.documents import Bools, Documents, Ints
from spanloom.supervision import IGNORED, ranges

TOKENS_COLUMN = "input_ids"
MASKS = ("labels", "completion_mask", "assistant_masks", "loss_mask")
STARTS, SIZES, POSITIONS, ATTENTION = "seq_start_id", "seq_lengths", "position_ids", "attention_mask"
_MAX_ID = 2**31 - 1


def masks_in(names: Sequence[str], reading: Reading, where: str) -> list[str]:
    """The columns of the mask. Raises SourceError if it or the tokens are missing, or a column occurs twice."""
    read = {TOKENS_COLUMN, *MASKS, STARTS, SIZES, POSITIONS, ATTENTION, reading.mask}
    if twice := sorted({name for name in names if name in read and names.count(name) > 1}):
        raise SourceError(f"the column {twice[0]} is there twice", where=where, remedy="write the dataset again")
    if TOKENS_COLUMN not in names:
        raise SourceError(
            f"there is no column {TOKENS_COLUMN}: {', '.join(names)}",
            where=where,
            remedy="give a dataset after tokenization, such as the trainer's prepared one",
        )
    if reading.mask is not None:
        if reading.mask not in names:
            raise SourceError(f"there is no column {reading.mask}", where=where, remedy=f"one of {', '.join(names)}")
        return [reading.mask]
    mask_names = [name for name in MASKS if name in names]
    if not mask_names:
        raise SourceError(
            "no column says which tokens are trained",
            where=where,
            remedy=f"one of {', '.join(MASKS)}; name another: --mask COLUMN",
        )
    if MASKS[0] in mask_names:
        return [MASKS[0]]
    return [name for name in mask_names if name != MASKS[3]] or mask_names


def needed_columns(names: Sequence[str], masks: Sequence[str]) -> list[str]:
    """The columns that are read."""
    return [TOKENS_COLUMN, *masks, *(name for name in (STARTS, SIZES, POSITIONS, ATTENTION) if name in names)]


def documents_of_rows(
    batch: pa.RecordBatch, masks: Sequence[str], reading: Reading, *, rows: Ints, file: str
) -> Documents:
    """The documents of a batch. `rows` int64 [R]: the numbers of its rows."""
    table = _Rows(batch, rows, file)
    ids, lengths = table.numbers(TOKENS_COLUMN)
    if ids.size and (ids.min() < 0 or ids.max() > _MAX_ID):
        bad = int(np.flatnonzero((ids < 0) | (ids > _MAX_ID))[0])
        raise table.fault_at(f"the id {int(ids[bad])} is no token id", bad, lengths)
    trained = np.ones(ids.size, np.bool_)
    differs: Bools | None = None
    for name in masks:
        values, own = table.numbers(name)
        table.check_lengths(name, own, lengths)
        if name == MASKS[0]:
            trained &= values != IGNORED
            differs = trained & (values != ids)
        else:
            if values.size and (values.min() < 0 or values.max() > 1):
                bad = int(np.flatnonzero((values < 0) | (values > 1))[0])
                raise table.fault_at(f"{name} has the value {int(values[bad])}, not 0 or 1", bad, lengths)
            trained &= values != 0
    names = batch.schema.names
    sizes, of_row = table.parts(lengths, names)
    aligned = reading.aligned or (LABELS if STARTS in names else "tokens")
    if aligned == LABELS:
        trained, differs = _one_later(trained, sizes), None
        if MASKS[0] in masks:
            labels, _ = table.numbers(MASKS[0])
            moved = np.roll(labels, 1)
            differs = trained & (moved != ids)
    tokens = ids.astype(np.int32, copy=False)
    if ATTENTION in names:
        keep = table.attended(lengths)
        kept = np.concatenate([[0], np.cumsum(keep)])
        ends = np.cumsum(sizes)
        sizes = kept[ends] - kept[ends - sizes]
        tokens, trained = tokens[keep], trained[keep]
        differs = None if differs is None else differs[keep]
    full = sizes > 0
    sizes, of_row = sizes[full], of_row[full]
    firsts = np.searchsorted(of_row, of_row)
    return Documents(
        tokens=tokens,
        trained=trained,
        differs=differs,
        lengths=sizes,
        rows=rows[of_row],
        parts=np.arange(of_row.size) - firsts,
        file=file,
    )


def _one_later(trained: Bools, sizes: Ints) -> Bools:
    """Values about labels, moved to their tokens; the first token of a document has none."""
    moved = np.empty_like(trained)
    if trained.size:
        moved[1:] = trained[:-1]
        starts = np.cumsum(sizes) - sizes
        moved[starts[sizes > 0]] = False
    return moved


class _Rows:
    """The lists of a batch, as flat arrays."""

    def __init__(self, batch: pa.RecordBatch, rows: Ints, file: str) -> None:
        self._batch, self._rows, self._file = batch, rows, file

    def fault(self, what: str, row: int) -> SourceError:
        """An error at a row of the batch."""
        number = int(self._rows[min(row, self._rows.size - 1)]) if self._rows.size else 0
        return SourceError(what, where=f"{self._file}, row {number}", remedy="write the dataset again")

    def fault_at(self, what: str, place: int, lengths: Ints) -> SourceError:
        """An error at a value of lists of these lengths."""
        return self.fault(what, int(np.searchsorted(np.cumsum(lengths), place, "right")))

    def numbers(self, name: str) -> tuple[npt.NDArray[Any], Ints]:
        """A column of lists of integers: the flat values, and int64 [R], the number in each row."""
        column = self._batch.column(name)
        kind = column.type
        if pa.types.is_fixed_size_list(kind):
            column = column.cast(pa.list_(kind.value_type))
            kind = column.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not (
            pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type)
        ):
            raise SourceError(
                f"the column {name} has the type {kind}, not lists of whole numbers",
                where=self._file,
                remedy="give a dataset after tokenization",
            )
        if column.null_count:
            raise self.fault(f"{name} is null", int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]))
        values, lengths = column.flatten(), pc.list_value_length(column).to_numpy(zero_copy_only=False)
        if values.null_count:
            at = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.fault_at(f"{name} has a null", at, lengths)
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.uint8())
        flat: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return flat, lengths.astype(np.int64)

    def attended(self, lengths: Ints) -> Bools:
        """The tokens that are not padding, bool [T]."""
        values, own = self.numbers(ATTENTION)
        self.check_lengths(ATTENTION, own, lengths)
        return np.asarray(values != 0)

    def check_lengths(self, name: str, own: Ints, lengths: Ints) -> None:
        """Raises SourceError if a row's lists differ in length."""
        wrong = np.flatnonzero(own != lengths)
        if wrong.size:
            row = int(wrong[0])
            raise self.fault(f"{name} has {int(own[row])} values, {TOKENS_COLUMN} has {int(lengths[row])}", row)

    def parts(self, lengths: Ints, names: Sequence[str]) -> tuple[Ints, Ints]:
        """The documents of packed rows: their sizes, and the row of the batch of each."""
        of_row = np.arange(lengths.size)
        ends = np.cumsum(lengths)
        if STARTS in names:
            values, counts = self.numbers(STARTS)
            inside = np.repeat(of_row, counts)
            starts = values.astype(np.int64) + (ends - lengths)[inside]
            firsts = np.cumsum(counts) - counts
            bad = counts == 0
            bad[~bad] = values[firsts[~bad]] != 0
            if bad.any():
                raise self.fault(f"{STARTS} does not begin with 0", int(np.flatnonzero(bad)[0]))
            sizes = np.diff(starts, append=ends[-1] if ends.size else 0)
            if (sizes < 0).any() or (starts > ends[inside]).any():
                raise self.fault(f"{STARTS} is out of order", int(inside[np.flatnonzero(sizes < 0)[:1]].sum()))
            return sizes, inside
        if SIZES in names:
            values, counts = self.numbers(SIZES)
            inside = np.repeat(of_row, counts)
            sums = np.bincount(inside, weights=values, minlength=lengths.size).astype(np.int64)
            wrong = np.flatnonzero((sums != lengths) | (np.bincount(inside, values < 0, lengths.size) > 0))
            if wrong.size:
                raise self.fault(f"{SIZES} does not add up to the tokens of the row", int(wrong[0]))
            return values.astype(np.int64), inside
        if POSITIONS in names:
            values, counts = self.numbers(POSITIONS)
            self.check_lengths(POSITIONS, counts, lengths)
            begins = values == 0
            begins[(ends - lengths)[lengths > 0]] = True
            starts = np.flatnonzero(begins)
            return np.diff(starts, append=values.size), np.searchsorted(ends, starts, "right")
        return lengths, of_row


def chosen_rows(batch: pa.RecordBatch, first: int, rows: Ints | None) -> tuple[pa.RecordBatch, Ints]:
    """The rows of a batch that are in `rows` (sorted; None: all), with their numbers."""
    numbers = ranges(np.array([first]), np.array([batch.num_rows]))
    if rows is None:
        return batch, numbers
    own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + batch.num_rows)]
    return batch.take(pa.array(own - first)), own
