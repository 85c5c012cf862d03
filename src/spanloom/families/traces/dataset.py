"""Token datasets of traces for the shared commands: implements `spanloom.dataset.family.DatasetFamily`.

In: arguments of the commands, documents as stored on disk, a manifest's `content`. Out: findings, values.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from spanloom.dataset import family
from spanloom.dataset.document import ShownMessage, ShownToken, cut_before_eod
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.rows.table import weighed
from spanloom.dataset.validate.checks import check_documents_with_ids
from spanloom.dataset.validate.content import check_no_links
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.dataset.validate.json_tokenizer import check_tokenizer, own_vocabulary
from spanloom.dataset.validate.json_tokenizer import stage_tokenizer as stage_tokenizer
from spanloom.dataset.validate.row_ids import check_rows_and_ids
from spanloom.families.traces import recipe
from spanloom.families.traces.encoding import tokens
from spanloom.families.traces.render import CONTROL_STRINGS
from spanloom.families.traces.trace import SUFFIXES
from spanloom.families.traces.verify import documents as verify
from spanloom.families.traces.verify.content import check_content as check_content
from spanloom.families.traces.verify.content import check_sums as check_sums
from spanloom.families.traces.verify.source import check_source as check_source
from spanloom.families.traces.verify.texts import check_texts, is_readable
from spanloom.findings import Finding, Report
from spanloom.records.staging import staged_records
from spanloom.report.card import code
from spanloom.split import SPLITS as BOTH_SPLITS
from spanloom.storage.scratch import Scratch
from spanloom.tokenizers.token_texts import TokenTexts, token_texts

ID_COLUMN = "trace_id"
GROUP_COLUMNS = ("source",)
ROW_SCHEMA = recipe.ABOUT_SCHEMA
ARRAY_DTYPES, SPAN_NAMES = tokens.ARRAY_DTYPES, tokens.SPAN_NAMES
header_tokens = family.no_header_tokens
layout = family.one_layout(ARRAY_DTYPES, SPAN_NAMES)
SPLITS = BOTH_SPLITS
RATIO = ("reasoning", "answer")


def row_schema(content: Content) -> pa.Schema:
    """The family's columns, and `weight` if the dataset has weights."""
    return weighed(ROW_SCHEMA, content.config)


def check_shard(report: Report, opened: family.OpenedShard, run: family.CheckRun) -> Digests:
    """Checks every document: tokens, mask, spans, row and split. Returns the digests of the ids."""
    return check_documents_with_ids(
        report,
        opened,
        run,
        kind=SpanDocuments,
        id_column=ID_COLUMN,
        check_documents=partial(verify.check_documents, content=opened.content),
        check_rows=partial(_check_rows, content=opened.content, texts=_texts(opened)),
    )


def _texts(opened: family.OpenedShard) -> TokenTexts | None:
    """The texts of the dataset's tokens, if they can be read off them."""
    texts = token_texts(opened.root / TOKENIZER_NAME)
    return texts if texts is not None and is_readable(texts, opened.content.config["format"]) else None


def _check_rows(
    documents: SpanDocuments, rows: pa.Table, digests: Digests, content: Content, texts: TokenTexts | None
) -> Iterator[Finding]:
    yield from verify.check_rows(documents, rows, digests, content)
    if texts is not None:
        yield from check_texts(documents, rows, content, texts)


def check_whole(report: Report, whole: family.WholeCheck, digests: DigestRuns) -> None:
    """Checks that the documents are rows 0, 1, 2 … of the export, each once, and the tokenizer the manifest's."""
    rows = whole.content.totals.rows_read
    report.add(check_tokenizer(whole.content, whole.root / TOKENIZER_NAME))
    report.add(check_no_links(whole.root, [TOKENIZER_NAME]))
    check_rows_and_ids(report, whole, digests, id_column=ID_COLUMN, split_column=ID_COLUMN, noun="trace", of_file=rows)


def stage_source(scratch: Scratch, place: str, only: tuple[int, ...] | None = None) -> Path:  # one file
    """The export that was tokenised, as a local file: `spanloom traces export` in the same format."""
    return staged_records(scratch, place, SUFFIXES)


def load_vocabulary(content: Content, tokenizer: Path | None) -> family.Vocabulary:
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


def describe(content: Content) -> family.Description:
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
    return family.Description(
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


def export_columns(content: Content) -> Sequence[family.ExportColumn]:
    """The column with the id of the trace."""
    return (family.ExportColumn(name=ID_COLUMN, meaning="the id of the trace"),)
