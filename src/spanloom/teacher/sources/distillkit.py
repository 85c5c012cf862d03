"""A capture of DistillKit → signals: rows of token ids with the compressed top k behind each token.

In: a folder of Parquet files, the settings of their compression, a dataset. Out: the signals of the documents whose
tokens are those of a row. Entry i of a row is about its token i + 1; vLLM gives none behind the last token. Nothing is
stored of a label that is not among the top k.

    input_ids            list<uint64> [L]
    compressed_logprobs  list<list<uint8>> [L − 1]   k log-probabilities, falling: exact ones, terms, residuals
    bytepacked_indices   list<list<uint8>> [L − 1]   their ids, each in as many bits as the vocabulary needs

The format is that of `distillkit.compression` and `sample_logits_vllm.py` of DistillKit 1.0.0 (arcee-ai, a61c2e7).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spanloom.dataset.manifest import Content
from spanloom.errors import DatasetError, OptionError, SourceError
from spanloom.options.endless import never_ends
from spanloom.provenance import sha256_json
from spanloom.records.parquet import open_parquet
from spanloom.storage import sha256_file
from spanloom.teacher.format import SUMS_OF_IMPORTS, span_ids
from spanloom.teacher.parts import PART_TOKENS
from spanloom.teacher.positions import ScoredDocument, documents_of
from spanloom.teacher.signals import NEAR_ZERO, Agreement, Signals, TeacherError, rest_of
from spanloom.teacher.sources.answers import prompt_of
from spanloom.teacher.sources.teacher import Teacher

SETTINGS = "compression_config.yaml"
"""The file of settings that DistillKit writes beside a capture."""

COLUMNS = ("input_ids", "compressed_logprobs", "bytepacked_indices")
MOST_EXCEEDING = 0.25
"""The share of labels whose probabilities may exceed 1 before they are lowered: 5 % with the coarsest settings that
DistillKit's README has, nearly all where the settings are those of another capture."""

MOST_FALLING = 0.9
"""The share of labels whose exact values may fall as they are stored, although the settings say that they are
differences: those of real teachers rarely do, and log-probabilities always do."""

LOOKED_AT = 50_000
"""Labels whose agreement with the entries is looked at before anything is written."""

_TYPES = {
    COLUMNS[0]: [pa.list_(kind) for kind in (pa.uint64(), pa.int64(), pa.int32())],
    **{name: [pa.list_(pa.list_(pa.uint8()))] for name in COLUMNS[1:]},
}
_ANOTHER = "give a capture in DistillKit's present format; packed and legacy ones are not read"
_SETTINGS_REMEDY = f"--compression FILE, the {SETTINGS} of the capture, or the logprob_compressor of its training"
_ROWS = 64
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Dtype = Literal["float16", "bfloat16", "float32", "float64"]
Bytes = npt.NDArray[np.uint8]
Values = npt.NDArray[np.float64]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ResidualBin(_Section):
    scale_dtype: Dtype
    element_bits: Annotated[int, Field(ge=1, le=32)]
    num_elements: Annotated[int, Field(ge=1)]


