"""Compares a dataset with its source: the place, id, metadata and tokens of each row.

In: the source, the dataset's files, a function that reads one document. Out: findings.

    all rows           ids and metadata are compared in batches with the row tables and the rejects
    rows in documents  read whole: the rules must accept them; the documents must be theirs, see `accounts`
    rejected rows      read whole: the rules must refuse them for the recorded reason
    a sample of rows   rendered again: their tokens must be those on disk

The rules are a second implementation (`rules`), not that of the build. The sample is the same on every machine.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from openai_harmony import HarmonyEncoding

from spanloom.conversations.source.folder import Source, SourceShard, group_rows, open_source_shard
from spanloom.conversations.source.manifest import ANY_MODEL_V1
from spanloom.conversations.source.rejects import Reason
from spanloom.dataset.family import SourceCheck, WholeCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.rows.places import RejectedRow, RowPlaces, rejected_rows, row_numbers
from spanloom.dataset.validate.placed_documents import PlacedDocument, documents_by_row
from spanloom.dataset.validate.source import check_against_folder, deep_shares
from spanloom.families.harmony.contract.history import rules_of
from spanloom.families.harmony.contract.profile import ARRAY_DTYPES, Profile, profile_of_source
from spanloom.families.harmony.tiktoken_encoding import load_tiktoken
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.families.harmony.verify.accounts import Counts, Wrappers
from spanloom.families.harmony.verify.compared import ComparedRows, finding_of_row
from spanloom.families.harmony.verify.equal import TokenBytes, token_bytes
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
from spanloom.families.harmony.verify.rows import (
    SourceRow,
    cells_of,
    read_batches,
    sampled_rows,
    small_columns,
    whole_rows,
)
from spanloom.families.harmony.verify.rules import Judgement, judge_row, refused_id
from spanloom.families.harmony.verify.texts import TextCheck
from spanloom.findings import Finding, Report
from spanloom.records.parquet import BATCH_ROWS
from spanloom.tokenizers.o200k.asset import locate_asset

if TYPE_CHECKING:
    import tiktoken

WORDS_OF_LIBRARIES = " is not JSON: "
"""The text after it in a reject's detail comes from a library, and may differ between versions."""

Places = dict[int, list[PlacedDocument]]
"""Row → its documents, in order, each with its `ABOUT_CUTS` columns of the row table."""
ABOUT_CUTS = ("cut", "runs", "weight")
"""Columns of the row table about the cutting of a conversation; datasets of earlier releases have only the first."""


WHOLE_TOKENS = 50_000
"""Token budget for the sampled rows whose documents are all rendered again; of later sampled rows, only one document is
rendered again. If all rows are sampled, all documents are rendered again."""


Encodings: TypeAlias = "tuple[HarmonyEncoding, TokenBytes, tiktoken.Encoding | None]"


def encodings(tokenizer: Path | None, deep: int) -> Encodings:
    """The encoding of openai-harmony, the bytes of tokens and, if documents are rendered again, the encoding of
    tiktoken; loaded once per process."""
    asset = locate_asset(tokenizer)
    return load_encoding(asset), token_bytes(asset), load_tiktoken(asset) if deep else None


def check_source(report: Report, check: SourceCheck) -> None:
    """Checks that the source is the manifest's, byte by byte; compares all its rows and renders some of them again."""
    whole, content = check.whole, check.whole.content
    shares = deep_shares(content, check.deep)

    def opened(own: Report, source: Source) -> Encodings:  # noqa: ARG001
        rules_of(content.config, profile_of_source(source.format))  # raises if they are missing or invalid
        return encodings(check.tokenizer, check.deep)

    def check_shard(own: Report, shard: ShardEntry, source: SourceShard, loaded: Encodings) -> None:
        encoding, _, second = loaded
        held, share = ShardSource(whole=whole, shard=shard, source=source), shares[shard.shard]
        own.ran("source rows", shard.rows_read)
        work = partial(_checked_rows, held, check.tokenizer)
        of_pieces = whole.run.spread(work, shard.rows_read)
        for report in (*(rows for rows, _, _ in of_pieces), *(documents for _, documents, _ in of_pieces)):
            own.include(report)
        own.add(held.check_counts([counts for _, _, counts in of_pieces]))
        own.add(held.check_rejected(encoding))
        if second is not None:
            places = held.places(sampled_rows(source, shard.rows_read, share))
            texts = TextCheck(second)
            own.ran("rows rendered again", len(places))
            whole_tokens = None if share >= shard.rows_read else WHOLE_TOKENS // len(content.shards)
            own.add(held.check_sample(places, encoding, texts, whole_tokens))
            own.ran("documents rendered again", texts.documents)
            own.ran("texts encoded again", texts.texts)

    check_against_folder(report, check, opened, check_shard)


