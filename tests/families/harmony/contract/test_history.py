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
from support.chat_strategies import conversation, flagged
from support.nightly import drawn as nights

LAW = int(os.environ.get("SPANLOOM_CHAT_LAW", nights(150, 30)))
"""Conversations of the law; `make law` takes 10,000."""
SEED = 20261
BATCH = 50

Messages = list[dict[str, Any]]
FORMATS = ("constrain", "as-served", "json")


def format_of(number: int) -> str:
    """The call format that the drawn conversation of this number is cut with: each in turn."""
    return FORMATS[number % len(FORMATS)]


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
    """Messages by the letters of `told`; `C` is a call, `x` a message of the assistant's in commentary, `D` a developer
    message that defines a function."""
    tools = chat.developer(None, chat.TOOLS)
    made = {
        "D": tools, "u": chat.user("?"), "a": chat.analysis("."), "f": chat.final("!"), "x": chat.preamble("-"),
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
        ("uafuaCtaCtaf", "serve", ["uAF", "ufuACtACtAF"]),
        # openai-harmony drops nothing here, since what the assistant said last is no final.
        ("uafuaCtaf", "openai-harmony", ["uAF", "ufuAC", "uafuactAF"]),
        ("uaCtaCtaf", "openai-harmony", ["uACtACtAF"]),
        ("sduxCtf", "serve", ["sduCCtF"]),
        # What dropping changes begins a document: of the second turn the reasoning before the call is not shown.
        ("uaCtafuaf", "serve", ["uACtAF", "uctfuAF"]),
        ("uaCtafuf", "serve", ["uACtAF", "uctfuF"]),
        # Functions that are defined later change the text of the system message.
        ("suxDuf", "serve", ["suC", "sucduF"]),
        ("uxDuf", "serve", ["uCduF"]),
        # A call that follows an answer in one run: nothing is dropped, and the run ends alike in both roles.
        ("ufCtf", "serve", ["uFCtF"]),
        ("uafCtf", "serve", ["uAFC", "ufctF"]),
        ("uf", "serve", ["uF"]),
        ("fuf", "serve", ["F", "fuF"]),
        ("uau", "serve", ["uA"]),
        ("uffuf", "serve", ["uFF", "uffuF"]),
        ("uadaf", "serve", ["uAdAF"]),
    ],
)
def test_what_each_document_shows_and_trains(letters: str, history: str, documents: list[str]) -> None:
    assert told(cut(of(letters), history=history)) == documents


