"""Documents of a conversation: which messages each shows, which it trains; and that this is what a server shows."""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai_harmony
import pytest
from openai_harmony import Conversation, Message, RenderConversationConfig, Role

from spanloom.conversations.runs import assistant_runs
from spanloom.errors import AuditError, SpanloomError
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import Cut, CutConversation, CutRules, cut_conversation
from spanloom.families.harmony.contract.profile import HARMONY_CHAT
from spanloom.families.harmony.render.audit import Auditor
from spanloom.families.harmony.render.fast import FastRenderer
from spanloom.families.harmony.render.official import render_through_harmony
from spanloom.families.harmony.tokenizer import START
from support import chat_sources as chat
from support.chat_strategies import conversation

LAW = int(os.environ.get("SPANLOOM_CHAT_LAW", "300"))
"""Conversations of the law; `make law` takes 10,000."""
SEED = 20261
BATCH = 50

Messages = list[dict[str, Any]]


@pytest.fixture(scope="module")
def fast(encoding: openai_harmony.HarmonyEncoding, asset: Path) -> FastRenderer:
    return FastRenderer(encoding, asset, HARMONY_CHAT)


def cut(messages: Messages, **rules: Any) -> CutConversation:
    parsed = parse_conversation(json.dumps({"messages": messages}), profile=HARMONY_CHAT)
    return cut_conversation(parsed, CutRules(**rules))


LETTERS = {"user": "u", "tool": "t", "system": "s", "developer": "d"}


def told(found: CutConversation) -> list[str]:
    """Each document by the letters of its messages, those that are trained in capitals.

    a analysis, c commentary, f final, u user, t tool, s system, d developer
    """
    documents = []
    for one in found.cuts:
        letters = [LETTERS.get(message["role"], str(message.get("channel"))[0]) for message in one.shown.messages]
        trained = one.shown.labels.tolist()
        documents.append(
            "".join(letter.upper() if span else letter for letter, span in zip(letters, trained, strict=True))
        )
    return documents


def of(letters: str) -> Messages:
    """Messages by the letters of `told`; `C` is a call, `x` a message of the assistant's in commentary."""
    made = {
        "u": chat.user("?"), "a": chat.analysis("."), "f": chat.final("!"), "x": chat.preamble("-"),
        "C": chat.call("{}"), "t": chat.result("1"), "s": chat.system(), "d": chat.developer(),
    }  # fmt: skip
    return [made[letter] for letter in letters]


@pytest.mark.parametrize(
    ("letters", "history", "documents"),
    [
        ("uafuafuaf", "serve", ["uAF", "ufuAF", "ufufuAF"]),
        ("uafuafuaf", "openai-harmony", ["uAF", "ufuAF", "ufuafuAF"]),
        ("uafuafuaf", "keep", ["uAFuAFuAF"]),
        # Between tool calls the reasoning since the last answer stays; that before it does not.
        ("uafuaCtaCtaf", "serve", ["uAF", "ufuAC", "ufuactAC", "ufuactactAF"]),
        # openai-harmony drops nothing here, since what the assistant said last is no final.
        ("uafuaCtaf", "openai-harmony", ["uAF", "ufuAC", "uafuactAF"]),
        ("sduxCtf", "serve", ["sduCC", "sducctF"]),
        ("uf", "serve", ["uF"]),
        ("fuf", "serve", ["F", "fuF"]),
        ("uau", "serve", ["uA"]),
        ("uffuf", "serve", ["uFF", "uffuF"]),
        ("uadaf", "serve", ["uA", "uadAF"]),
    ],
)
def test_what_each_document_shows_and_trains(letters: str, history: str, documents: list[str]) -> None:
    assert told(cut(of(letters), history=history)) == documents


