"""Laws of rendering: spans partition the tokens, cutting at <|start|> loses nothing, content never moves a span."""

import json
from typing import Any

import numpy as np
import openai_harmony
import pytest
from hypothesis import given, settings

from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.render.official import RenderedBatch, render_through_harmony
from spanloom.families.harmony.verify.reference import disk_sequences
from spanloom.supervision import shift_to_labels
from support.harmony_strategies import SPECIAL_TEXT, conversations
from support.nightly import drawn
from support.wrapper_spans import spans_from_wrappers


def render(encoding: openai_harmony.HarmonyEncoding, *found: list[dict[str, Any]]) -> RenderedBatch:
    parsed = [parse_conversation(json.dumps({"messages": one})) for one in found]
    return render_through_harmony(parsed, encoding)


def test_a_conversation_token_by_token(encoding: openai_harmony.HarmonyEncoding) -> None:
    batch = render(
        encoding,
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "channel": "analysis", "content": "ok"},
            {"role": "assistant", "channel": "final", "content": "ok"},
        ],
    )
    # start user message hi end | start assistant channel analysis message ok end | … final message ok return | EOD
    assert batch.documents.tokens.tolist() == [
        200006, 1428, 200008, 3686, 200007,
        200006, 173781, 200005, 35644, 200008, 525, 200007,
        200006, 173781, 200005, 17196, 200008, 525, 200002,
        199999,
    ]  # fmt: skip
    assert batch.documents.span_id.tolist() == [0] * 5 + [1] * 7 + [2] * 7 + [0]
    assert batch.documents.loss_mask.tolist() == [0] * 5 + [1] * 14 + [0]
    assert batch.documents.lengths.tolist() == [20]


@given(found=conversations)
@settings(max_examples=drawn(200, 30))
def test_spans_follow_the_messages_whatever_the_content(
    encoding: openai_harmony.HarmonyEncoding, found: list[dict[str, Any]]
) -> None:
    batch = render(encoding, found)
    documents = batch.documents
    if batch.refused:  # a header that openai-harmony does not take; then nothing was rendered
        assert documents.tokens.size == 0
        return
    tokens = documents.tokens[:-1]
    assert documents.tokens[-1] == tokenizer.EOD
    assert documents.span_id[-1] == documents.loss_mask[-1] == 0

    # Cutting at <|start|> gives back the messages, in order, and loses nothing.
    cuts = np.split(tokens, np.flatnonzero(tokens == tokenizer.START))[1:]
    assert np.array_equal(np.concatenate(cuts), tokens)
    assert len(cuts) == len(found)
    expected = [{"analysis": 1, "final": 2}[m["channel"]] if m["role"] == "assistant" else 0 for m in found]
    spans = [span for span, cut in zip(expected, cuts, strict=True) for _ in cut]
    assert documents.span_id[:-1].tolist() == spans
    assert documents.loss_mask.tolist() == [int(span > 0) for span in [*spans, 0]]

    # Two independent ways to the same arrays: the plain loop, and the wrappers read off the tokens alone.
    slow = disk_sequences(json.dumps({"messages": found}), encoding)
    assert documents.tokens.tolist() == slow.tokens
    assert shift_to_labels(documents.span_id, documents.lengths).tolist() == slow.span
    derived, faults = spans_from_wrappers(documents.tokens, documents.lengths)
    assert faults == []
    assert derived.tolist() == documents.span_id.tolist()


@pytest.mark.parametrize("literal", SPECIAL_TEXT)
def test_special_text_in_content_stays_text(encoding: openai_harmony.HarmonyEncoding, literal: str) -> None:
    plain = render(encoding, [{"role": "assistant", "channel": "final", "content": ""}]).documents
    laden = render(encoding, [{"role": "assistant", "channel": "final", "content": literal}]).documents
    specials = [token for token in laden.tokens.tolist() if token >= tokenizer.EOD]
    assert specials == [token for token in plain.tokens.tolist() if token >= tokenizer.EOD]
    assert literal in encoding.decode(laden.tokens.tolist())


def test_only_the_very_last_final_ends_in_return(encoding: openai_harmony.HarmonyEncoding) -> None:
    final = {"role": "assistant", "channel": "final", "content": "x"}
    tokens = render(encoding, [final, {"role": "user", "content": "y"}, final]).documents.tokens
    assert (tokens == tokenizer.RETURN).sum() == 1
    assert tokens[-2] == tokenizer.RETURN
    ends_with_user = render(encoding, [final, {"role": "user", "content": "y"}]).documents.tokens
    assert (ends_with_user == tokenizer.RETURN).sum() == 0


def test_missing_system_fields_are_filled_as_the_wrapper_fills_them(encoding: openai_harmony.HarmonyEncoding) -> None:
    system = {"role": "system", "content": [{"type": "system_content", "knowledge_cutoff": None}]}
    rendered = render(encoding, [system, {"role": "assistant", "channel": "final", "content": "x"}]).documents.tokens
    said = encoding.decode(rendered.tolist())
    assert "You are ChatGPT" in said
    assert "Reasoning: medium" in said
    assert "Knowledge cutoff" not in said


def test_refused_conversations_leave_the_others_in_order(encoding: openai_harmony.HarmonyEncoding) -> None:
    good = [{"role": "assistant", "channel": "final", "content": "x"}]
    bad = [{"role": "assistant", "channel": "final", "content": [{"type": "image"}]}]
    batch = render(encoding, good, bad, good)
    assert batch.kept == [0, 2]
    assert [index for index, _ in batch.refused] == [1]
    assert "Unknown content variant" in batch.refused[0][1]
    assert len(batch.documents) == 2


def test_no_conversations_render_to_no_documents(encoding: openai_harmony.HarmonyEncoding) -> None:
    batch = render(encoding)
    assert (len(batch.documents), batch.documents.tokens.size, batch.kept, batch.refused) == (0, 0, [], [])
