"""Token datasets of traces for the shared commands: implements `spanloom.dataset.family.DatasetFamily`.

In: arguments of the commands, documents as stored on disk, a manifest's `content`. Out: findings, values.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spanloom.dataset.document import ShownMessage, ShownToken, cut_before_eod
from spanloom.dataset.family import (
    CheckRun,
    Description,
    ExportColumn,
    OpenedShard,
    SourceCheck,
    Vocabulary,
    WholeCheck,
    no_header_tokens,
    one_layout,
)
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import TOKENIZER_NAME, tokenizer_at
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.rows.table import weighed
from spanloom.dataset.validate.dataset import check_documents_with_ids
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.dataset.validate.json_tokenizer import check_tokenizer, encoded_between, own_tokenizer, own_vocabulary
from spanloom.dataset.validate.json_tokenizer import stage_tokenizer as stage_tokenizer
from spanloom.dataset.validate.placed_documents import (
    PlacedDocument,
    drawn_rows,
    first_difference,
    placed_documents,
    placed_rows,
)
from spanloom.dataset.validate.row_ids import check_disjoint
from spanloom.errors import TokenizerError
from spanloom.families.traces import recipe
from spanloom.families.traces.encoding import tokens
from spanloom.families.traces.render import CONTROL_STRINGS
from spanloom.families.traces.trace import SUFFIXES
from spanloom.families.traces.verify import documents as verify
from spanloom.families.traces.verify.content import check_content as check_content
from spanloom.families.traces.verify.content import check_sums as check_sums
from spanloom.findings import Finding, Report
from spanloom.records.json_lines import lines
from spanloom.records.staging import staged_records
from spanloom.report.card import code
from spanloom.split import SPLITS as BOTH_SPLITS
from spanloom.storage import sha256_file
from spanloom.storage.scratch import Scratch
from spanloom.supervision import shift_to_tokens
from spanloom.tokenizers.json_file import load_json_tokenizer, tokenizer_faults

ID_COLUMN = "trace_id"
GROUP_COLUMNS = ("source",)
ROW_SCHEMA = recipe.ABOUT_SCHEMA
ARRAY_DTYPES, SPAN_NAMES = tokens.ARRAY_DTYPES, tokens.SPAN_NAMES
header_tokens = no_header_tokens
layout = one_layout(ARRAY_DTYPES, SPAN_NAMES)
SPLITS = BOTH_SPLITS
stage_source_shards = None
RATIO = ("reasoning", "answer")


def row_schema(content: Content) -> pa.Schema:
    """The family's columns, and `weight` if the dataset has weights."""
    return weighed(ROW_SCHEMA, content.config)


def check_shard(report: Report, opened: OpenedShard, run: CheckRun) -> Digests:
    """Checks every document: tokens, mask, spans, row and split. Returns the digests of the ids."""
    return check_documents_with_ids(
        report,
        opened,
        run,
        kind=SpanDocuments,
        id_column=ID_COLUMN,
        check_documents=partial(verify.check_documents, content=opened.content),
        check_rows=partial(verify.check_rows, content=opened.content),
    )


def check_whole(report: Report, whole: WholeCheck, digests: DigestRuns) -> None:
    """Checks that the documents are rows 0, 1, 2 … of the export, each once, and the tokenizer the manifest's."""
    content = whole.content
    report.add(check_tokenizer(content, whole.root / TOKENIZER_NAME))
    check_disjoint(report, whole, digests, ID_COLUMN, "trace")
    rows = placed_rows(report, whole)
    if rows is None:
        return
    if (odd := np.flatnonzero(rows != np.arange(rows.size))).size:
        message = f"the rows are not each of 0 … {rows.size - 1} once: {rows[odd[0]]} is where {odd[0]} should be"
        report.wrong("rows", message)
    assert content.split is not None, "the schema demands it of this family"
    if (repeated := digests.surplus()) != content.split.repeated_rows:
        stated = content.split.repeated_rows
        report.wrong("manifest", f"split.repeated_rows is {stated}, {repeated} documents repeat an earlier id")


