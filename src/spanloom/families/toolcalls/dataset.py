"""The interface of tool-call token datasets to the shared commands: implements `spanloom.dataset.family.DatasetFamily`.

In: the arguments of the commands, documents as they are on disk, a manifest's `content`. Out: findings, values.
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
from spanloom.dataset.validate.checks import check_documents_with_ids
from spanloom.dataset.validate.content import check_no_links
from spanloom.dataset.validate.disk_documents import DiskDocuments, SpanDocuments
from spanloom.dataset.validate.json_tokenizer import check_tokenizer, own_vocabulary
from spanloom.dataset.validate.json_tokenizer import stage_tokenizer as stage_tokenizer
from spanloom.dataset.validate.row_ids import check_rows_and_ids
from spanloom.families.toolcalls import recipe
from spanloom.families.toolcalls.format.control import CONTROL_STRINGS, PYTHON_TAG
from spanloom.families.toolcalls.format.source import SUFFIX
from spanloom.families.toolcalls.recipe import REGISTRIES_NAME, TEMPLATE_NAME
from spanloom.families.toolcalls.tokens.tokenizer import EXTRA
from spanloom.families.toolcalls.verify import documents as verify
from spanloom.families.toolcalls.verify.content import check_carried
from spanloom.families.toolcalls.verify.content import check_content as check_content
from spanloom.families.toolcalls.verify.content import check_sums as check_sums
from spanloom.families.toolcalls.verify.frames import check_frames, frame_of
from spanloom.families.toolcalls.verify.source import check_source as check_source
from spanloom.findings import Finding, Report
from spanloom.records.staging import staged_records
from spanloom.report.card import code
from spanloom.split import SPLITS as BOTH_SPLITS
from spanloom.storage.scratch import Scratch
from spanloom.tokenizers.token_texts import token_texts

ID_COLUMN = "sample_id"
GROUP_COLUMNS = ("subtype", "source")
ROW_SCHEMA = recipe.ABOUT_SCHEMA
SPLITS = BOTH_SPLITS
header_tokens = family.no_header_tokens
RATIO = None


def row_schema(content: Content) -> pa.Schema:
    """The family's columns, and `control_tokens` if texts may hold them."""
    return recipe.about_schema(content.config)


def layout(content: Content) -> family.Layout:
    """The arrays: tokens and mask; with `config.spans` "parts" also the spans of the answer's parts."""
    return recipe.LAYOUTS[content.config.get("spans", "answer")]


def has_parts(content: Content) -> bool:
    """Whether the dataset has a span for each part of the answers."""
    return "span" in content.arrays


def check_shard(report: Report, opened: family.OpenedShard, run: family.CheckRun) -> Digests:
    """Checks the tokens, mask, row and split of every document. Returns the digests of the ids."""
    return check_documents_with_ids(
        report,
        opened,
        run,
        kind=SpanDocuments if has_parts(opened.content) else DiskDocuments,
        id_column=ID_COLUMN,
        check_documents=partial(verify.check_documents, content=opened.content),
        check_rows=partial(_check_rows, content=opened.content, root=opened.root),
    )


def _check_rows(
    documents: DiskDocuments, rows: pa.Table, digests: Digests, content: Content, root: Path
) -> Iterator[Finding]:
    yield from verify.check_rows(documents, rows, digests, content)
    texts, frame = token_texts(root / TOKENIZER_NAME), frame_of(root, content)
    if texts is not None and frame is not None and frame.is_whole:
        yield from check_frames(documents, rows, content, texts, frame)


def check_whole(report: Report, whole: family.WholeCheck, digests: DigestRuns) -> None:
    """Checks that ids and rows are unique, and that template, tools and tokenizer match the manifest."""
    content = whole.content
    report.add(check_tokenizer(content, whole.root / TOKENIZER_NAME))
    report.add(check_carried(content, whole.root))
    report.add(check_no_links(whole.root, [TOKENIZER_NAME, TEMPLATE_NAME, REGISTRIES_NAME]))
    rows = content.totals.rows_read
    check_rows_and_ids(report, whole, digests, id_column="id", split_column=ID_COLUMN, noun="sample", of_file=rows)


def stage_source(scratch: Scratch, place: str, only: tuple[int, ...] | None = None) -> Path:  # one file
    """Stages the file of samples that the dataset was made from."""
    return staged_records(scratch, place, (SUFFIX,))