@pytest.mark.parametrize(
    ("letters", "rules", "documents", "left_out"),
    [
        ("uafuaCtaf", {"train": ("final",)}, ["uaF", "ufuactaF"], 0),
        ("uafuaCtaf", {"train": ("commentary",)}, ["ufuaC"], 4),
        ("uafuaCtaf", {"turns": "last"}, ["ufuAC", "ufuactAF"], 1),
        ("uafuaCtaf", {"turns": "last", "history": "keep"}, ["uafuACtAF"], 0),
        ("uafu", {"turns": "last"}, ["uAF"], 1),
        ("uafu", {"history": "keep"}, ["uAFu"], 0),
        ("uafu", {}, ["uAF"], 1),
        ("uaf", {"train": ("commentary",)}, [], 3),
        ("uaf", {"train": ("commentary",), "history": "keep"}, [], 0),
    ],
)
def test_subsets_of_spans_and_turns_are_trained_and_what_stands_nowhere_is_counted(
    letters: str, rules: dict[str, Any], documents: list[str], left_out: int
) -> None:
    found = cut(of(letters), **rules)
    assert told(found) == documents
    if documents:
        assert found.left_out == left_out


def test_runs_are_the_stretches_of_assistant_messages() -> None:
    assert assistant_runs(["user", "assistant", "assistant", "tool", "assistant"]) == [(1, 3), (4, 5)]
    assert assistant_runs(["assistant"]) == [(0, 1)]
    assert assistant_runs(["user"]) == []


def test_rules_that_are_none_are_refused() -> None:
    for wrong in (
        {"history": "all"},
        {"turns": "first"},
        {"train": ()},
        {"train": ("context",)},
        {"train": ("final",) * 2},
    ):
        with pytest.raises(SpanloomError, match=r"^--(history|turns|train) must"):
            CutRules(**wrong)
    assert CutRules(train=("commentary", "final")).as_dict()["train"] == ["final", "commentary"]


# --- The law: what stands before a run is what openai-harmony renders for its completion ------------------------------


def completion(
    messages: Sequence[dict[str, Any]], encoding: openai_harmony.HarmonyEncoding, *, drops: bool
) -> list[int]:
    harmony = Conversation(messages=[Message.from_dict(message) for message in messages])
    config = RenderConversationConfig(auto_drop_analysis=drops)
    rendered = encoding.render_conversation_for_completion(harmony, Role.ASSISTANT, config)
    assert encoding.decode_utf8(rendered[-2:]) == "<|start|>assistant"
    return list(rendered[:-2])


def served(messages: Sequence[dict[str, Any]]) -> Messages:
    """As vLLM drops analysis: written from its description, to hold ours against it."""
    last = max(
        (at for at, one in enumerate(messages) if one["role"] == "assistant" and one.get("channel") == "final"),
        default=-1,
    )
    return [one for at, one in enumerate(messages) if at > last or one.get("channel") != "analysis"]


def drawn(count: int) -> list[Messages]:
    return [conversation(random.Random(f"{SEED}-{number}")) for number in range(count)]


def run_of(messages: Messages, number: int) -> tuple[int, int]:
    return assistant_runs([message["role"] for message in messages])[number]


def documents_of(cuts: Sequence[Cut], fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding) -> list[list[int]]:
    """The tokens of each cut by the fast route, which is held against the record route here too."""
    shown = [one.shown for one in cuts]
    ours, record = fast.render(shown), render_through_harmony(shown, encoding)
    assert ours.kept == record.kept == list(range(len(cuts)))
    for name in ("tokens", "span_id", "loss_mask", "lengths"):
        assert np.array_equal(getattr(ours.documents, name), getattr(record.documents, name)), name
    ends = np.cumsum(ours.documents.lengths)[:-1]
    return [part.tolist() for part in np.split(ours.documents.tokens, ends)]


