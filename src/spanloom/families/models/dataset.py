"""Datasets for a model as the shared commands see them: satisfies `spanloom.dataset.family.DatasetFamily`.

In: what the commands pass, documents as they are on disk, a manifest's `content`. Out: findings, values.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spanloom.conversations.source.format import format_named
from spanloom.conversations.source.places import staged_source
from spanloom.dataset import family
from spanloom.dataset.document import ShownMessage, ShownToken, cut_before_eod
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import MODEL_FOLDER, TOKENIZER_NAME
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.validate.checks import check_documents_with_ids
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.dataset.validate.json_tokenizer import check_tokenizer, own_vocabulary
from spanloom.dataset.validate.json_tokenizer import stage_tokenizer as stage_tokenizer
from spanloom.dataset.validate.row_ids import check_rows_and_ids, firsts_in_turn
from spanloom.families.models import defaults, recipe
from spanloom.families.models.defaults import SPLIT
from spanloom.families.models.documents.made import ABOUT_SCHEMA
from spanloom.families.models.form import FUNCTIONS, NINE
from spanloom.families.models.verify import documents as verify
from spanloom.families.models.verify.content import check_carried, check_run_counts
from spanloom.families.models.verify.content import check_content as check_content
from spanloom.families.models.verify.content import check_sums as check_sums
from spanloom.families.models.verify.frames import frames_of, is_earlier
from spanloom.families.models.verify.source import check_source as check_source
from spanloom.findings import Report
from spanloom.report.card import code
from spanloom.split import SPLITS as BOTH_SPLITS

ID_COLUMN = "id"
GROUP_COLUMNS: tuple[str, ...] = ()
ROW_SCHEMA = ABOUT_SCHEMA
ARRAY_DTYPES = recipe.ARRAY_DTYPES
SPAN_NAMES = defaults.SPAN_NAMES
header_tokens = family.no_header_tokens
layout = family.one_layout(ARRAY_DTYPES, SPAN_NAMES)
row_schema = family.one_row_schema(ROW_SCHEMA)
SPLITS = BOTH_SPLITS
RATIO = ("analysis", "final")


def check_shard(report: Report, opened: family.OpenedShard, run: family.CheckRun) -> Digests:
    """Checks tokens, mask, spans, row and split of every document. Returns the digests of the conversations' ids."""
    frames, _ = frames_of(opened.root, opened.content)
    return check_documents_with_ids(
        report,
        opened,
        run,
        kind=SpanDocuments,
        id_column="conversation",
        check_documents=partial(verify.check_documents, content=opened.content),
        check_rows=partial(verify.check_rows, content=opened.content, frames=frames, earlier=is_earlier(opened.root)),
        kept_rows=firsts_in_turn(),
    )


def check_whole(report: Report, whole: family.WholeCheck, digests: DigestRuns) -> None:
    """Checks that every row read has its documents in one split or was refused, that the model's files are those of
    the manifest, and that repeated ids are counted."""
    content = whole.content
    report.add(check_tokenizer(content, whole.root / MODEL_FOLDER / TOKENIZER_NAME))
    report.add(check_carried(content, whole.root))
    report.add(frames_of(whole.root, content)[1])
    check_run_counts(report, whole)
    source_format = format_named(content.input.schema_version)
    if source_format is None:  # in the report already
        return
    check_rows_and_ids(
        report,
        whole,
        digests,
        id_column=source_format.id_column,
        split_column="conversation",
        several=True,
        noun="conversation",
    )


stage_source = staged_source


def load_vocabulary(content: Content, tokenizer: Path | None) -> family.Vocabulary:
    """The vocabulary of the tokenizer that the dataset carries, or of the same file elsewhere."""
    return own_vocabulary(content, tokenizer, content.config["stops"], extra="data")


def cut_messages(content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]) -> Iterator[ShownMessage]:
    """Cuts a document where its span changes, after each trained stop token, and before its closing EOD."""
    stops = set(content.config["stops"].values())

    def begins(at: int) -> bool:
        before = tokens[at - 1]
        return tokens[at].span != before.span or (before.trained and before.id in stops)

    for first, last, closing in cut_before_eod(tokens, content.tokenizer.eod, begins):
        span = tokens[first].span
        role = "" if closing else "assistant" if span else "context"
        yield ShownMessage.of(tokens[first], first, last, role=role, channel=SPAN_NAMES[span] if span else "")


def document_notes(row: Mapping[str, Any]) -> Iterator[str]:
    """Notes on a weight other than 1, on runs that are declared or encoded apart, and on trimmed texts."""
    if row["weight"] != 1:
        yield f"weight {row['weight']:g}"
    for kind, meaning in (("declared", "declared, not proven"), ("served", "prompt and answer encoded apart")):
        if number := row["boundary"].count(kind):
            yield f"{number} of {row['runs']} runs {meaning}"
    if any(row["trimmed"]):
        yield "the template trimmed white space around a text"


_LEFT_OUT = {
    "dropped_settings": "settings that the template does not read",
    "dropped_names": "names of users that it does not write",
    "forgotten_texts": "texts of earlier answers that later runs do not see",
}
"""Counts of `cutting` that `describe` names if they are not 0."""


def empty_thoughts(cutting: Mapping[str, int]) -> str:
    """How many runs train an empty thought, as text; empty if none does."""
    count = cutting.get("empty_thoughts", 0)
    return f"an empty thought trained in {_number(count, 'run')} without reasoning" if count else ""


