"""Compares a dataset with its source: the place, id, metadata and tokens of each row.

In: the source, the dataset's files, a function that reads one document. Out: findings.

    all rows           ids and metadata are compared in batches with the row tables and the rejects
    rejected rows      read whole: the rules must refuse them for the recorded reason
    a sample of rows   read whole: the rules must accept them; rendered again, their tokens must be those on disk

The rules are a second implementation (`rules`), not that of the build. The sample is the same on every machine.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from openai_harmony import HarmonyEncoding

from spanloom.conversations.source.folder import Source, SourceShard, group_rows, open_source_shard, source_batches
from spanloom.conversations.source.manifest import ANY_MODEL_V1
from spanloom.conversations.source.rejects import Reason
from spanloom.dataset.family import SourceCheck, WholeCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.rows.places import RejectedRow, RowPlaces, rejected_rows, row_numbers
from spanloom.dataset.validate.placed_documents import PlacedDocument
from spanloom.dataset.validate.source import check_against_folder, deep_shares
from spanloom.families.harmony.contract.history import rules_of
from spanloom.families.harmony.contract.profile import ARRAY_DTYPES, Profile, profile_of_source
from spanloom.families.harmony.tiktoken_encoding import load_tiktoken
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.families.harmony.verify.any_model import harmony_or_refusal
from spanloom.families.harmony.verify.reference import (
    DiskSequences,
    PromptError,
    RenderRefusedError,
    ShownDocument,
    disk_document,
    disk_sequences,
    read_conversation,
    shown_documents,
    truncated_messages,
)
from spanloom.families.harmony.verify.rules import Judgement, judge_row, refused_id
from spanloom.families.harmony.verify.texts import TextCheck
from spanloom.findings import Finding, Report
from spanloom.megatron.readers import OpenIndexed
from spanloom.records.parquet import BATCH_ROWS, column_values
from spanloom.tokenizers.o200k.asset import locate_asset

if TYPE_CHECKING:
    import tiktoken

GROUPS_READ, ROWS_DRAWN = 4, 256
"""Minimum of row groups read for the sample of a shard (a row can only be read with its whole group), and minimum of
rows drawn from them; the sample is evenly spaced among these."""

WORDS_OF_LIBRARIES = " is not JSON: "
"""The text after it in a reject's detail comes from a library, and may differ between versions."""

Places = dict[int, list[PlacedDocument]]
"""Row → its documents, in order, each with its `ABOUT_CUTS` columns of the row table."""
ABOUT_CUTS = ("cut", "runs", "weight")
"""Columns of the row table about the cutting of a conversation; datasets of earlier releases have only the first."""


WHOLE_TOKENS = 50_000
"""Token budget for the sampled rows whose documents are all rendered again; of later sampled rows, only one document is
rendered again. If all rows are sampled, all documents are rendered again."""


def check_source(report: Report, check: SourceCheck) -> None:
    """Checks that the source is the manifest's, byte by byte; compares all its rows and renders some of them again."""
    whole, content = check.whole, check.whole.content
    shares = deep_shares(content, check.deep)

    def opened(own: Report, source: Source) -> "list[tuple[HarmonyEncoding, tiktoken.Encoding]]":  # noqa: ARG001
        """The encodings of openai-harmony and of tiktoken, or none if nothing is rendered again."""
        rules_of(content.config, profile_of_source(source.format))  # raises if they are missing or invalid
        if not check.deep:
            return []
        asset = locate_asset(check.tokenizer)
        return [(load_encoding(asset), load_tiktoken(asset))]

    def check_shard(
        own: Report,
        shard: ShardEntry,
        source: SourceShard,
        encodings: "list[tuple[HarmonyEncoding, tiktoken.Encoding]]",
    ) -> None:
        held, share = ShardSource(whole=whole, shard=shard, source=source), shares[shard.shard]
        sample: Places = {row: [] for row in sampled_rows(source, shard.rows_read, share)}
        own.ran("source rows", shard.rows_read)
        own.add(held.check_all(sample))
        own.add(held.check_rejected(encodings[0][0] if encodings else None))
        places = {row: documents for row, documents in sample.items() if documents}
        for encoding, second in encodings:
            texts = TextCheck(second)
            own.ran("rows rendered again", len(places))
            whole_tokens = None if share >= shard.rows_read else WHOLE_TOKENS // len(content.shards)
            own.add(held.check_sample(places, encoding, texts, whole_tokens))
            own.ran("documents rendered again", texts.documents)
            own.ran("texts encoded again", texts.texts)

    check_against_folder(report, check, opened, check_shard)