@pytest.mark.parametrize(
    ("letters", "rules", "documents", "left_out"),
    [
        ("uafuaCtaf", {"train": ("final",)}, ["uaF", "ufuactaF"], 0),
        ("uafuaCtaf", {"train": ("commentary",)}, ["ufuaC"], 4),
        ("uafuaCtaf", {"turns": "last"}, ["ufuACtAF"], 1),
        ("uafuaCtaf", {"turns": "last", "merge": False}, ["ufuAC", "ufuactAF"], 1),
        # A final that is not trained may end in another token: the next run joins.
        ("ufuxCtf", {"train": ("commentary",)}, ["ufuCC"], 2),
        ("uxfuxf", {"train": ("commentary",)}, ["uCfuCf"], 0),
        # Reasoning after the last message that is trained may be dropped for the next run.
        ("uxauafuxf", {"train": ("commentary",)}, ["uCufuCf"], 2),
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


@pytest.mark.parametrize(
    ("letters", "rules", "documents", "divided"),
    [
        # A call that is shown otherwise than it was emitted ends its document, as a final does.
        ("uaCtaCtaf", {}, ["uAC", "uactAC", "uactactAF"], [True, True, False]),
        ("uxaCtaf", {}, ["uCAC", "ucactAF"], [True, False]),
        # Not for want of a call: the reasoning of the first answer is no longer shown.
        ("uaCtafuaf", {}, ["uAC", "uactAF", "uctfuAF"], [True, False, False]),
        ("uaftaC", {}, ["uAF", "uftAC"], [False, False]),
        ("uaCtaf", {"history": "openai-harmony"}, ["uAC", "uactAF"], [True, False]),
        # A call that is not trained may be shown otherwise: the document is shared.
        ("uaCtaf", {"train": ("analysis", "final")}, ["uActAF"], [False]),
        ("uaCtaCtaf", {"train": ("analysis", "final")}, ["uActActAF"], [False]),
    ],
)
def test_a_call_that_is_shown_as_served_ends_its_document(
    letters: str, rules: dict[str, Any], documents: list[str], divided: list[bool]
) -> None:
    found = cut(of(letters), call_format="as-served", **rules)
    assert told(found) == documents
    assert [one.divided for one in found.cuts] == divided
    for one in found.cuts:
        (last, _) = one.begins[-1]
        kinds = [message.get("content_type") for message in one.shown.messages]
        assert set(kinds[:last]) <= {None, "json"}
        assert set(kinds[last:]) <= {None, "<|constrain|>json"}
    as_json = cut(of(letters), call_format="json", **rules)
    assert told(as_json) == told(cut(of(letters), **rules))
    assert {message.get("content_type") for one in as_json.cuts for message in one.shown.messages} == {None, "json"}


def test_calls_without_constrain_share_documents_also_as_served() -> None:
    plain_calls = [
        {**message, "content_type": "json"} if "recipient" in message and message["role"] == "assistant" else message
        for message in of("uaCtaCtaf")
    ]
    assert told(cut(plain_calls, call_format="as-served")) == ["uACtACtAF"]


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
        {"call_format": "served"},
    ):
        with pytest.raises(SpanloomError, match=r"^--(history|turns|train|call-format) must"):
            CutRules(**wrong)
    with pytest.raises(SpanloomError, match="as-served does not go with --history keep"):
        CutRules(history="keep", call_format="as-served")
    assert "call_format" not in CutRules().as_dict()
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


def with_headers(messages: Sequence[dict[str, Any]]) -> Messages:
    """As vLLM and the published template write the headers of calls in the history."""
    return [
        {**one, "content_type": str(one["content_type"]).replace("<|constrain|>", "")}
        if one["role"] == "assistant" and one.get("recipient") and one.get("content_type")
        else one
        for one in messages
    ]


def drawn(count: int) -> list[Messages]:
    """Conversations, some of whose answers are marked as not trained."""
    made = []
    for number in range(count):
        lots = random.Random(f"{SEED}-{number}")
        made.append(flagged(lots, conversation(lots)))
    return made


def runs_of(messages: Messages) -> list[tuple[int, int]]:
    return assistant_runs([message["role"] for message in messages])


def plain(messages: Messages) -> Messages:
    """Without the marks of messages that are not trained."""
    return [{key: message[key] for key in message if key != "trained"} for message in messages]


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
def test_what_comes_before_each_run_of_a_document_is_what_is_rendered_for_its_completion(
    history: str, fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    unfiltered = shared = 0
    found = drawn(LAW)
    for first in range(0, len(found), BATCH):
        batch = [
            (number, plain(messages), one)
            for number, messages in enumerate(found[first : first + BATCH])
            for one in cut(messages, history=history, call_format=format_of(number)).cuts
        ]
        tokens = documents_of([one for _, _, one in batch], fast, encoding)
        for (number, messages, one), document in zip(batch, tokens, strict=True):
            starts = np.flatnonzero(np.array(document) == START)
            shared += one.runs > 1
            for place, begins in one.begins:
                before = messages[:begins]
                if format_of(number) != "constrain":
                    before = with_headers(before)
                prompt = document[: int(starts[place])]
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
                emitted = with_headers if format_of(number) == "json" else list
                assert [one.shown.messages[place]] == emitted([messages[begins]])
            assert not one.shown.labels[: one.begins[0][0]].any()
    assert history != "serve" or unfiltered > LAW
    assert shared > LAW / 4


@pytest.mark.parametrize("history", ["serve", "openai-harmony"])
def test_runs_share_a_document_wherever_the_tokens_allow_it(
    history: str, encoding: openai_harmony.HarmonyEncoding
) -> None:
    """A document for each run, rendered: the next run joins where its prompt begins with all up to the last trained
    token. Token for token, the shared document is then the last of theirs, and has the labels of all."""
    for number, messages in enumerate(drawn(LAW)):
        calls = format_of(number)
        alone = cut(messages, history=history, merge=False, call_format=calls).cuts
        rendered = render_through_harmony([one.shown for one in alone], encoding).documents
        ends = np.cumsum(rendered.lengths)[:-1]
        tokens, spans = (np.split(values, ends) for values in (rendered.tokens, rendered.span_id))
        wanted: list[tuple[int, Any, Any]] = []
        for at, (document, span) in enumerate(zip(tokens, spans, strict=True)):
            if wanted:
                _, before, labels = wanted[-1]
                trained = int(np.flatnonzero(labels)[-1]) + 1
                prompt = int(np.flatnonzero(document == START)[alone[at].begins[0][0]])
                if trained <= prompt and np.array_equal(before[:trained], document[:trained]):
                    both = span.copy()
                    both[:trained] += labels[:trained]
                    wanted[-1] = wanted[-1][0], document, both
                    continue
            wanted.append((alone[at].number, document, span))
        shared = cut(messages, history=history, call_format=calls).cuts
        as_emitted = cut(messages, history=history).cuts
        assert sum(one.divided for one in shared) == len(shared) - len(as_emitted)
        made = render_through_harmony([one.shown for one in shared], encoding).documents
        assert [one.number for one in shared] == [number for number, _, _ in wanted]
        assert made.tokens.tolist() == np.concatenate([document for _, document, _ in wanted]).tolist()
        assert made.span_id.tolist() == np.concatenate([labels for _, _, labels in wanted]).tolist()


def test_each_message_that_is_to_be_trained_is_trained_exactly_once_whatever_the_history() -> None:
    for messages in drawn(LAW):
        runs = runs_of(messages)
        answers = [
            {**message, "trained": None}
            for first, end in runs
            for message in messages[first:end]
            if message.get("trained") is not False
        ]
        rules: dict[str, Any]
        as_served = {"call_format": "as-served"}
        for rules in ({}, {"merge": False}, {"history": "openai-harmony"}, {"history": "keep"}, as_served):
            found = cut(messages, **rules)
            trained = [
                {**message, "trained": None}
                for one in found.cuts
                for message, label in zip(one.shown.messages, one.shown.labels.tolist(), strict=True)
                if label
            ]
            assert trained == answers
            assert found.runs == len(runs)


def test_what_is_stored_of_a_turn_with_calls_is_what_it_has(encoding: openai_harmony.HarmonyEncoding) -> None:
    calls = [message for at in range(100) for message in (chat.analysis(f"{at}?"), chat.call("{}"), chat.result("1"))]
    (one,) = cut([chat.user("Go."), *calls, chat.final("Done.")]).cuts
    assert one.runs == 101
    whole = render_through_harmony([one.shown], encoding).documents
    assert whole.span_id.sum() > 0
    assert len(one.shown.messages) == 302


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

    assert audit(CutRules(), cuts) == len(cuts) == 3
    # Cut by other rules than those it is said to be: of the second turn's reasoning it shows nothing.
    other = cut(chat.three_turns(), history="openai-harmony").cuts
    wrong = replace(other[-1], shown=cuts[-1].shown, begins=cuts[-1].begins)
    with pytest.raises(AuditError, match=r"of the document of run 3 .* from token \d+(.|\n)*shard 03, row 7, id 'a'"):
        audit(CutRules(history="openai-harmony"), [wrong])


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
    third = cut(EXAMPLE, history="serve").cuts[2]
    rendered = render_through_harmony([third.shown], encoding).documents.tokens.tolist()
    assert encoding.decode_utf8(rendered).replace("<|start|>", "\n<|start|>").strip() in page