@pytest.mark.parametrize("history", ["serve", "openai-harmony"])
def test_what_stands_before_a_run_is_what_is_rendered_for_its_completion(
    history: str, fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    unfiltered = 0
    found = drawn(LAW)
    for first in range(0, len(found), BATCH):
        batch = [
            (messages, one) for messages in found[first : first + BATCH] for one in cut(messages, history=history).cuts
        ]
        tokens = documents_of([one for _, one in batch], fast, encoding)
        for (messages, one), document in zip(batch, tokens, strict=True):
            begins, ends = run_of(messages, one.number)
            before = messages[:begins]
            prompt = document[: int(np.flatnonzero(np.array(document) == START)[one.run])]
            by_default = completion(before, encoding, drops=True)
            finals = [at for at, said in enumerate(before) if said.get("channel") == "final"]
            if history == "serve":
                assert prompt == completion(served(before), encoding, drops=False)
                said = [at for at, message in enumerate(before) if message["role"] == "assistant"]
                if not finals or (len(finals) == 1 and finals[0] == said[-1]):
                    unfiltered += 1
                    assert prompt == by_default
            else:
                assert prompt == by_default
            assert one.shown.messages[one.run :] == messages[begins:ends]
            assert not one.shown.labels[: one.run].any()
            assert one.shown.labels[one.run :].all()
    assert history != "serve" or unfiltered > LAW


def test_each_run_is_trained_exactly_once_whatever_the_history() -> None:
    for messages in drawn(LAW):
        runs = assistant_runs([message["role"] for message in messages])
        answers = [message for first, end in runs for message in messages[first:end]]
        for history in ("serve", "openai-harmony", "keep"):
            found = cut(messages, history=history)
            trained = [
                message
                for one in found.cuts
                for message, label in zip(one.shown.messages, one.shown.labels.tolist(), strict=True)
                if label
            ]
            assert trained == answers
            assert found.runs == len(runs)


def test_no_message_is_lost_without_a_count() -> None:
    for messages in drawn(LAW):
        numbered = [dict(message, name=f"functions.m{at}" if message["role"] == "tool" else f"m{at}")
                    for at, message in enumerate(messages)]  # fmt: skip
        for rules in ({}, {"turns": "last"}, {"train": ("final",)}, {"history": "keep"}):
            found = cut(numbered, **rules)
            shown = {message["name"] for one in found.cuts for message in one.shown.messages}
            if found.cuts:
                assert len(numbered) - len(shown) == found.left_out


# --- The audit --------------------------------------------------------------------------------------------------------


def test_the_audit_compares_what_stands_before_a_run_with_the_render_for_completion(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    cuts = cut(chat.three_turns()).cuts

    def audit(rules: CutRules, cuts: Sequence[Cut]) -> int:
        auditor = Auditor(encoding, 1, HARMONY_CHAT, rules)
        documents = [one.shown for one in cuts]
        return auditor.audit(3, [(7, "a")] * len(cuts), documents, fast.render(documents), cuts)

    assert audit(CutRules(), cuts) == len(cuts) == 4
    # Cut by other rules than those it is said to be: of the second turn's reasoning it shows nothing.
    other = cut(chat.three_turns(), history="openai-harmony").cuts
    with pytest.raises(AuditError, match=r"before run 3 .* from token \d+(.|\n)*shard 03, row 7, id 'a'"):
        audit(CutRules(history="openai-harmony"), [replace(other[3], shown=cuts[3].shown, run=cuts[3].run)])


# --- The example of the documentation ---------------------------------------------------------------------------------

EXAMPLE = [
    chat.user("What is 12 · 12?"),
    chat.analysis("12 · 12 = 144."),
    chat.final("144."),
    chat.user("And its square root?"),
    chat.analysis("√144 = 12."),
    chat.final("12."),
    chat.user("Thanks! Is 12 prime?"),
    chat.analysis("12 = 3 · 4."),
    chat.final("No."),
]


def example_table() -> list[str]:
    """A row a message, a column a document: trained, shown, or not shown."""
    columns = {
        f"{history} #{one.number}": one
        for history in ("serve", "openai-harmony", "keep")
        for one in cut(EXAMPLE, history=history).cuts
    }
    lines = [f"| the conversation | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for message in EXAMPLE:
        cells = []
        for one in columns.values():
            at = next((at for at, shown in enumerate(one.shown.messages) if shown == message), None)
            cells.append("–" if at is None else "**trained**" if one.shown.labels[at] else "shown")
        lines.append(f"| {message.get('channel') or message['role']}: {message['content']} | {' | '.join(cells)} |")
    return lines


def test_the_documentation_shows_the_three_histories_as_they_are(encoding: openai_harmony.HarmonyEncoding) -> None:
    page = (Path(__file__).parents[4] / "docs/families/harmony.md").read_text()
    assert "\n".join(example_table()) in page
    for history in ("serve", "openai-harmony"):
        third = cut(EXAMPLE, history=history).cuts[2]
        rendered = render_through_harmony([third.shown], encoding).documents.tokens.tolist()
        assert encoding.decode_utf8(rendered).replace("<|start|>", "\n<|start|>").strip() in page