def _small(profile: Profile) -> tuple[str, ...]:
    """The columns of a source without the conversations."""
    return profile.source.id_column, "metadata_json", *profile.source.metadata_columns


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """One row of the source. `undecodable`: a column other than `messages_json` is not UTF-8.

    `messages_json`: in Harmony's form. `unheld`: why a conversation for any model cannot be converted to that form.
    """

    row: int
    messages_json: bytes | None
    metadata_json: str | None
    id: str | None
    undecodable: bool
    unheld: Judgement | None = None


def sampled_rows(shard: SourceShard, rows_read: int, count: int) -> list[int]:
    """Draws `count` of the first `rows_read` rows of a shard, in order; fewer if the row groups read hold fewer.

    A larger `count` reads more groups; from `rows_read` on all rows are returned.
    """
    if count >= rows_read:
        return list(range(rows_read))
    drawn = max(ROWS_DRAWN, count)
    sizes = group_rows(shard)
    firsts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    usable = np.flatnonzero((firsts < rows_read) & (np.array(sizes, dtype=np.int64) > 0))
    random = np.random.default_rng([shard.index, rows_read, drawn])
    needed = max(GROUPS_READ, -(-count * usable.size // rows_read))
    groups = np.sort(random.choice(usable, size=min(needed, usable.size), replace=False))
    rows: list[int] = []
    for number, group in enumerate(groups.tolist()):
        share = drawn // groups.size + (number < drawn % groups.size)
        available = min(sizes[group], rows_read - int(firsts[group]))
        chosen = np.sort(random.choice(available, size=min(share, available), replace=False)) + firsts[group]
        rows += chosen.tolist()
    spread = np.linspace(0, len(rows) - 1, num=min(count, len(rows))).round().astype(int)
    return [rows[at] for at in spread.tolist()]


def whole_rows(shard: SourceShard, wanted: Iterable[int]) -> Iterator[SourceRow]:
    """Reads the rows with these ascending numbers. Skips row groups without one of them."""
    numbers = iter(wanted)
    row = next(numbers, None)
    profile = profile_of_source(shard.format)
    with open_source_shard(shard) as file:
        first = 0
        for group in range(file.metadata.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            if row is None:
                return
            if row < end:
                for at, batch in _batches(file, shard, ("messages_json", *_small(profile)), BATCH_ROWS, [group]):
                    while row is not None and row < first + at + batch.num_rows:
                        yield _source_row(row, batch.slice(row - first - at, 1), profile)
                        row = next(numbers, None)
                    if row is None or row >= end:
                        break
            first = end


def _batches(
    file: pq.ParquetFile, shard: SourceShard, columns: Sequence[str], rows: int, groups: Sequence[int] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields each batch with the number of its first row, counted from the first group. Raises SourceError."""
    names = [name for name in columns if name in file.schema_arrow.names]
    at = 0
    for batch in source_batches(file, shard, groups, names, batch_rows=rows):
        yield at, batch
        at += batch.num_rows


def _source_row(row: int, batch: pa.RecordBatch, profile: Profile) -> SourceRow:
    cells, torn = _cells(batch, profile)
    messages_json, unheld = batch.column("messages_json").cast(pa.large_binary())[0].as_py(), None
    if profile.source.schema_version == ANY_MODEL_V1:
        messages_json, unheld = harmony_or_refusal(messages_json)
    return SourceRow(
        row=row,
        messages_json=messages_json,
        metadata_json=cells["metadata_json"][0],
        id=cells[profile.source.id_column][0],
        undecodable=bool(torn),
        unheld=unheld,
    )


def _cells(batch: pa.RecordBatch, profile: Profile) -> tuple[dict[str, list[str | None]], set[int]]:
    """The small columns, with None for a missing column; and the rows with a value that is not UTF-8."""
    torn: set[int] = set()
    small = _small(profile)
    cells: dict[str, list[str | None]] = {name: [None] * batch.num_rows for name in small}
    for name in set(small) & set(batch.schema.names):
        cells[name] = column_values(batch.column(name), lambda index, _: torn.add(index))
    return cells, torn


def refusal(row: SourceRow, profile: Profile, config: Mapping[str, Any], encoding: HarmonyEncoding | None) -> Judgement:
    """Why the rules, or openai-harmony with `encoding`, refuse a row; see `judge_row`."""
    if row.unheld is not None and not row.undecodable:
        judged = refused_id(profile.family, row.id, row.metadata_json)
        return judged if judged.reason is not None else replace(row.unheld, id=judged.id)
    return judge_row(
        profile.family,
        config,
        given_id=row.id,
        metadata_json=row.metadata_json,
        messages_json=row.messages_json,
        undecodable=row.undecodable,
        encoding=encoding,
        converted=profile.source.schema_version == ANY_MODEL_V1,
    )


@dataclass(frozen=True, kw_only=True)
class ShardSource:
    """One shard of a dataset, and the shard of the source that it was built from.

    `whole`: the dataset.
    """

    whole: WholeCheck
    shard: ShardEntry
    source: SourceShard

    @property
    def profile(self) -> Profile:
        return profile_of_source(self.source.format)

    @property
    def config(self) -> Mapping[str, Any]:
        return self.whole.content.config

    @property
    def _about_cuts(self) -> tuple[str, ...]:
        if not self.profile.cuts:
            return ()
        return ABOUT_CUTS if self.config.get("merge") is True else ABOUT_CUTS[:1]

    def finding(self, row: int, check: str, message: str, **place: Any) -> Finding:
        return Finding(check=check, message=f"source row {row}: {message}", shard=self.shard.shard, **place)

    def check_all(self, places: Places) -> Iterator[Finding]:
        """Checks id and metadata of every row in the dataset.

        `places`: its keys are rows; the places of their documents are added.
        """
        profile = self.profile
        columns = ("sequence", "row", profile.split_column, *profile.source.metadata_columns, *self._about_cuts)
        splits, id_column = self.whole.readable_splits(self.shard), profile.source.id_column
        rows = RowPlaces(self.whole.root, self.shard, splits, columns, id_column, lambda _: None)
        open_with = cache(self.whole.open_with)
        with open_source_shard(self.source) as file:
            for first, batch in _batches(file, self.source, _small(profile), BATCH_ROWS * 16):
                if first >= self.shard.rows_read:
                    return
                self.whole.run.go_on()
                cells, torn = _cells(batch, profile)
                for split, table in rows.before(first + batch.num_rows).tables.items():
                    inside = table.filter(pa.array(row_numbers(table) >= first))  # earlier rows were checked
                    yield from self._check_table(split, inside, first, cells, torn, places, open_with)

    def _check_table(
        self,
        split: str,
        table: pa.Table,
        first: int,
        cells: Mapping[str, list[str | None]],
        torn: set[int],
        places: Places,
        open_with: OpenIndexed,
    ) -> Iterator[Finding]:
        profile = self.profile
        id_column, metadata = profile.source.id_column, profile.source.metadata_columns
        numbers = row_numbers(table).tolist()
        stored = {
            name: table.column(name).to_pylist()
            for name in ("sequence", profile.split_column, *metadata, *self._about_cuts)
        }
        judged, judged_row = Judgement(id=None), -1
        for index, row in enumerate(numbers):
            at, place = row - first, {"split": split, "sequence": stored["sequence"][index]}
            if row in places and place["sequence"] is not None:  # null: the row table is damaged, which is reported
                about = {name: stored[name][index] for name in self._about_cuts}
                places[row].append(PlacedDocument(shard=self.shard.shard, **place, row=about, open_with=open_with))
            if at in torn:
                yield self.finding(row, "source", "is not UTF-8, yet was not rejected", **place)
                continue
            if row != judged_row:  # the documents of a row are neighbours
                judged_row = row
                judged = refused_id(profile.family, cells[id_column][at], cells["metadata_json"][at])
            if judged.reason is not None:
                yield self.finding(row, "source", f"is refused ({judged.reason}), yet was not rejected", **place)
                continue
            for name, wanted in ((profile.split_column, judged.id), *((name, cells[name][at]) for name in metadata)):
                if stored[name][index] != wanted:
                    called = "id" if name == profile.split_column else name
                    message = f"has {called} {wanted!r}, the dataset says {stored[name][index]!r}"
                    yield self.finding(row, "source", message, **place)

    def check_rejected(self, encoding: HarmonyEncoding | None) -> Iterator[Finding]:
        """Checks that the rules refuse every rejected row, for the reason in the rejects.

        Without `encoding`, rows that openai-harmony refused are skipped.
        """
        waiting: deque[RejectedRow] = deque()

        def numbers() -> Iterator[int]:
            for reject in rejected_rows(self.whole.root, self.shard, self.profile.source.id_column, lambda _: None):
                if encoding is not None or reject.reason != Reason.RENDERER_REFUSED:
                    waiting.append(reject)
                    yield reject.row

        for row in whole_rows(self.source, numbers()):
            self.whole.run.go_on()
            line = waiting.popleft()
            by_harmony = line.reason == Reason.RENDERER_REFUSED
            judged = refusal(row, self.profile, self.config, encoding if by_harmony else None)
            reason, detail = judged.reason, judged.detail
            place: dict[str, Any] = {"line": line.line}
            if reason is None:
                yield self.finding(
                    row.row, "rejects", f"was rejected ({line.reason}), and nothing is wrong with it", **place
                )
                continue
            if reason != line.reason:
                yield self.finding(row.row, "rejects", f"is refused for {reason}, the file says {line.reason}", **place)
            elif not by_harmony and _our_words(detail) != _our_words(line.detail):
                message = f"is refused since {detail!r}, the file says {line.detail!r}"
                yield self.finding(row.row, "rejects", message, **place)
            if judged.id != line.id:
                yield self.finding(row.row, "rejects", f"has id {judged.id!r}, the file says {line.id!r}", **place)

    def check_sample(
        self,
        places: Mapping[int, Sequence[PlacedDocument]],
        encoding: HarmonyEncoding,
        texts: TextCheck,
        whole_tokens: int | None = None,
    ) -> Iterator[Finding]:
        """Renders the rows of a sample again and compares. `places`: row → its documents, by row.

        `whole_tokens`: once this many tokens are rendered, only one document per row is: number `n` modulo their count
        for the n-th row of the sample.
        """
        rendered = 0
        for number, row in enumerate(whole_rows(self.source, places)):
            documents = places[row.row]
            finding = partial(_of_document, row.row, documents)
            judged = refusal(row, self.profile, self.config, None)
            shown = self._shown(row) if judged.reason is None else []
            is_whole = whole_tokens is None or rendered < whole_tokens
            wanted: dict[int, DiskSequences] = {}
            try:
                for at in range(len(shown)) if is_whole else [number % len(shown)] if shown else []:
                    wanted[at] = self._rendered(row, shown[at], encoding)
                    rendered += len(wanted[at].tokens)
            except RenderRefusedError:
                judged = replace(judged, reason=Reason.RENDERER_REFUSED)
            except PromptError as fault:
                yield finding("rerender", str(fault))
                continue
            if judged.reason is not None:
                message = f"is refused ({judged.reason}: {judged.detail}), yet was not rejected"
                yield finding("source", message)
                continue
            if len(shown) != len(documents):
                yield finding("rerender", f"makes {len(shown)} documents, the dataset has {len(documents)}")
            weight = _weight(row)
            for at, (document, place) in enumerate(zip(shown, documents, strict=False)):
                self.whole.run.go_on()
                cut, runs = (0, 1) if document is None else (document.cut, len(document.runs))
                expected = {"cut": cut, "runs": runs, "weight": weight}
                for name, stated in place.row.items():
                    if stated != expected[name]:
                        yield finding("rerender", f"{name} is {expected[name]}, the dataset says {stated}", at)
                if at in wanted and (stored := place.read(self.whole.root, ARRAY_DTYPES)) is not None:
                    for check, offset, message in (
                        *_differences(wanted[at], encoding, stored),
                        *(("tiktoken", *each) for each in texts.differences(wanted[at].messages, stored["tokens"])),
                    ):
                        yield finding(check, message, at, offset)

    def _shown(self, row: SourceRow) -> list[ShownDocument | None]:
        """The documents of a row; None for a document that is the whole row."""
        if not self.profile.cuts:
            return [None]
        text = row.messages_json or b""
        return [*shown_documents(read_conversation(text), self.config, truncated_messages(text))]

    def _rendered(self, row: SourceRow, document: ShownDocument | None, encoding: HarmonyEncoding) -> DiskSequences:
        if document is None:
            return disk_sequences((row.messages_json or b"").decode(), encoding)
        return disk_document(document, encoding, self.config)


def _of_document(
    row: int, documents: Sequence[PlacedDocument], check: str, message: str, at: int = 0, offset: int | None = None
) -> Finding:
    return documents[at].finding(check, f"source row {row}: {message}", offset)


def _weight(row: SourceRow) -> float:
    """The weight of a conversation, by default 1."""
    weight = json.loads(row.messages_json or b"{}").get("weight")
    return 1.0 if weight is None else float(weight)


def _differences(
    wanted: DiskSequences, encoding: HarmonyEncoding, stored: Mapping[str, npt.NDArray[Any]]
) -> Iterator[tuple[str, int | None, str]]:
    """Yields check, offset in the document and message for each array that differs."""
    for name in ("tokens", "lossmask", "span"):
        expected, held = np.array(getattr(wanted, name)), stored[name]
        if expected.size != held.size:
            yield "rerender", None, f"{name}: openai-harmony gives {expected.size} values, the dataset has {held.size}"
        elif (different := np.flatnonzero(expected != held)).size:
            at = int(different[0])
            around = encoding.decode(wanted.tokens[max(at - 8, 0) : at + 8])
            message = f"{name}: openai-harmony gives {expected[at]}, the dataset has {held[at]}, around {around!r}"
            yield "rerender", at, message


def _our_words(detail: str) -> str:
    """A reject's detail without the text from a library."""
    return detail.partition(WORDS_OF_LIBRARIES)[0]
