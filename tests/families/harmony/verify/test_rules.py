"""The rules that judge rejected rows are written twice: both must refuse the same rows, for the same reasons."""

import json
from pathlib import Path
from typing import Any

import openai_harmony
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.source.structure import row_id
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import CutRules, cut_conversation
from spanloom.families.harmony.contract.profile import HARMONY_CHAT, SYNTH_KD, Profile
from spanloom.families.harmony.verify.rules import Judgement, judge_row
from spanloom.families.harmony.verify.source import WORDS_OF_LIBRARIES
from support import chat_sources as chat
from support import sources
from support.bad_builds import BAD_ROWS, FINE_ROWS, write_cells
from support.nightly import drawn

RULES = [
    CutRules(history=history, train=train, turns=turns)
    for history in ("serve", "openai-harmony", "keep")
    for train in (("analysis", "final"), ("commentary",))
    for turns in ("all", "last")
]

texts = st.sampled_from(
    ["", "a", "final", "analysis", "commentary", "assistant", "user", "tool", "functions.f", "functions.",
     "functions.f\n", "python", "browser.open", "browser.Open", "json", "<|constrain|>json",
     "<|constrain|>", "é", "a b", "²", "\ud800"]
)  # fmt: skip
values = st.one_of(
    st.none(), st.booleans(), st.integers(0, 3), texts, st.lists(st.integers(0, 1), max_size=1), st.just({})
)
parts = st.one_of(
    values,
    st.fixed_dictionaries(
        {"type": st.one_of(values, st.sampled_from(["text", "system_content", "developer_content"]))},
        optional={"text": texts, "tools": values, "instructions": texts, "other": values},
    ),
)
messages = st.fixed_dictionaries(
    {"role": st.one_of(st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool"]), values)},
    optional={
        "channel": st.one_of(st.sampled_from(["analysis", "final", "commentary"]), values),
        "content": st.one_of(texts, st.lists(parts, max_size=2)),
        "name": values,
        "recipient": values,
        "content_type": values,
        "trained": values,
        "other": values,
    },
)
conversations = st.one_of(
    values,
    st.fixed_dictionaries(
        {"messages": st.one_of(values, st.lists(st.one_of(messages, messages, messages, values), max_size=5))},
        optional={"weight": st.one_of(values, st.floats(), st.sampled_from([10**400, -1, 0.5])), "other": values},
    ),
)
metadata = st.one_of(
    st.none(),
    st.sampled_from(["", "[]", "{", "7", '{"id": 1, "id": 2}', "NaN"]),
    st.dictionaries(st.sampled_from(["id", "synth_id"]), values).map(json.dumps),
)


def refused_by_build(
    profile: Profile, rules: CutRules, given_id: str | None, metadata_json: str | None, text: bytes | None
) -> Judgement:
    """What the build says of a row."""
    found = given_id
    try:
        found = row_id(given_id, metadata_json, profile.source.id_column)
        conversation = parse_conversation(text, profile=profile)
        if profile.cuts and not cut_conversation(conversation, rules).cuts:
            raise RowRefusedError(Reason.NOTHING_TRAINED, "no message of it is of a span that is trained")
    except RowRefusedError as refused:
        return Judgement(id=found, reason=refused.reason, detail=refused.detail)
    return Judgement(id=found)


def judged(
    profile: Profile, rules: CutRules, given_id: str | None, metadata_json: str | None, text: bytes | None
) -> Judgement:
    return judge_row(
        profile.family, rules.as_dict(), given_id=given_id, metadata_json=metadata_json, messages_json=text,
        undecodable=False, encoding=None,
    )  # fmt: skip


def said(judgement: Judgement) -> tuple[str | None, str | None, str]:
    return judgement.id, judgement.reason, judgement.detail.partition(WORDS_OF_LIBRARIES)[0]


@pytest.mark.parametrize("profile", [SYNTH_KD, HARMONY_CHAT], ids=lambda profile: profile.family)
@given(
    rules=st.sampled_from(RULES),
    given_id=st.one_of(st.none(), texts),
    metadata_json=metadata,
    text=st.one_of(
        st.none(),
        st.sampled_from(
            [b"", b"{", b"\xff", b"NaN", b'{"messages": 1, "messages": []}', b"[" * 100_000, b"\xef\xbb\xbf{}"]
        ),
        conversations.map(lambda value: json.dumps(value).encode()),
        conversations.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    ),
)
@settings(max_examples=drawn(400, 65))
def test_both_refuse_the_same_rows_for_the_same_reasons(
    profile: Profile, rules: CutRules, given_id: str | None, metadata_json: str | None, text: bytes | None
) -> None:
    row = (profile, rules, given_id, metadata_json, text)
    assert said(judged(*row)) == said(refused_by_build(*row))


def read_back(profile: Profile, text: Any) -> Judgement:
    return judged(profile, RULES[0], "a", None, text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({**chat.user("?"), "tool_calls": []}, "key_unknown"),
        ({**chat.user("?"), "channel": "final"}, "header_invalid"),
        ({**chat.call("{}"), "recipient": "all"}, "header_invalid"),
        ({"role": "function", "content": "x"}, "role_unknown"),
        ({"role": "assistant", "content": "x"}, "channel_unknown"),
        ({**chat.user("?"), "name": None}, None),
        ({**chat.user("?"), "trained": False}, "header_invalid"),
        ({**chat.final("!"), "trained": True}, "header_invalid"),
        ({**chat.final("!"), "trained": 0}, "header_invalid"),
        ({**chat.final("!"), "trained": None}, None),
        (chat.result("x"), None),
        (chat.final(""), None),
    ],
)
def test_messages_by_the_specification(message: dict[str, Any], reason: str | None) -> None:
    text = json.dumps({"messages": [chat.user("?"), message, chat.final("!")]})
    assert read_back(HARMONY_CHAT, text).reason == reason


def test_openai_harmony_is_asked_of_each_document(encoding: openai_harmony.HarmonyEncoding) -> None:
    """Of two runs the second shows what openai-harmony cannot read."""
    text = json.dumps(
        {"messages": [*chat.plain(), {**chat.user("?"), "content": [{"type": "audio"}]}, chat.final("!")]}
    )
    options: dict[str, Any] = {
        "given_id": "a", "metadata_json": None, "messages_json": text.encode(), "undecodable": False,
    }  # fmt: skip
    config = CutRules().as_dict()
    assert judge_row("harmony_chat", config, **options, encoding=None).reason is None
    assert judge_row("harmony_chat", config, **options, encoding=encoding).reason == "renderer_refused"
    undecodable = {**options, "undecodable": True}
    assert judge_row("harmony_chat", config, **undecodable, encoding=encoding).reason == "not_utf8"


def test_every_bad_row_is_refused_and_no_fine_one(encoding: openai_harmony.HarmonyEncoding) -> None:
    for name, bad in BAD_ROWS.items():
        row = bad.row()
        cells = [row["synth_id"], row["metadata_json"], row["messages_json"]]
        if all(cell is None or isinstance(cell, str) for cell in cells[:2]):
            text = cells[2].encode() if isinstance(cells[2], str) else cells[2]
            judgement = judge_row(
                "synth_kd", {}, given_id=cells[0], metadata_json=cells[1], messages_json=text,  # type: ignore[arg-type]
                undecodable=False, encoding=encoding,
            )  # fmt: skip
            assert judgement.reason == bad.reason, name


def test_what_a_build_rejects_is_judged_by_rules_of_validations_own(tmp_path: Path) -> None:
    """A build whose rules refuse a good row is not clean, though nothing in its files contradicts the refusal."""
    fine = [{**sources.row(f"fine-{number}"), **cells} for number, cells in enumerate(FINE_ROWS.values())]
    source = write_cells(tmp_path / "source", [*fine, *sources.rows(5)], sources.rows(3, "b"))
    report = build(
        BuildOptions(source=source, out=tmp_path / "root", shards=2, workers=1, valid_fraction=0.3, max_rejects="100%")
    ).report
    assert report.clean, [finding.message for finding in report.findings]
