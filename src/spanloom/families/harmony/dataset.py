"""SYNTH KD for the shared commands: this module implements `spanloom.dataset.family.DatasetFamily`.

The functions are also used for harmony_chat, whose module `chat_dataset` has other constants. Differences follow from
the profile that a manifest's `family` names.

In: the arguments of the commands, documents as stored on disk, a manifest's `content`. Out: findings, values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from spanloom.conversations.source.places import staged_source
from spanloom.dataset import family
from spanloom.dataset.document import ShownMessage, ShownToken
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.validate.checks import check_documents_with_ids
from spanloom.dataset.validate.content import check_rejected, wrong
from spanloom.dataset.validate.row_ids import check_rows_and_ids, firsts_in_turn
from spanloom.errors import SpanloomError
from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.contract.history import TRUNCATED
from spanloom.families.harmony.contract.profile import ARRAY_DTYPES, SYNTH_KD, profile_of_family
from spanloom.families.harmony.contract.shown import messages_of
from spanloom.families.harmony.verify import documents as verify
from spanloom.families.harmony.verify.content import check_content as check_content
from spanloom.families.harmony.verify.structure.spans import untrained_ends
from spanloom.findings import Finding, Report
from spanloom.report.card import code
from spanloom.split import SPLITS as BOTH_SPLITS
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, locate_asset
from spanloom.tokenizers.o200k.staging import staged_asset
from spanloom.tokenizers.o200k.vocabulary import load_vocabulary as load_o200k

ID_COLUMN = SYNTH_KD.source.id_column
GROUP_COLUMNS = SYNTH_KD.source.metadata_columns
ROW_SCHEMA = SYNTH_KD.about
SPAN_NAMES = SYNTH_KD.span_names
layout = family.one_layout(ARRAY_DTYPES, SPAN_NAMES)
row_schema = family.one_row_schema(ROW_SCHEMA)
SPLITS = BOTH_SPLITS
RATIO = ("analysis", "final")


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:
    """Checks that each source row was written, as one document or as its cuts, or rejected; and that there is a rejects
    file if rows were rejected."""
    documents = sum(counts.sequences for counts in shard.splits.values())
    written = documents if shard.cutting is None else shard.cutting["conversations"]
    yield from check_rejected(shard, written=written, listed=True)
    if shard.cutting is not None and documents != shard.cutting["documents"]:
        yield wrong(f"cutting.documents is {shard.cutting['documents']}, {documents} were written", shard.shard)
    if shard.cutting is not None and shard.cutting["runs"] < documents:
        yield wrong(f"cutting.runs is {shard.cutting['runs']}, fewer than the {documents} documents", shard.shard)
    if shard.cutting is not None and shard.cutting.get("divided_documents", 0) > documents - written:
        divided = shard.cutting["divided_documents"]
        message = f"cutting.divided_documents is {divided}, more than documents have a next one of their conversation"
        yield wrong(message, shard.shard)


def check_shard(report: Report, opened: family.OpenedShard, run: family.CheckRun) -> Digests:
    """Checks every document: tokens, mask, spans, row, split. Returns the digests of the ids."""
    profile = profile_of_family(opened.content.family, opened.content.input.schema_version)
    trained = verify.trained_messages(opened.content.config, opened.content.totals.cutting, profile)
    truncated = 0

    def check_documents(documents: verify.HarmonyDocuments) -> Iterator[Finding]:
        nonlocal truncated
        if trained is not None and trained.truncated:
            truncated += untrained_ends(documents.tokens, documents.span)
        return verify.check_documents(documents, trained)

    digests = check_documents_with_ids(
        report,
        opened,
        run,
        kind=partial(verify.HarmonyDocuments, profile=profile),
        id_column=profile.split_column,
        check_documents=check_documents,
        check_rows=partial(verify.check_rows, content=opened.content, trained=trained),
        kept_rows=firsts_in_turn(),
    )
    if truncated > (stated := (opened.shard.cutting or {}).get(TRUNCATED, 0)):
        message = f"{truncated} trained messages end in a token that is not trained, cutting.{TRUNCATED} is {stated}"
        report.add([opened.finding("span", message)])
    return digests


def check_whole(report: Report, whole: family.WholeCheck, digests: DigestRuns) -> None:
    """Checks that every row read is in the dataset once, or with all its cuts in one split, or rejected; and the count
    of repeated ids."""
    profile = profile_of_family(whole.content.family)
    check_rows_and_ids(
        report,
        whole,
        digests,
        id_column=profile.source.id_column,
        split_column=profile.split_column,
        several=profile.cuts,
        noun=profile.source.id_column,
        also=partial(verify.check_trained_runs, whole.content),
    )


def check_source(report: Report, check: family.SourceCheck) -> None:
    """Checks that the source is the manifest's, byte by byte; compares all its rows and renders some of them again."""
    from spanloom.families.harmony.verify.source import check_source

    check_source(report, check)


