"""harmony_chat for the shared commands: this module implements `spanloom.dataset.family.DatasetFamily`.

In: the arguments of the commands. Out: findings, values. The functions that SYNTH KD shares are in `dataset`, which
follows the profile that a manifest names; this module has the constants and the texts for users.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spanloom.conversations.runs import runs_note
from spanloom.dataset.family import Description, ExportColumn, one_layout
from spanloom.dataset.manifest import Content
from spanloom.families.harmony.contract.history import TRUNCATED
from spanloom.families.harmony.contract.profile import ARRAY_DTYPES, HARMONY_CHAT
from spanloom.families.harmony.dataset import check_content as check_content
from spanloom.families.harmony.dataset import check_shard as check_shard
from spanloom.families.harmony.dataset import check_source as check_source
from spanloom.families.harmony.dataset import check_sums as check_sums
from spanloom.families.harmony.dataset import check_whole as check_whole
from spanloom.families.harmony.dataset import cut_messages as cut_messages
from spanloom.families.harmony.dataset import described
from spanloom.families.harmony.dataset import header_tokens as header_tokens
from spanloom.families.harmony.dataset import load_vocabulary as load_vocabulary
from spanloom.families.harmony.dataset import stage_source as stage_source
from spanloom.families.harmony.dataset import stage_tokenizer as stage_tokenizer
from spanloom.split import SPLITS as BOTH_SPLITS

ID_COLUMN = "id"
GROUP_COLUMNS: tuple[str, ...] = ()
SPAN_NAMES = HARMONY_CHAT.span_names
layout = one_layout(ARRAY_DTYPES, SPAN_NAMES)
SPLITS = BOTH_SPLITS
RATIO = ("analysis", "final")

HISTORY_SAID = {
    "serve": "a document for each assistant run; of the messages before it, reasoning before the last answer is not"
    " shown, as servers do",
    "openai-harmony": "a document for each assistant run; the messages before it are shown as"
    " render_conversation_for_completion of openai-harmony does",
    "keep": "a document for each conversation, all reasoning kept",
}
SHARED = "; runs that are shown just the document so far share it"
ENDS_IN_END = (
    "every answer but the last of a conversation is trained to end in `<|end|>`, and the model stops at `<|return|>`:"
    " train for serving with `--history serve`"
)
"""The warning for `keep`."""
CALL_FORMAT_SAID = {
    "json": "calls are written `<|channel|>commentary json`, as servers show them, also where they are trained",
    "as-served": "calls are trained as the model emits them, with `<|constrain|>json`, and shown before later runs as"
    " servers do, with `json`",
}
MASKED = "; not `<|start|>assistant` at the begin of an answer, which a server gives to the model"
SINCE_MERGED = ("runs", "weight")
"""Columns of the row table that datasets of earlier releases lack."""


def is_merged(content: Content) -> bool:
    """Whether assistant runs share documents. Datasets of earlier releases have one document per run."""
    return content.config.get("merge") is True


def row_schema(content: Content) -> pa.Schema:
    """The columns of the row table, without those that are newer than the dataset's release."""
    fields = [field for field in HARMONY_CHAT.about if is_merged(content) or field.name not in SINCE_MERGED]
    return pa.schema(fields)


def document_notes(row: Mapping[str, Any]) -> Iterable[str]:
    """The number of assistant runs that a document trains, and its weight, each only if it is not 1."""
    if row.get("runs", 1) != 1:
        yield runs_note(row["runs"])
    if row.get("weight", 1.0) != 1.0:
        yield f"weight {row['weight']:g}"


def describe(content: Content) -> Description:
    """Describes the dataset: conversations, shown and trained messages, renderer, split."""
    split, cutting = content.split, content.totals.cutting
    assert split is not None, "the schema demands it of this family"
    assert cutting is not None, "the schema demands it of this family"
    realised = f"{split.realised_valid_fraction:.6f}"
    history, turns = content.config["history"], content.config["turns"]
    train = ", ".join(content.config["train"])
    made = (
        f"with {cutting['runs']:,} assistant runs became {cutting['documents']:,} documents;"
        f" {cutting['left_out_messages']:,} messages are in no document"
    )
    if untrained := cutting.get("untrained_messages", 0):
        made += f"; {untrained:,} assistant messages are marked as not trained"
    if truncated := cutting.get(TRUNCATED, 0):
        made += f"; {truncated:,} truncated messages are trained without the token that ends them"
    if (divided := cutting.get("divided_documents")) is not None:
        made += (
            f"; since calls are shown as served, {divided:,} documents with {cutting['divided_tokens']:,} tokens could"
            " not be shared with the next run"
        )
    cut = f"{cutting['conversations']:,} {made}"
    history_said = HISTORY_SAID[history] + (SHARED if is_merged(content) and history != "keep" else "")
    calls = CALL_FORMAT_SAID.get(content.config.get("call_format", ""))
    masked = MASKED if content.config.get("mask_generation_prompt") else ""
    which = "every assistant run" if turns == "all" else "the assistant runs of the last turn"
    parts = "reasoning (analysis), final or commentary, which holds tool calls and the text before them"
    columns = (
        "id (`CONVERSATION#RUN`, the first run that it trains), the number of runs"
        if is_merged(content)
        else ("id (`CONVERSATION#RUN`)")
    )
    description = described(content, parts=parts, columns=columns, unit="documents")
    return replace(
        description,
        tags=(*description.tags, "conversational"),
        making=(
            *description.making[:-1],
            f"{description.making[-1]}; one `<|endoftext|>` after each document",
            f"history `{history}`: {history_said}",
            *([ENDS_IN_END] if history == "keep" and is_merged(content) else []),
            *([calls] if calls else []),
            f"trained: {train}, of {which}{masked}",
            f"{cutting['conversations']:,} conversations {made}",
            f"split by conversation: `{split.rule}`, asked {split.valid_fraction}, realised {realised}",
        ),
        summary={
            **description.summary,
            "history": history,
            "trained": f"{train}, of {which}",
            "conversations": cut,
            "split": f"by conversation, valid_fraction {split.valid_fraction}, realised {realised}",
        },
        result={
            "conversations": cut,
            "history": f"{history}; trained: {train}, of {which}",
            **({"warning": ENDS_IN_END.replace("`", "")} if history == "keep" else {}),
        },
        facts={
            **description.facts,
            "history": history,
            "train": content.config["train"],
            "turns": turns,
            "cutting": cutting,
        },
        provenance={
            "history": f"{history}: {history_said}; trained: {train}, of {which}",
            "conversations": cut,
            **description.provenance,
        },
    )


def export_columns(content: Content) -> Sequence[ExportColumn]:
    """The ids of a document and of its conversation; its number of trained runs, if runs share documents."""
    merged = [ExportColumn(name="runs", meaning="assistant runs that the document trains", kind=pa.int64())]
    return (
        ExportColumn(name="id", meaning="the id of the document: CONVERSATION#RUN"),
        ExportColumn(name="conversation", meaning="the id of the conversation in the source"),
        *(merged if is_merged(content) else []),
    )