def check_source(report: Report, check: SourceCheck) -> None:
    """Checks that the export matches the manifest and its lines match the rows; encodes `deep` of the lines again."""
    content, path = check.whole.content, check.source
    (exported,) = content.input.shards
    report.ran("source files", 1)
    if (digest := sha256_file(path)) != exported.sha256:
        message = f"the dataset was built from another export (sha256 {exported.sha256}; this is {digest})"
        report.wrong("source", message, file=str(path))
        return
    size = path.stat().st_size
    if size != exported.bytes:
        report.wrong("source", f"{size} bytes, the manifest says {exported.bytes}", file=str(path))
    columns = row_schema(content)
    places = placed_documents(check.whole, columns)
    again = drawn_rows(exported.rows, check.deep)
    try:
        encode = _encoding(content, check) if again else None
    except TokenizerError as fault:
        report.wrong("tokenizer", fault.what, file=fault.where)
        return
    count = 0
    for _, raw in lines(path):
        check.whole.run.go_on()
        line, row = verify.exported_line(raw, content.config["format"]), count
        count += 1
        if isinstance(line, str):
            report.wrong("source", line, file=str(path), line=count)
            continue
        if (place := places.get(row)) is None:
            report.wrong("source", f"no document was made of row {row}", file=str(path))
            continue
        origin = {name: place.row[name] for name in ("trace_id", "source", *columns.names[len(ROW_SCHEMA) :])}
        report.add(place.finding("source", message) for message in verify.wrong_line(line, content.config, origin))
        if row in again and encode is not None:
            report.ran("rows encoded again", 1)
            report.add(_check_again(check, place, line, encode))
    report.ran("source rows", count)
    if count != exported.rows:
        report.wrong("source", f"{count} rows, the manifest says {exported.rows}", file=str(path))


def _encoding(content: Content, check: SourceCheck) -> Any:
    place = own_tokenizer(content, tokenizer_at(check.whole.root, check.tokenizer))
    loaded = load_json_tokenizer(place, extra="traces")

    def encode(
        text: str, special: bool, controls: Sequence[tuple[int, int]] | None = None
    ) -> tuple[list[int], list[tuple[int, int]]]:
        with tokenizer_faults(place):
            ids, offsets = encoded_between(loaded, text, controls)
            if not special:
                return ids, offsets
            # What the post-processor adds, it adds to a text of one letter too.
            added, alone = (loaded.encode("x", add_special_tokens=each).ids for each in (True, False))
        begin = next(at for at in range(len(added)) if added[at : at + len(alone)] == alone)
        behind = len(added) - begin - len(alone)
        around = [(0, 0)] * begin, [(0, 0)] * behind
        return (
            [*added[:begin], *ids, *added[len(added) - behind :]],
            [*around[0], *offsets, *around[1]],
        )

    return encode


def _check_again(check: SourceCheck, place: PlacedDocument, line: Mapping[str, Any], encode: Any) -> Iterator[Finding]:
    content = check.whole.content
    form = content.config["format"]
    response_start = int(place.row["response_start"])
    as_text = content.config["control_tokens"] == "text"
    expected = verify.expected_document(line, form, response_start, encode, content.tokenizer.eod, as_text=as_text)
    if isinstance(expected, str):
        yield place.finding("source", expected)
        return
    counted = {"boundary_tokens": expected.straddling, "control_strings": verify.controls_of(line, content.config)}
    for name, number in counted.items():
        if place.row[name] != number:
            yield place.finding("source", f"{name} is {place.row[name]}, the export's text has {number}")
    on_disk, tokens = place.read(check.whole.root, "tokens").tolist(), expected.tokens
    if on_disk != tokens:
        at = first_difference(on_disk, tokens)
        yield place.finding("source", "the tokens are not those of the export's text", at)
        return
    span = place.read(check.whole.root, "span").astype(np.uint8)
    aligned = shift_to_tokens(span, np.array([len(tokens)], dtype=np.int32)).tolist()
    if aligned not in expected.spans:
        at = max(first_difference(aligned, spans) for spans in expected.spans)
        yield place.finding("source", "the spans are not those of the export's text", at)