def _checked_rows(held: "ShardSource", tokenizer: Path | None, rows: range) -> tuple[Report, Report, Counts]:
    """What is found in some rows, and in their documents; the counts of their conversations."""
    encoding, table, _ = encodings(tokenizer, 0)
    of_rows, of_documents = Report(), Report()
    of_rows.add(held.check_all(rows))
    compared = held.compared(Wrappers(encoding), table)
    of_documents.add(held.check_documents(of_documents, rows, compared))
    return of_rows, of_documents, compared.counts


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

    @property
    def _columns(self) -> pa.Schema:
        """Of the row tables, what places a document."""
        return pa.schema([field for field in self.profile.about if field.name in ("row", *self._about_cuts)])

    def places(self, rows: Sequence[int]) -> Places:
        """The documents of these rows, without rows that have none."""
        placed = documents_by_row(self.whole, self.shard, self._columns, rows)
        return {row: [*documents] for row, documents in groupby(placed, key=_row_of)}

    def check_all(self, rows: range) -> Iterator[Finding]:
        """Checks id and metadata of each of these rows in the dataset."""
        profile = self.profile
        columns = ("sequence", "row", profile.split_column, *profile.source.metadata_columns)
        splits, id_column = self.whole.readable_splits(self.shard), profile.source.id_column
        places = RowPlaces(self.whole.root, self.shard, splits, columns, id_column, lambda _: None)
        places.skip(rows.start)
        for first, batch in self._batches(rows, small_columns(profile), BATCH_ROWS * 16):
            cells, torn = cells_of(batch, profile)
            for split, table in places.before(first + batch.num_rows).tables.items():
                inside = table.filter(pa.array(row_numbers(table) >= first))  # earlier rows were checked
                yield from self._check_table(split, inside, first, cells, torn)

    def _batches(self, rows: range, columns: Sequence[str], batch_rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """These rows, with the number of the first row of each batch."""
        ends = [*accumulate(group_rows(self.source))]
        before, until = bisect_right(ends, rows.start), bisect_left(ends, rows.stop) + 1
        first = ends[before - 1] if before else 0
        with open_source_shard(self.source) as file:
            for at, batch in read_batches(file, self.source, columns, batch_rows, range(before, min(until, len(ends)))):
                begin, end = max(rows.start - first - at, 0), rows.stop - first - at
                if (inside := batch.slice(begin, max(end - begin, 0))).num_rows:
                    yield first + at + begin, inside

    def _check_table(
        self, split: str, table: pa.Table, first: int, cells: Mapping[str, list[str | None]], torn: set[int]
    ) -> Iterator[Finding]:
        profile = self.profile
        id_column, metadata = profile.source.id_column, profile.source.metadata_columns
        numbers = row_numbers(table).tolist()
        stored = {name: table.column(name).to_pylist() for name in ("sequence", profile.split_column, *metadata)}
        judged, judged_row = Judgement(id=None), -1
        for index, row in enumerate(numbers):
            at, place = row - first, {"split": split, "sequence": stored["sequence"][index]}
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

    def compared(self, wrappers: Wrappers, table: TokenBytes) -> ComparedRows:
        """What compares rows with their documents."""
        counting = self.shard.cutting is not None
        return ComparedRows(self.whole.root, self.profile, self.config, wrappers, table, counting=counting)

    def check_documents(self, report: Report, rows: range, compared: ComparedRows) -> Iterator[Finding]:
        """Checks that each of these rows in the dataset is one that the rules accept, and that its documents are the
        row's."""
        placed = groupby(documents_by_row(self.whole, self.shard, self._columns, rows), key=_row_of)
        waiting = next(placed, None)
        for first, batch in self._batches(rows, ("messages_json",), BATCH_ROWS):
            texts = batch.column("messages_json").cast(pa.large_binary())
            while waiting is not None and waiting[0] < first + batch.num_rows:
                row, documents = waiting[0], [*waiting[1]]
                if row >= first:
                    report.ran("documents compared", len(documents))
                    yield from compared.add(row, texts[row - first].as_py(), documents)
                waiting = next(placed, None)
        yield from compared.rest()

    def check_counts(self, of_pieces: Sequence[Counts]) -> Iterator[Finding]:
        """Checks what the manifest says of the shard's conversations."""
        if self.shard.cutting is None:
            return
        counts = Counts()
        for piece in of_pieces:
            counts.counted.update(piece.counted)
        rewritten = self.config.get("call_format") == "as-served"
        for message in counts.differences(self.shard.cutting, rewritten=rewritten):
            yield Finding(check="source", message=message, shard=self.shard.shard)

    def check_rejected(self, encoding: HarmonyEncoding) -> Iterator[Finding]:
        """Checks that the rules, or openai-harmony, refuse every rejected row, for the reason in the rejects."""
        waiting: deque[RejectedRow] = deque()

        def numbers() -> Iterator[int]:
            for reject in rejected_rows(self.whole.root, self.shard, self.profile.source.id_column, lambda _: None):
                waiting.append(reject)
                yield reject.row

        for row in whole_rows(self.source, numbers()):
            line = waiting.popleft()
            by_harmony = line.reason == Reason.RENDERER_REFUSED
            is_long = line.reason == Reason.TOO_LONG
            judged = refusal(row, self.profile, self.config, encoding if by_harmony else None)
            reason, detail = judged.reason, judged.detail
            place: dict[str, Any] = {"line": line.line}
            if is_long and reason is None:
                reason, detail = self._too_long(row, encoding)
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

    def _too_long(self, row: SourceRow, encoding: HarmonyEncoding) -> tuple[str | None, str]:
        """Why a row was left out for its length, and the detail; None if its longest document, rendered again, is
        short enough."""
        try:
            tokens = max(len(self._rendered(row, shown, encoding).tokens) for shown in self._shown(row))
        except RenderRefusedError:
            return Reason.RENDERER_REFUSED, ""
        except PromptError as fault:
            return None, str(fault)
        caps = self.config.get("caps")
        longest = caps.get("longest") if isinstance(caps, dict) else None
        if longest is None or tokens <= longest:
            return None, ""
        return Reason.TOO_LONG, f"it makes a document of {tokens} tokens, --longest allows {longest}"

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
            finding = partial(finding_of_row, row.row, documents)
            if refusal(row, self.profile, self.config, None).reason is not None:  # in the report already
                continue
            shown = self._shown(row)
            is_whole = whole_tokens is None or rendered < whole_tokens
            wanted: dict[int, DiskSequences] = {}
            try:
                for at in range(len(shown)) if is_whole else [number % len(shown)]:
                    wanted[at] = self._rendered(row, shown[at], encoding)
                    rendered += len(wanted[at].tokens)
            except RenderRefusedError:
                yield finding("source", f"is refused ({Reason.RENDERER_REFUSED}: ), yet was not rejected")
                continue
            except PromptError as fault:
                yield finding("rerender", str(fault))
                continue
            for at, place in enumerate(documents[: len(shown)]):
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


def _row_of(document: PlacedDocument) -> int:
    return int(document.row["row"])


def _our_words(detail: str) -> str:
    """A reject's detail without the text from a library."""
    return detail.partition(WORDS_OF_LIBRARIES)[0]