_IDS = {FUNCTIONS: "functions.NAME:N", NINE: "nine letters and digits"}


def adaptations(config: Mapping[str, Any]) -> str:
    """What was done for the template, as text; empty if conversations were given as they are."""
    style, ids = config.get("inline_calls"), config["form"].get("call_ids")
    done = [
        f"tools and calls written as text ({style})" if style else "",
        f"ids of calls that are not {_IDS[ids]} rewritten" if ids in _IDS else "",
        "texts beside calls split off" if config.get("text_beside_calls") == SPLIT else "",
    ]
    return "; ".join(filter(None, done))


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def describe(content: Content) -> family.Description:
    """Conversations in a model's chat template: what is trained, what was refused, how they are split."""
    split, cutting, config = content.split, content.totals.cutting, content.config
    assert split is not None, "the schema demands it of this family"
    assert cutting is not None, "the schema demands it of this family"
    realised = f"{split.realised_valid_fraction:.6f}"
    origin = content.input.dataset
    made_from = f" from {code(origin)}" if origin else ""
    spans = ", ".join(f"{number} {name}" for number, name in enumerate(content.span_names))
    train = ", ".join(config["train"])
    stops = ", ".join(f"{text} ({token})" for text, token in config["stops"].items())
    refused = ", ".join(f"{number:,} {kind}" for kind, number in sorted(content.totals.rejected.items())) or "none"
    proven = (
        f"{_number(cutting['runs'] - cutting['declared'], 'run')} proven;"
        f" {_number(cutting['declared'], 'run')} declared, not proven"
        if cutting["declared"]
        else f"all {_number(cutting['runs'], 'run')} proven"
    )
    made = (
        f"{_number(cutting['conversations'], 'conversation')} with {_number(cutting['runs'], 'assistant run')} became"
        f" {_number(cutting['documents'], 'document')}; messages in none of them: {cutting['left_out_messages']:,}"
    )
    if cutting["documents"] > cutting["conversations"]:
        made += "; an answer begins a new document where the template shows what came before it otherwise"
    for count, what in _LEFT_OUT.items():
        made += f"; {what}: {cutting[count]:,}" if cutting[count] else ""
    made += f"; {adapted}" if (adapted := adaptations(config)) else ""
    if controls := cutting.get("control_texts", 0):
        how = {"as-served": "kept as served", "text": "encoded as text"}[config["control_texts"]]
        made += f"; control tokens in texts that are not trained, {how}: {controls:,}"
    if untrained := cutting.get("untrained_runs", 0):
        made += f"; only the last turn is trained: {_number(untrained, 'run')} left untrained"
    if truncated := cutting.get("truncated", 0):
        made += f"; truncated answers, trained without the token that ends the turn: {truncated:,}"
    if marked := cutting["generation_equal"] + cutting["generation_other"]:
        equal = f"{cutting['generation_equal']:,} of {marked:,}"
        proven += f"; {{% generation %}} marks {equal} as they are trained (not used)"
    proven += f"; {thoughts}" if (thoughts := empty_thoughts(cutting)) else ""
    eod = f"{config['eod']['text']} ({config['eod']['id']})"
    return family.Description(
        tags=("conversational",),
        introduction=f"Conversations{made_from} in the chat template of {code(config['model'])} as token documents for"
        " Megatron. Every token has a loss mask and a span id: trained is what the model samples behind the prompt, of"
        f" {'runs that are proven, and of runs that are declared' if cutting['declared'] else 'proven runs alone'}."
        " Made by Spanloom.",
        files="Each shard of a split is three Megatron IndexedDatasets of equal shape, `shard_NN_tokens` (int32),"
        f" `shard_NN_lossmask` (uint8, 1 = trained) and `shard_NN_span` (uint8: {spans}), and `shard_NN_rows.parquet`"
        " with id, conversation, runs, weight and token counts of each document. `model/` has the model's tokenizer,"
        " chat template and stop tokens; `probe.json` what the template does.",
        making=(
            f"model: {code(config['model'])}; tokenizer {code(content.tokenizer.name)}, sha256"
            f" `{content.tokenizer.sha256}`; {code(eod)} after each document",
            f"chat template: sha256 of its text as JSON `{config['template_sha256']}`; stop tokens: {code(stops)}",
            f"trained: {train}; {proven}",
            made,
            f"refused: {refused}",
            f"split by conversation: `{split.rule}`, asked {split.valid_fraction}, realised {realised}",
        ),
        summary={
            "model": f"{config['model']}, {eod} after each document",
            "trained": f"{train}; {proven}",
            "conversations": made,
            "split": f"by conversation, valid_fraction {split.valid_fraction}, realised {realised}",
        },
        result={"conversations": made, "runs": proven, "refused": refused},
        facts={"config": config, "cutting": cutting},
        provenance={"model": config["model"], "runs": proven, "conversations": made, "refused": refused},
    )


def export_columns(content: Content) -> Sequence[family.ExportColumn]:
    """The id of a document and the id of its conversation."""
    return (
        family.ExportColumn(name="id", meaning="the id of the document: CONVERSATION#NUMBER"),
        family.ExportColumn(name="conversation", meaning="the id of the conversation in the source"),
    )
