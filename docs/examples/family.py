"""Pairs of question and answer, a JSON object a line with `id`, `question` and `answer`. A token is a byte."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spanloom.building.assembly import build_facts
from spanloom.building.disk import Size
from spanloom.building.make import BuildResult
from spanloom.building.options import RunOptions
from spanloom.building.recipe import DatasetForm, FileShard, Made, OfFile, Part
from spanloom.building.request import DatasetRequest, build_requested
from spanloom.building.shards.files import DatasetJob
from spanloom.building.shards.ids import split_decided
from spanloom.conversations.source.rejects import Reject
from spanloom.dataset import family
from spanloom.dataset.document import ShownMessage, ShownToken, cut_before_eod
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.validate import content as states
from spanloom.dataset.validate.checks import check_documents_with_ids
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.dataset.validate.placed_documents import documents_by_row, with_documents
from spanloom.dataset.validate.row_ids import check_rows_and_ids
from spanloom.dataset.validate.source import check_against_source, is_same_files
from spanloom.errors import SourceError
from spanloom.findings import Finding, Report
from spanloom.report.progress import Mode, Progress
from spanloom.split import SPLITS as SPLITS
from spanloom.split import split_rule
from spanloom.storage import sha256_file
from spanloom.storage.scratch import Scratch
from spanloom.supervision import closed_documents

EOD, BATCH, ID_COLUMN = 256, 1000, "pair_id"
TOKENIZER = {"name": "bytes", "sha256": sha256(b"bytes").hexdigest(), "vocab_size": 257, "eod": EOD}
LAYOUT = family.Layout(
    arrays={"tokens": "int32", "lossmask": "uint8", "span": "uint8"}, span_names=("question", "answer")
)
ABOUT = pa.schema([pa.field("row", pa.int64(), nullable=False), pa.field(ID_COLUMN, pa.string(), nullable=False)])
FORM = DatasetForm(family="pairs", layout=LAYOUT, about=ABOUT, split_column=ID_COLUMN, id_column="id")


# How rows become documents.
@dataclass(frozen=True, kw_only=True)
class Pairs(OfFile):
    file: Path
    sha256: str
    shards: tuple[FileShard, ...]

    form, code, libraries = FORM, "pairs", ("numpy", "pyarrow")

    def identity(self) -> Mapping[str, Any]:
        return {"build": self.build, "source": self.sha256, "shards": len(self.shards)}

    def parts(self, shard: FileShard, rows: int) -> Iterator[Part]:
        with self.file.open("rb") as lines:
            own = islice(lines, shard.index, None, len(self.shards))
            for first in range(0, rows, BATCH):
                held = list(islice(own, min(BATCH, rows - first)))
                row = shard.index + first * len(self.shards)
                yield Part(index=first // BATCH, first_row=row, rows=len(held), key=self.sha256, holds=held)

    def made(self, shard: FileShard, part: Part, token_budget: int | None) -> Iterator[Made]:
        pairs = [(part.first_row + at * len(self.shards), json.loads(line)) for at, line in enumerate(part.holds)]
        kept = [(row, pair) for row, pair in pairs if pair["answer"]]
        texts = [[np.frombuffer(pair[name].encode(), np.uint8) for name in LAYOUT.span_names] for _, pair in kept]
        spans = [np.repeat(np.array([0, 1], np.uint8), [text.size for text in pair]) for pair in texts]
        tokens = [np.concatenate(pair).astype(np.int32) for pair in texts]
        about = [[row for row, _ in kept], [pair["id"] for _, pair in kept]]
        refused = [refusal(shard.index, row, pair["id"]) for row, pair in pairs if not pair["answer"]]
        yield Made(
            rows_read=len(pairs),
            documents=closed_documents(tokens, spans, spans, EOD),
            about=pa.RecordBatch.from_arrays(
                [pa.array(each, kind.type) for each, kind in zip(about, ABOUT, strict=True)], schema=ABOUT
            ),
            refused=refused,
        )

    def check_unchanged(self, shard: FileShard) -> None:
        if sha256_file(self.file) != self.sha256:
            raise SourceError("the file changed during the build", where=str(self.file), remedy="build again")

    def input_of(self, shard: FileShard) -> Mapping[str, Any]:
        rows, size = sum(shard.rows for shard in self.shards), self.file.stat().st_size
        return {"path": self.file.name, "rows": rows, "bytes": size, "sha256": self.sha256}


def refusal(shard: int, row: int, name: str) -> Reject:
    return Reject(shard=shard, row=row, id=name, reason="no_answer", detail="the answer is empty", id_column="id")


def recipe_of(file: Path, shards: int, valid_fraction: float) -> Pairs:
    with file.open("rb") as lines:
        rows = sum(1 for _ in lines)
    config, split = {"valid_fraction": valid_fraction}, split_decided(ID_COLUMN, valid_fraction)
    build = build_facts(FORM, config=config, tokenizer=TOKENIZER, source={"schema_version": "pairs"}, split=split)
    own, given = FileShard.of(file, rows, shards), {"source": str(file)}
    return Pairs(file=file, sha256=sha256_file(file), shards=own, build=build, given=given)


def request_of(file: Path, shards: int, valid_fraction: float) -> DatasetRequest:
    recipe = recipe_of(file, shards, valid_fraction)
    job = DatasetJob(recipe=recipe, shards=recipe.shards, verb="encode", useful_workers=lambda rows: 1)
    return DatasetRequest(
        identity={
            "family": FORM.family,
            "config": recipe.build["config"],
            "source": [recipe.sha256],
            "tokenizer": TOKENIZER["sha256"],
        },
        arrays=LAYOUT.arrays,
        shards=shards,
        size=lambda: Size(tokens=file.stat().st_size, documents=0),
        opened=lambda: nullcontext(job),
    )


def build(file: Path, root: Path, options: RunOptions, *, shards: int = 1, valid_fraction: float = 0.1) -> BuildResult:
    options.check()
    this, request = sys.modules[__name__], request_of(file, shards, valid_fraction)
    return build_requested(root, request, this, options, Progress(mode=Mode.SILENT))


# What the shared commands ask of a family: `DatasetFamily` in `dataset/family.py`.
GROUP_COLUMNS: tuple[str, ...] = ()
RATIO = None
layout = family.one_layout(LAYOUT.arrays, LAYOUT.span_names)
row_schema = family.one_row_schema(ABOUT)
header_tokens = family.no_header_tokens


def check_content(content: Content) -> Iterator[Finding]:
    yield from states.check_documents_by_id(content, {}, split_rule(ID_COLUMN), documents="pairs", rendered=False)
    yield from states.check_files(content, {})
    yield from states.check_input(content, "pairs", without=["manifest_sha256", "dataset", "license"])
    yield from states.check_stated(content.tokenizer.model_dump(), TOKENIZER, "tokenizer")


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:
    written = sum(split.sequences for split in shard.splits.values())
    yield from states.check_rejected(shard, written=written, reasons=["no_answer"].__contains__, listed=None)


def check_shard(report: Report, opened: family.OpenedShard, run: family.CheckRun) -> Digests:
    def check_documents(some: SpanDocuments) -> Iterator[Finding]:
        yield from some.check_tokens(opened.content)
        yield from some.check_labels()

    def check_rows(some: SpanDocuments, rows: pa.Table, digests: Digests) -> Iterator[Finding]:
        yield from some.check_rows(rows, some.counted(LAYOUT.span_names))
        yield from some.check_split(rows.column(ID_COLUMN), digests, opened.content)

    return check_documents_with_ids(
        report,
        opened,
        run,
        kind=SpanDocuments,
        id_column=ID_COLUMN,
        check_documents=check_documents,
        check_rows=check_rows,
    )


def check_whole(report: Report, whole: family.WholeCheck, digests: DigestRuns) -> None:
    rows = whole.content.totals.rows_read
    check_rows_and_ids(report, whole, digests, id_column="id", split_column=ID_COLUMN, noun="pair", of_file=rows)


def check_source(report: Report, check: family.SourceCheck) -> None:
    def check_one(own: Report, shard: ShardEntry, lines: list[bytes]) -> None:
        for _, line, document in with_documents(own, lines, documents_by_row(check.whole, shard, ABOUT)):
            own.ran("source rows", 1)
            if document is not None:
                pair = json.loads(line)
                wanted = [*pair["question"].encode(), *pair["answer"].encode(), EOD]
                own.add(document.differences(check.whole.root, "the pair", wanted))

    def opened(own: Report) -> list[bytes] | None:
        return check.source.read_bytes().splitlines() if is_same_files(own, check, [check.source]) else None

    check_against_source(report, check, opened, check_one)


def stage_source(scratch: Scratch, place: str, only: tuple[int, ...] | None = None) -> Path:
    return scratch.file(place)


def stage_tokenizer(scratch: Scratch, place: str | None) -> Path | None:
    return None  # there is none


class Bytes:
    def is_special(self, token: int) -> bool:
        return token == EOD

    def name(self, token: int) -> str:
        return "<eod>"

    def piece(self, token: int) -> bytes:
        return b"" if token == EOD else bytes([token])


def load_vocabulary(content: Content, tokenizer: Path | None) -> Bytes:
    return Bytes()


def cut_messages(content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]) -> Iterator[ShownMessage]:
    def begins(at: int) -> bool:
        return tokens[at].span != tokens[at - 1].span

    for first, last, closing in cut_before_eod(tokens, EOD, begins):
        role = "" if closing else LAYOUT.span_names[tokens[first].span]
        yield ShownMessage.of(tokens[first], first, last, role=role)


def document_notes(row: Mapping[str, Any]) -> Sequence[str]:
    return ()


def describe(content: Content) -> family.Description:
    files = "`shard_00_tokens`, `shard_00_lossmask` and `shard_00_span` are IndexedDatasets."
    return family.Description(
        tags=("question-answering",), introduction="Pairs.", files=files, making=("a token is a byte",), summary={}
    )


def export_columns(content: Content) -> Sequence[family.ExportColumn]:
    return (family.ExportColumn(name=ID_COLUMN, meaning="the id of the pair"),)
