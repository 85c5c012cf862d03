"""One row with very many messages: the work grows with their number, not with its square. Counted, not timed."""

import json
from pathlib import Path

import numpy as np
import pytest

from spanloom.dataset import manifest
from spanloom.dataset.inspect import shown_tokens
from spanloom.families.harmony import dataset as harmony
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import CutRules, cut_conversation
from spanloom.families.harmony.contract.profile import HARMONY_CHAT, SYNTH_KD
from spanloom.families.harmony.render.routes import load_renderer
from spanloom.families.harmony.verify.documents import HarmonyDocuments, check_documents
from spanloom.supervision import TokenDocuments, shift_to_labels
from support import chat_sources as chat
from support.counting import calls_of
from support.demo_datasets import demo as demo

FEW, MANY = 2_000, 4_000
TWICE = 2.1
"""What twice as many messages may take at most; a square would take four times as much."""


def row(messages: int) -> str:
    pair = [{"role": "user", "content": "a"}, {"role": "assistant", "channel": "final", "content": "b"}]
    return json.dumps({"messages": pair * (messages // 2)})


@pytest.fixture(scope="module")
def documents(asset: Path) -> dict[int, TokenDocuments]:
    renderer = load_renderer("fast", asset)
    return {messages: renderer.render([parse_conversation(row(messages))]).documents for messages in (FEW, MANY)}


def test_parsing_and_rendering(asset: Path) -> None:
    renderer = load_renderer("fast", asset)
    few, many = (calls_of(lambda m=m: renderer.render([parse_conversation(row(m))])) for m in (FEW, MANY))
    assert FEW < few < many < TWICE * few


def test_a_turn_of_many_calls_is_cut_and_rendered_as_one_document(asset: Path) -> None:
    renderer = load_renderer("fast", asset, HARMONY_CHAT)

    def counted(calls: int) -> int:
        step = [chat.analysis("a"), chat.call("{}"), chat.result("b")]
        text = json.dumps({"messages": [chat.user("?"), *(step * calls), chat.final("!")]})
        made: list[int] = []

        def render() -> None:
            cuts = cut_conversation(parse_conversation(text, profile=HARMONY_CHAT), CutRules()).cuts
            made.extend(cut.runs for cut in cuts)
            renderer.render([cut.shown for cut in cuts])

        count = calls_of(render)
        assert made == [calls + 1]
        return count

    few, many = counted(1_000), counted(2_000)
    assert 1_000 < few < many < TWICE * few


def test_many_turns_are_cut_in_what_their_documents_show() -> None:
    """Documents of n turns show n² / 2 messages: what is called for them grows with the turns alone."""

    def counted(turns: int) -> int:
        text = json.dumps({"messages": [chat.user("?"), chat.analysis("a"), chat.final("!")] * turns})
        conversation = parse_conversation(text, profile=HARMONY_CHAT)
        return calls_of(lambda: cut_conversation(conversation, CutRules()))

    few, many = counted(200), counted(400)
    assert 200 < few < many < TWICE * few


@pytest.mark.parametrize("broken", [False, True])
def test_checking_a_document_whole_or_broken_in_every_message(
    documents: dict[int, TokenDocuments], broken: bool
) -> None:
    calls, found = [], []
    for messages in (FEW, MANY):
        one = documents[messages]
        tokens = one.tokens.copy()
        if broken:
            tokens[np.flatnonzero(tokens == 200008)] = 1  # no <|message|> anywhere
        on_disk = HarmonyDocuments(
            profile=SYNTH_KD,
            split="train",
            shard=0,
            first=0,
            lengths=one.lengths,
            tokens=tokens,
            lossmask=shift_to_labels(one.loss_mask, one.lengths),
            span=shift_to_labels(one.span_id, one.lengths),
        )
        findings = 0

        def check(on_disk: HarmonyDocuments = on_disk) -> None:
            nonlocal findings
            findings = sum(1 for _ in check_documents(on_disk))

        calls.append(calls_of(check))
        found.append(findings)
    assert (found[0] >= FEW) == broken
    assert (found[1] >= MANY) == broken
    assert calls[1] < TWICE * calls[0]


def test_cutting_it_for_people(documents: dict[int, TokenDocuments], demo: Path) -> None:
    content = manifest.read(demo).content
    vocabulary = harmony.load_vocabulary(content, None)
    header = harmony.header_tokens(content)
    calls = []
    for messages in (FEW, MANY):
        ids = documents[messages].tokens.tolist()
        spans = documents[messages].span_id.tolist()

        def cut(ids: list[int] = ids, spans: list[int] = spans, messages: int = messages) -> None:
            tokens = shown_tokens(ids, spans, spans, list(zip(spans, spans, strict=True)), vocabulary, header=header)
            assert len(list(harmony.cut_messages(content, tokens, {}))) == messages + 1

        calls.append(calls_of(cut))
    assert calls[0] > FEW
    assert calls[1] < TWICE * calls[0]