def load_vocabulary(content: Content, tokenizer: Path | None) -> family.Vocabulary:
    """The vocabulary of the dataset's own tokenizer, or of another copy of the same file (`tokenizer`)."""
    return own_vocabulary(content, tokenizer, CONTROL_STRINGS, extra=EXTRA)


def cut_messages(content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]) -> Iterator[ShownMessage]:
    """Cuts a document where its mask or span changes, at each tag of a call, and before its closing EOD."""

    def begins(at: int) -> bool:
        token, before = tokens[at], tokens[at - 1]
        tagged = token.trained and token.special and token.text == PYTHON_TAG
        return tagged or token.trained != before.trained or token.span != before.span

    for first, last, closing in cut_before_eod(tokens, content.tokenizer.eod, begins):
        trained = tokens[first].trained
        if has_parts(content):
            channel = content.span_names[tokens[first].span] if trained else ""
        else:
            channel = "tool call" if trained and tokens[first].text == PYTHON_TAG else ""
        role = "" if closing else "answer" if trained else "prompt" if first == 0 else "behind the answer"
        yield ShownMessage.of(tokens[first], first, last, role=role, channel=channel)


def document_notes(row: Mapping[str, Any]) -> Iterator[str]:
    """The weight, and a note if a token straddles the start of the answer."""
    yield f"weight {row['weight']:g}"
    if count := row.get("control_tokens"):
        yield f"{count:,} control token{'' if count == 1 else 's'} in texts that are not the assistant's"
    if row["straddling"]:
        yield "a token begins in the prompt and ends in the answer; it is not learned"


WARNING = (
    "These are answers that an attack succeeded in: plain cross-entropy on them teaches the attack. Trainers open this"
    " root only with `allow_harmful=True`, for a loss that moves the model away from it."
)


def describe(content: Content) -> family.Description:
    """Describes the dataset for its card: files, template, tokenizer, split, samples left out."""
    config, split = content.config, content.split
    assert split is not None, "the schema demands it of this family"
    realised = f"{split.realised_valid_fraction:.6f}"
    eod = config["eod"]
    kind = "Harmful tool-call samples" if config["harmful"] else "Samples to retain"
    named = ", ".join(f"{number} {name}" for number, name in enumerate(content.span_names))
    arrays = f"`shard_00_span` (uint8: {named}), " if has_parts(content) else ""
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in content.totals.rejected.items()) or "none"
    return family.Description(
        tags=("tool-calling", "safety"),
        introduction=f"{kind} as token documents for Megatron. The loss mask is the last assistant turn and the end"
        f" token behind it. Made by Spanloom.{' **' + WARNING + '**' if config['harmful'] else ''}",
        files="Each split is two Megatron IndexedDatasets of equal shape, `shard_00_tokens` (int32) and"
        f" `shard_00_lossmask` (uint8, 1 = trained), {arrays}and `shard_00_rows.parquet` with id, subtype, source,"
        f" weight and token counts of each document. `tokenizer.json`, `{TEMPLATE_NAME}` and `{REGISTRIES_NAME}` are"
        " what they were made with.",
        making=(
            f"tokenizer: {code(content.tokenizer.name)}, sha256 `{content.tokenizer.sha256}`;"
            f" {code(eod['text'])} {eod['id']} after each document",
            f"chat template: sha256 of its text as JSON `{config['template_sha256']}`",
            f"split: `{split.rule}`, asked {split.valid_fraction}, realised {realised}",
            f"samples left out: {left_out}",
        ),
        summary={
            "samples": f"{config['split']}, {eod['text']} ({eod['id']}) after each document",
            "split": f"valid_fraction {split.valid_fraction}, realised {realised}",
            **({"harmful": "trainers need allow_harmful=True"} if config["harmful"] else {}),
        },
        facts={"config": config},
        provenance={"samples": config["split"], "left out": left_out},
    )


def export_columns(content: Content) -> Sequence[family.ExportColumn]:
    """Id and subtype."""
    return (
        family.ExportColumn(name=ID_COLUMN, meaning="the id of the sample"),
        family.ExportColumn(name="subtype", meaning="what kind of sample it is; its weight follows from that"),
    )
