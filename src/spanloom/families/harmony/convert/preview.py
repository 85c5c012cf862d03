"""Previews the documents that a build would make of a converted conversation, before anything is written.

In: a conversation's row, the tokenizer asset. Out: `ShownDocument`s, as `inspect` shows them for a dataset, with the
default rules and the same functions as in a build.
"""

from pathlib import Path

from spanloom.conversations.conversation import messages_json
from spanloom.conversations.runs import document_id, runs_note
from spanloom.conversations.source.rejects import RowRefusedError
from spanloom.dataset.document import ShownDocument
from spanloom.dataset.family import Vocabulary
from spanloom.dataset.inspect import shown_tokens
from spanloom.errors import SpanloomError
from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import Cut, CutRules, cut_conversation
from spanloom.families.harmony.contract.profile import CHAT_OF_ANY_MODEL
from spanloom.families.harmony.contract.shown import messages_of
from spanloom.families.harmony.convert.conversion import Converted
from spanloom.families.harmony.render.official import render_through_harmony
from spanloom.supervision import TokenDocuments, shift_to_labels
from spanloom.tokenizers.o200k.vocabulary import load_vocabulary


def preview_documents(converted: Converted, asset: Path, most: int | None = None) -> tuple[list[ShownDocument], int]:
    """The first `most` documents of one conversation (None: all), and the number of all its documents.

    Raises SpanloomError if a build would reject the conversation.
    """
    encoding = tokenizer.load_encoding(asset)
    try:
        conversation = parse_conversation(messages_json(converted.conversation), profile=CHAT_OF_ANY_MODEL)
    except RowRefusedError as refused:
        raise SpanloomError(f"a build refuses this conversation: {refused.detail}", where=converted.where) from None
    # Also render the last document, to find content that openai-harmony refuses; all would be as much as a build.
    cut = cut_conversation(conversation, CutRules(), most=most)
    looked_at, first = cut.cuts, cut.cuts[:most]
    rendered = render_through_harmony([cut.shown for cut in looked_at], encoding)
    for _, reason in rendered.refused:
        raise SpanloomError(f"openai-harmony does not take this conversation: {reason}", where=converted.where)
    vocabulary = load_vocabulary(asset, tokenizer.SPECIAL_NAMES)
    documents = [
        _shown(rendered.documents.between(number, number + 1), cut, str(converted.row["id"]), vocabulary)
        for number, cut in enumerate(first)
    ]
    return documents, cut.documents


def _shown(document: TokenDocuments, cut: Cut, conversation: str, vocabulary: Vocabulary) -> ShownDocument:
    mask, span = document.loss_mask, document.span_id
    disk = [shift_to_labels(values, document.lengths).tolist() for values in (mask, span)]
    tokens = shown_tokens(
        document.tokens.tolist(),
        span.tolist(),
        mask.tolist(),
        list(zip(*disk, strict=True)),
        vocabulary,
        header=(tokenizer.START, tokenizer.MESSAGE),
    )
    return ShownDocument(
        split="preview",
        shard=0,
        sequence=cut.number,
        row=None,
        id=document_id(conversation, cut.number),
        groups={},
        span_names=CHAT_OF_ANY_MODEL.span_names,
        tokens=tuple(tokens),
        messages=tuple(messages_of(tokens)),
        notes=(runs_note(cut.runs),) if cut.runs > 1 else (),
    )