def load_for_source(asset: Path, deep: int) -> None:
    """Loads what `check_source` needs, in the process that calls it later."""
    from spanloom.families.harmony.verify.source import encodings

    encodings(asset, deep)


stage_source = staged_source
stage_tokenizer = staged_asset


def load_vocabulary(content: Content, asset: Path | None) -> family.Vocabulary:
    """The o200k vocabulary with Harmony's special tokens."""
    if content.tokenizer.sha256 != ASSET_SHA256:
        raise SpanloomError(f"the dataset's tokens are of another tokenizer ({content.tokenizer.name})")
    return load_o200k(locate_asset(asset), tokenizer.SPECIAL_NAMES)


def header_tokens(content: Content) -> tuple[int, int] | None:
    """`<|start|>` to `<|message|>`."""
    return tokenizer.START, tokenizer.MESSAGE


def cut_messages(content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]) -> Iterator[ShownMessage]:
    """Cuts a document at every `<|start|>`, and before its closing EOD."""
    return messages_of(tokens)


def document_notes(row: Mapping[str, Any]) -> Iterable[str]:
    """No notes: id, language and exercise are shown anyway."""
    return ()


def describe(content: Content) -> family.Description:
    """Describes the dataset: documents with spans, renderer, split."""
    split = content.split
    assert split is not None, "the schema demands it of this family"
    realised = f"{split.realised_valid_fraction:.6f}"
    alike = described(content, parts="reasoning or final", columns="id, language, exercise", unit="rows")
    return replace(
        alike,
        making=(
            *alike.making[:-1],
            f"{alike.making[-1]}, all reasoning kept; one `<|endoftext|>` after each",
            f"split: `{split.rule}`, asked {split.valid_fraction}, realised {realised}",
        ),
        summary={**alike.summary, "split": f"valid_fraction {split.valid_fraction}, realised {realised}"},
    )


def described(content: Content, *, parts: str, columns: str, unit: str) -> family.Description:
    """The description of both families. Texts: `parts` of an answer, `columns` of the row table, audited `unit`."""
    origin, renderer = content.input.dataset, content.renderer
    assert renderer is not None, "the schema demands it of this family"
    made_from = f"from {code(origin)} " if origin else ""
    spans = ", ".join(f"{number} {name}" for number, name in enumerate(content.span_names))
    return family.Description(
        tags=("harmony",),
        introduction=f"Conversations {made_from}as Harmony token documents for Megatron."
        f" Every token has a loss mask and a span id: which part of the answer it belongs to, {parts}."
        " Made by Spanloom.",
        files="Each shard of a split is three Megatron IndexedDatasets of equal shape, `shard_NN_tokens` (int32),"
        f" `shard_NN_lossmask` (uint8, 1 = trained) and `shard_NN_span` (uint8: {spans}), and `shard_NN_rows.parquet`"
        f" with the {columns} and token counts of each document.",
        making=(
            f"tokenizer: {content.tokenizer.name}, sha256 `{content.tokenizer.sha256}`",
            f"rendered by {renderer.version}",
        ),
        summary={"renderer": f"{renderer.name} ({renderer.version})"},
        facts={"renderer": content.as_dict()["renderer"]},
        provenance={
            "renderer": f"{renderer.name}: {renderer.version}; {renderer.audited_rows:,} {unit} audited, "
            f"{renderer.fallback_rows:,} fell back"
        },
    )


def export_columns(content: Content) -> Sequence[family.ExportColumn]:
    """The id."""
    return (family.ExportColumn(name=ID_COLUMN, meaning="the id in the source"),)
