"""harmony_chat as the shared commands see it: a module that satisfies `spanloom.dataset.family.DatasetFamily`.

In: what the commands hand over. Out: findings, values. What it does like SYNTH KD is in `dataset`, which goes by the
profile that a manifest names; here are the constants, and what people are told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spanloom.dataset.family import Description, ExportColumn
from spanloom.dataset.manifest import Content
from spanloom.families.harmony.contract import config
from spanloom.families.harmony.contract.profile import HARMONY_CHAT
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
ROW_SCHEMA = HARMONY_CHAT.about
ARRAY_DTYPES = config.ARRAY_DTYPES
SPAN_NAMES = HARMONY_CHAT.span_names
SPLITS = BOTH_SPLITS
RATIO = ("analysis", "final")

HISTORY_SAID = {
    "serve": "a document for each assistant run; of what stood before it, reasoning before the last answer is not"
    " shown, as servers do",
    "openai-harmony": "a document for each assistant run; what stood before it is shown as"
    " render_conversation_for_completion of openai-harmony does",
    "keep": "a document for each conversation, all reasoning kept",
}


def document_notes(row: Mapping[str, Any]) -> Iterable[str]:
    """Nothing beside the id, which tells conversation and cut."""
    return ()


def describe(content: Content) -> Description:
    """Conversations, what of them is shown and trained, rendered by what, split how."""
    split, cutting = content.split, content.totals.cutting
    assert split is not None, "the schema demands it of this family"
    assert cutting is not None, "the schema demands it of this family"
    realised = f"{split.realised_valid_fraction:.6f}"
    history, turns = content.config["history"], content.config["turns"]
    train = ", ".join(content.config["train"])
    made = (
        f"with {cutting['runs']:,} assistant runs became {cutting['documents']:,} documents;"
        f" {cutting['left_out_messages']:,} messages stand in none of them"
    )
    cut = f"{cutting['conversations']:,} {made}"
    which = "every assistant run" if turns == "all" else "the assistant runs of the last turn"
    parts = "reasoning (analysis), final or commentary, which holds tool calls and what is said before them"
    told = described(content, parts=parts, columns="id (`CONVERSATION#RUN`)", unit="documents")
    return replace(
        told,
        tags=(*told.tags, "conversational"),
        making=(
            *told.making[:-1],
            f"{told.making[-1]}; one `<|endoftext|>` after each document",
            f"history `{history}`: {HISTORY_SAID[history]}",
            f"trained: {train}, of {which}",
            f"{cutting['conversations']:,} conversations {made}",
            f"split by conversation: `{split.rule}`, asked {split.valid_fraction}, realised {realised}",
        ),
        summary={
            **told.summary,
            "history": history,
            "trained": f"{train}, of {which}",
            "conversations": cut,
            "split": f"by conversation, valid_fraction {split.valid_fraction}, realised {realised}",
        },
        result={"conversations": cut, "history": f"{history}; trained: {train}, of {which}"},
        facts={
            **told.facts,
            "history": history,
            "train": content.config["train"],
            "turns": turns,
            "cutting": cutting,
        },
        provenance={
            "history": f"{history}: {HISTORY_SAID[history]}; trained: {train}, of {which}",
            "conversations": cut,
            **told.provenance,
        },
    )


def export_columns(content: Content) -> Sequence[ExportColumn]:
    """The id of a document, and that of its conversation."""
    return (
        ExportColumn(name="id", meaning="the id of the document: CONVERSATION#RUN"),
        ExportColumn(name="conversation", meaning="the id of the conversation in the source"),
    )