def stage_source(scratch: Scratch, place: str) -> Path:
    """The export that was tokenised, as a local file: `spanloom traces export` in the same format."""
    return staged_records(scratch, place, SUFFIXES)


def load_vocabulary(content: Content, tokenizer: Path | None) -> Vocabulary:
    """The vocabulary of the dataset's own tokenizer, or of `tokenizer`, a copy of that file."""
    return own_vocabulary(content, tokenizer, CONTROL_STRINGS, extra="traces")


def cut_messages(content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]) -> Iterator[ShownMessage]:
    """Cuts a document where its span changes, and before its closing EOD."""
    names = {0: "prompt", 1: "reasoning", 2: "answer"}

    def begins(at: int) -> bool:
        return tokens[at].span != tokens[at - 1].span

    for first, last, closing in cut_before_eod(tokens, content.tokenizer.eod, begins):
        role = "" if closing else names.get(tokens[first].span, "")
        yield ShownMessage.of(tokens[first], first, last, role=role)


def document_notes(row: Mapping[str, Any]) -> Iterator[str]:
    """Notes on a document: control strings in its content, a token that crosses from prompt to response."""
    if row["control_strings"]:
        yield f"{row['control_strings']:,} control string{'' if row['control_strings'] == 1 else 's'} in the content"
    if row["boundary_tokens"]:
        yield "a token begins in the prompt and ends in the response; it is not learned"


def describe(content: Content) -> Description:
    """The description of the dataset for its card and reports: format, spans, tokenizer, split."""
    config, split = content.config, content.split
    assert split is not None, "the schema demands it of this family"
    form = {"tunix_sft": "in Gemma's chat template", "training_example": "as prompt and response"}[config["format"]]
    spans = ", ".join(f"{number} {name}" for number, name in enumerate(content.span_names))
    realised = f"{split.realised_valid_fraction:.6f}"
    deleted = content.totals.rejected.get("deleted", 0)
    controls = {"verbatim": "copied", "reject": "none: such traces are refused", "escape": "broken by U+200B"}
    controls["text"] = "encoded as text"
    eod = config["eod"]
    return Description(
        tags=("reasoning",),
        introduction=f"Reasoning traces of {code(content.input.dataset or '')} as token documents for Megatron, {form}."
        " Every token has a loss mask and a span id: prompt, reasoning or answer. Made by Spanloom.",
        files="Each split is three Megatron IndexedDatasets of equal shape, `shard_00_tokens` (int32),"
        f" `shard_00_lossmask` (uint8, 1 = trained) and `shard_00_span` (uint8: {spans}), and `shard_00_rows.parquet`"
        " with the id, source and token counts of each document. `tokenizer.json` is the tokenizer.",
        making=(
            f"tokenizer: {code(content.tokenizer.name)}, sha256 `{content.tokenizer.sha256}`;"
            f" {code(eod['text'])} {eod['id']} after each document",
            f"format: {code(config['format'])}; control strings in content: {controls[config['control_tokens']]}",
            f"split: `{split.rule}`, asked {split.valid_fraction}, realised {realised}",
            f"{deleted:,} traces of the dataset were deleted before",
        ),
        summary={
            "format": f"{config['format']}, {eod['text']} ({eod['id']}) after each document",
            "split": f"valid_fraction {split.valid_fraction}, realised {realised}",
        },
        facts={"config": config},
        provenance={"format": config["format"], "dataset of traces": content.input.dataset or ""},
    )


def export_columns(content: Content) -> Sequence[ExportColumn]:
    """The column with the id of the trace."""
    return (ExportColumn(name=ID_COLUMN, meaning="the id of the trace"),)