class Compression(_Section):
    """DistillKit's `DistributionQuantizationConfig`, with its names and defaults."""

    d: Annotated[int, Field(ge=2, le=1 << 24)]
    k: Annotated[int, Field(ge=1)]
    exact_k: Annotated[int, Field(ge=0)]
    exact_dtype: Dtype = "float32"
    polynomial_terms: list[int | Literal["sqrt", "exp"]] | None = None
    term_dtype: Dtype = "float32"
    residual_bins: list[ResidualBin]
    delta_encoding: bool = True
    error_diffusion: bool = False
    normalize_t: bool = False

    @property
    def id_bits(self) -> int:
        return (self.d - 1).bit_length()

    @property
    def widths(self) -> dict[str, int]:
        """Bytes of an entry, by column."""
        terms = self.exact_k * _size(self.exact_dtype) + len(self.polynomial_terms or ()) * _size(self.term_dtype)
        bins = (_size(each.scale_dtype) + -(-each.num_elements * each.element_bits // 8) for each in self.residual_bins)
        return dict(zip(COLUMNS[1:], (terms + sum(bins), -(-self.k * self.id_bits // 8)), strict=True))


def read_compression(path: Path) -> Compression:
    """The settings in a YAML file. Raises OptionError for a file that has others."""
    try:
        import yaml
    except ImportError:
        raise OptionError("settings of DistillKit are YAML", remedy="pip install pyyaml") from None
    if never_ends(path):
        raise OptionError("the settings are not a file", where=str(path), remedy=_SETTINGS_REMEDY)
    try:
        stored = yaml.safe_load(path.read_text())
        settings = Compression.model_validate(stored)
    except (OSError, ValueError, yaml.YAMLError) as fault:
        first = fault.errors()[0] if isinstance(fault, ValidationError) else None
        why = str(fault).splitlines()[0] if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise OptionError(
            f"these are no settings of DistillKit's compression: {why[:200]}",
            where=str(path),
            remedy=_SETTINGS_REMEDY,
        ) from None
    approximated = settings.k - settings.exact_k
    if approximated < sum(each.num_elements for each in settings.residual_bins):
        raise OptionError("the settings have more exact values and residuals than k", where=str(path))
    return settings


def decoded_logprobs(raw: Bytes, settings: Compression) -> Values:
    """float64 [P, k] of entries uint8 [P, bytes]. DistillKit then rounds them to `exact_dtype`."""
    exact = _floats(raw[:, : (at := settings.exact_k * _size(settings.exact_dtype))], settings.exact_dtype)
    approximated = np.zeros((len(raw), settings.k - settings.exact_k))
    if terms := settings.polynomial_terms:
        count = approximated.shape[1]
        places = np.linspace(0, 1, count) if settings.normalize_t else np.arange(count, dtype=np.float64)
        curves = [np.sqrt(places) if t == "sqrt" else np.exp(places) if t == "exp" else places ** int(t) for t in terms]
        size = len(terms) * _size(settings.term_dtype)
        approximated += _floats(raw[:, at : at + size], settings.term_dtype) @ np.array(curves)
        at += size
    first = 0
    for each in settings.residual_bins:
        scale = _floats(raw[:, at : at + _size(each.scale_dtype)], each.scale_dtype)
        at += _size(each.scale_dtype)
        size = -(-each.num_elements * each.element_bits // 8)
        levels = _unpacked(raw[:, at : at + size], each.element_bits, each.num_elements)
        at += size
        steps = 2 * levels - 1 if each.element_bits == 1 else levels - (1 << (each.element_bits - 1))
        approximated[:, first : first + each.num_elements] += steps * scale
        first += each.num_elements
    values = np.hstack([exact, approximated])
    return np.cumsum(values, axis=1) if settings.delta_encoding else values


def _size(dtype: Dtype) -> int:
    return {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[dtype]


def _floats(raw: Bytes, dtype: Dtype) -> Values:
    """float64 [P, n] of [P, bytes]."""
    whole = np.ascontiguousarray(raw)
    if dtype == "bfloat16":
        return (whole.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return whole.view(f"<f{_size(dtype)}").astype(np.float64)


def _unpacked(raw: Bytes, bits: int, count: int) -> npt.NDArray[np.int64]:
    """int64 [P, count] of bytes [P, n] that hold numbers end to end, each with its highest bit first."""
    powers = 1 << np.arange(bits - 1, -1, -1, dtype=np.int64)
    each: npt.NDArray[np.int64] = np.unpackbits(raw, axis=1)[:, : count * bits].reshape(len(raw), count, bits) @ powers
    return each


class Capture:
    """A capture, by the documents of a dataset that it has. See `teacher.StoredSignals`."""

    padded, own, missing, sums = 0, False, "not_captured", SUMS_OF_IMPORTS

    def __init__(
        self, folder: Path, settings: Compression, root: Path, dataset: Content, names: list[str] | None, scratch: Path
    ) -> None:
        """`names`: of the spans that are scored, None for all. `scratch`: a folder, for a copy of the capture whose
        rows are found without reading all; about 200 bytes a document are held.

        Raises SourceError for a capture that is damaged or was made with other settings, OptionError if its vocabulary
        is not that of the dataset, TeacherError unless its entries belong to their labels.
        """
        self.k, self.spans, self._settings = settings.k, names, settings
        if dataset.tokenizer.vocab_size > 1 << settings.id_bits:
            raise OptionError(
                f"the settings are for {settings.d:,} tokens, the dataset has {dataset.tokenizer.vocab_size:,}"
            )
        self._files = sorted(folder.rglob("*.parquet"))
        if not self._files:
            raise SourceError("the folder has no Parquet files", where=str(folder), remedy="give what was captured")
        self.identity: dict[str, Any] = {
            "source": "distillkit",
            "files": {path.relative_to(folder).as_posix(): sha256_file(path) for path in self._files},
            "compression": settings.model_dump(),
        }
        self.sha256 = sha256_json(self.identity)
        chosen = span_ids(names, dataset)
        parts = (
            part
            for split, shard in dataset.filled()
            for part in documents_of(root, dataset, split, shard, chosen, PART_TOKENS)
        )
        wanted = {_key(np.array(prompt_of(each))) for part in parts for each in part if each.positions.size}
        self.lowered = 0
        self._places: dict[int, tuple[int, int]] = {}
        self._copied(scratch / "capture.arrow", wanted)
        self._reader = pa.ipc.open_file(pa.memory_map(str(scratch / "capture.arrow")))
        agreement, exceeding, falling = Agreement(), 0, 0
        for split, shard in dataset.filled():
            for part in documents_of(root, dataset, split, shard, chosen, PART_TOKENS):
                if agreement.labels < LOOKED_AT:
                    for each in part:
                        if (entry := self._entry(each)) is not None:
                            agreement.add(self._ids(entry)[:, 0].astype(np.int32), each.labels)
                            exceeding += self._logprobs(entry)[1]
                            falling += self._falling(entry)
        if not (agreement.enough and agreement.best == 0 and agreement.sure):
            raise TeacherError(
                f"the capture's first choices are not those of the labels: {agreement.in_words}",
                where=str(folder),
                remedy="an entry is about the token behind its own; `spanloom teacher score` needs no capture",
            )

        if exceeding > MOST_EXCEEDING * agreement.labels:
            raise TeacherError(
                f"the probabilities exceed 1 at {exceeding / agreement.labels:.0%} of the labels",
                where=str(folder),
                remedy="--compression FILE, with the settings of this capture; logits are no log-probabilities",
            )

        if falling > MOST_FALLING * agreement.labels:
            raise TeacherError(
                "the exact values are log-probabilities, and the settings say that they are differences",
                where=str(folder),
                remedy="--compression FILE, with the settings of this capture; see its delta_encoding",
            )

    def has(self, document: ScoredDocument) -> bool:
        return self._entry(document) is not None

    def of(self, documents: Sequence[ScoredDocument]) -> dict[int, Signals]:
        """The signals of those documents that were captured."""
        found = {}
        for each in documents:
            if (entry := self._entry(each)) is not None:
                logprobs, exceeding = self._logprobs(entry)
                self.lowered += exceeding
                found[each.sequence] = Signals(
                    ids=self._ids(entry).astype(np.int32),
                    logprobs=logprobs,
                    own=np.full(len(logprobs), np.nan, np.float32),
                    rest=rest_of(logprobs),
                )
        return found

    def check_teacher(self, teacher: Teacher, document: ScoredDocument) -> None:  # noqa: ARG002
        raise DatasetError("a capture is imported without a teacher")

    def _copied(self, path: Path, wanted: Iterable[int]) -> None:
        """Copies the rows to an Arrow file, and notes which of them begin with a wanted document."""
        keys = np.array(sorted(wanted), np.uint64)
        batches = 0
        with pa.OSFile(str(path), "wb") as file:
            writer = None
            for source in self._files:
                opened, row = open_parquet(source), 0
                for name, kinds in _TYPES.items():
                    if name not in opened.schema_arrow.names:
                        raise SourceError(f"there is no column {name}", where=str(source), remedy=_ANOTHER)
                    found = opened.schema_arrow.field(name).type
                    if found not in kinds:
                        raise SourceError(f"{name} is {found}, not {kinds[0]}", where=str(source), remedy=_ANOTHER)
                try:
                    for batch in opened.iter_batches(_ROWS, columns=[*COLUMNS]):
                        batch = batch.select([*COLUMNS])
                        for number in range(batch.num_rows):
                            self._noted(batch, number, batches, keys, f"{source}, row {row + number}")
                        writer = writer or pa.ipc.new_file(file, batch.schema)
                        writer.write_batch(batch)
                        batches, row = batches + 1, row + batch.num_rows
                except (pa.ArrowException, OSError) as fault:
                    raise SourceError(
                        f"the file cannot be read: {str(fault).splitlines()[0][:200]}",
                        where=f"{source}, after row {row}",
                        remedy="fetch it again",
                    ) from None
            if writer is None:
                raise SourceError("the capture has no rows", where=str(self._files[0]), remedy="give what was captured")
            writer.close()

    def _noted(self, batch: pa.RecordBatch, row: int, number: int, keys: npt.NDArray[np.uint64], where: str) -> None:
        ids, counts = _row(batch, row), []
        for column, width in self._settings.widths.items():
            entries = batch.column(column)[row].values
            counts.append(0 if entries is None else len(entries))
            missing = entries is not None and (entries.null_count or entries.flatten().null_count)
            if entries is not None and (missing or {*entries.value_lengths().to_pylist()} - {width}):
                raise SourceError(
                    f"{column} has not {width} bytes an entry, as the settings say",
                    where=where,
                    remedy="--compression FILE, with the settings of this capture",
                )
        if ids is None or counts[0] != counts[1] or counts[0] not in (ids.size - 1, ids.size):
            raise SourceError(
                f"the row has {0 if ids is None else ids.size} ids, and {counts[0]} and {counts[1]} entries",
                where=where,
                remedy="a capture has an entry behind each id but the last",
            )
        hashes = _prefixes(ids)
        at = np.searchsorted(keys, hashes).clip(max=keys.size - 1)
        for key in hashes[keys[at] == hashes].tolist() if keys.size else ():
            self._places.setdefault(key, (number, row))

    def _entry(self, document: ScoredDocument) -> dict[str, Bytes] | None:
        """The entries of the scored positions, by column; None if no row has the document."""
        sent = np.array(prompt_of(document))
        place = self._places.get(_key(sent)) if document.positions.size else None
        if place is None:
            return None
        batch = self._reader.get_batch(place[0])
        ids = _row(batch, place[1])
        if ids is None or not np.array_equal(ids[: sent.size], sent):
            return None
        return {
            name: batch.column(name)[place[1]].values.flatten().to_numpy().reshape(-1, width)[document.positions]
            for name, width in self._settings.widths.items()
        }

    def _logprobs(self, entry: dict[str, Bytes]) -> tuple[npt.NDArray[np.float32], int]:
        """float32 [P, k], and at how many positions all probabilities together exceeded 1 as they were stored.

        Approximated values may be in another order than their tokens, whose order is exact: none is left above the last
        exact value, and they are sorted. Where all exceed 1 together, these are lowered until they do not.
        """
        exact = self._settings.exact_k
        values = decoded_logprobs(entry[COLUMNS[1]], self._settings)
        if (np.diff(values[:, :exact]) > NEAR_ZERO).any():
            raise TeacherError(
                "the exact values are not in the order of their tokens",
                remedy="--compression FILE, with the settings of this capture; see its delta_encoding and exact_dtype",
            )
        exceeded = int((np.exp(values).sum(axis=1) > 1 + SUMS_OF_IMPORTS).sum())
        if exact:
            values[:, exact:] = np.minimum(values[:, exact:], values[:, exact - 1, None])
        values = -np.sort(-values, axis=1)
        whole = np.exp(values)
        known, total = whole[:, :exact].sum(axis=1), whole.sum(axis=1)
        exceeding = (total > 1) & (known < 1)
        factor = (1 - known[exceeding]) / (total - known)[exceeding]
        with np.errstate(divide="ignore"):
            values[exceeding, exact:] += np.log(factor)[:, None]
        return values.astype(np.float32), exceeded

    def _falling(self, entry: dict[str, Bytes]) -> int:
        """At how many positions values that should be differences fall as log-probabilities do. Two say nothing."""
        exact = self._settings.exact_k
        if not self._settings.delta_encoding or exact < 3:
            return 0
        stored = _floats(entry[COLUMNS[1]][:, : exact * _size(self._settings.exact_dtype)], self._settings.exact_dtype)
        return int((np.diff(stored) <= 0).all(axis=1).sum())

    def _ids(self, entry: dict[str, Bytes]) -> npt.NDArray[np.int64]:
        return _unpacked(entry[COLUMNS[2]], self._settings.id_bits, self.k)


def _row(batch: pa.RecordBatch, row: int) -> npt.NDArray[np.int64] | None:
    values = batch.column(COLUMNS[0])[row].values
    return None if values is None or values.null_count else values.to_numpy().astype(np.int64)


def _prefixes(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """A number for each beginning of a row, uint64 [L]. Two of one number are compared token by token."""
    powers = np.cumprod(np.full(ids.size, _FACTOR))
    whole: npt.NDArray[np.uint64] = np.cumsum((ids.astype(np.uint64) + np.uint64(1)) * powers, dtype=np.uint64)
    return whole


def _key(ids: npt.NDArray[Any]) -> int:
    return int(_prefixes(ids.astype(np.int64))[-1])
