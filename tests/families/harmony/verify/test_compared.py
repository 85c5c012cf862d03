"""The fast ways to compare rows with documents find what the slow one finds, document by document.

The arrays of honest documents are openai-harmony's, through the slow reference; none is built.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openai_harmony
import pytest

from spanloom.dataset.validate.placed_documents import PlacedDocument
from spanloom.families.harmony.contract.profile import CHAT_OF_ANY_MODEL, HARMONY_CHAT, SYNTH_KD, Profile
from spanloom.families.harmony.tokenizer import CALL, CHANNEL, END, EOD, MESSAGE, RETURN, START
from spanloom.families.harmony.verify import compared as module
from spanloom.families.harmony.verify.accounts import Arrays, Wrappers, document_differences
from spanloom.families.harmony.verify.compared import ComparedRows
from spanloom.families.harmony.verify.equal import TokenBytes, token_bytes
from spanloom.families.harmony.verify.reference import disk_document, disk_sequences
from spanloom.families.harmony.verify.rewritten import plain_json
from spanloom.findings import Finding
from support import nightly, sources

CHAT_CONFIG = {"history": "serve", "train": ["analysis", "commentary", "final"], "turns": "all", "merge": True}
TEXTS = (
    "Why?",
    "So.",
    ' 4 °C – „ja“ 😀 \n\t"q" \\\\ / \x1b\x7f',
    "<|end|> is no token",
    "a" * 300,
    "日本語。" * 9,
    "x",
)


@dataclass(frozen=True, kw_only=True)
class Held(PlacedDocument):
    """A document whose arrays are in memory."""

    arrays: Arrays

    def read(self, root: Path, names: Any) -> dict[str, Any] | None:  # noqa: ARG002
        return dict(self.arrays)


@dataclass(frozen=True)
class Case:
    profile: Profile
    config: Mapping[str, Any]
    rows: list[str]


def drawn(seed: int) -> Case:
    """Rows of a family, as one of the programs that write JSON writes them."""
    chance = random.Random(seed)
    profile = (SYNTH_KD, HARMONY_CHAT, CHAT_OF_ANY_MODEL)[seed % 3]
    config: dict[str, Any] = {} if profile is SYNTH_KD else dict(CHAT_CONFIG)
    if profile is not SYNTH_KD and chance.random() < 0.5:
        config |= {"mask_generation_prompt": True, "history": chance.choice(["serve", "keep"])}
    style = chance.choice([{}, {"ensure_ascii": False}, {"ensure_ascii": False, "separators": (",", ":")}])
    rows = [json.dumps(_row(chance, profile), **style) for _ in range(12)]
    return Case(profile, config, rows)


def _row(chance: random.Random, profile: Profile) -> dict[str, Any]:
    def text() -> str:
        return chance.choice(TEXTS) + str(chance.random())

    if profile is CHAT_OF_ANY_MODEL:
        turns = [
            [{"role": "user", "content": text()}, {"role": "assistant", "content": text(), "reasoning": text()}],
            [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}],
        ]
        call = {"id": f"c{chance.random()}", "name": "find", "arguments": json.dumps({"q": text()})}
        called = [
            {"role": "user", "content": text()},
            {"role": "assistant", "content": None, "reasoning": text(), "tool_calls": [call]},
            {"role": "tool", "content": text(), "tool_call_id": call["id"]},
            {"role": "assistant", "content": text(), "trained": chance.choice([True, False])},
        ]
        turns += [turns[1] + turns[0], called, called + turns[0]]
        return {"messages": chance.choice(turns)}
    system = {"role": "system", "content": [{"type": "system_content", "model_identity": "A model."}]}
    told = chance.choice(["Be brief.", "Answer.", text()])
    developer = {"role": "developer", "content": [{"type": "developer_content", "instructions": told}]}
    said = sources.conversation(text(), text(), text())
    for message in said:
        if chance.random() < 0.5:
            message["content"] = [{"type": "text", "text": message["content"]}]
    return {"messages": chance.choice([said, [system, *said], [system, developer, *said], [*said, *said]])}


def documents_of(case: Case, row: str, encoding: openai_harmony.HarmonyEncoding) -> Iterator[dict[str, Any]]:
    accepted = module._accepted(case.profile, case.config, row.encode())
    for document in accepted.documents:
        if case.profile is SYNTH_KD:
            made = disk_sequences(row, encoding)
        else:
            made = disk_document(document, encoding, case.config)
        yield {
            "tokens": np.array(made.tokens, np.int32),
            "lossmask": np.array(made.lossmask, np.uint8),
            "span": np.array(made.span, np.uint8),
        }


def found(
    case: Case, rows: Sequence[tuple[str, Sequence[Arrays]]], wrappers: Wrappers, table: TokenBytes
) -> list[tuple[int, str, int | None]]:
    """What the fast way finds: sequence, message and offset."""
    compared = ComparedRows(Path(), case.profile, case.config, wrappers, table, counting=True)
    findings: list[Finding] = []
    sequence = 0
    for number, (row, documents) in enumerate(rows):
        placed = [
            Held(split="train", shard=0, sequence=sequence + at, row={}, open_with=None, arrays=arrays)  # type: ignore[arg-type]
            for at, arrays in enumerate(documents)
        ]
        sequence += len(placed)
        findings += compared.add(number, row.encode(errors="surrogateescape"), placed)
    findings += compared.rest()
    return [
        (finding.sequence, finding.message.partition(": ")[2], finding.offset)
        for finding in findings
        if finding.sequence is not None
    ]


def differences(
    case: Case, rows: Sequence[tuple[str, Sequence[Arrays]]], wrappers: Wrappers
) -> list[tuple[int, str, int | None]]:
    """What each document by itself shows."""
    listed = []
    sequence = 0
    prompted = case.config.get("mask_generation_prompt") is True
    for row, documents in rows:
        accepted = module._accepted(case.profile, case.config, row.encode())
        for document, arrays in zip(accepted.documents, documents, strict=True):
            for offset, message in document_differences(document, arrays, wrappers, prompted=prompted):
                listed.append((sequence, message, offset))
            sequence += 1
    return listed


@pytest.fixture(scope="module")
def wrappers(encoding: openai_harmony.HarmonyEncoding) -> Wrappers:
    return Wrappers(encoding)


@pytest.fixture(scope="module")
def table(asset: Path) -> TokenBytes:
    return token_bytes(asset)


def test_the_bytes_of_all_tokens_are_those_of_openai_harmony(
    table: TokenBytes, encoding: openai_harmony.HarmonyEncoding
) -> None:
    data, edges = table.of(np.arange(table.specials, dtype=np.int32))
    for token in range(table.specials):
        known = encoding.decode([token], errors="surrogateescape").encode(errors="surrogateescape")
        assert data[edges[token] : edges[token + 1]].tobytes() == known
    assert table.text_of([START]) == b"\xff"
    assert table.text_of([END, MESSAGE, CHANNEL, RETURN, CALL, EOD, -1, 1 << 30]) == b""


@pytest.mark.parametrize("seed", range(nightly.drawn(60, 9)))
def test_honest_documents_need_no_comparison_by_themselves(
    seed: int,
    wrappers: Wrappers,
    table: TokenBytes,
    encoding: openai_harmony.HarmonyEncoding,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = drawn(seed)
    rows = [(row, [*documents_of(case, row, encoding)]) for row in case.rows]
    assert differences(case, rows, wrappers) == []

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "document_differences", never)
    assert found(case, rows, wrappers, table) == []


@pytest.mark.parametrize("seed", range(nightly.drawn(600, 18)))
def test_a_changed_document_gives_what_it_gives_by_itself(
    seed: int, wrappers: Wrappers, table: TokenBytes, encoding: openai_harmony.HarmonyEncoding
) -> None:
    case, chance = drawn(seed), random.Random(seed)
    rows = []
    for row in case.rows:
        documents = [*documents_of(case, row, encoding)]
        if chance.random() < 0.7:
            at = chance.randrange(len(documents))
            documents[at] = changed(documents[at], chance)
        rows.append((row, documents))
    expected = differences(case, rows, wrappers)
    assert expected
    assert found(case, rows, wrappers, table) == expected


@pytest.mark.parametrize("token", [13, START, END, MESSAGE, EOD, -1])
def test_a_token_is_seen_at_each_place(
    token: int, wrappers: Wrappers, table: TokenBytes, encoding: openai_harmony.HarmonyEncoding
) -> None:
    system = {"role": "system", "content": [{"type": "system_content", "model_identity": "A model."}]}
    developer = {"role": "developer", "content": [{"type": "developer_content", "instructions": "Be brief."}]}
    row = json.dumps({"messages": [system, developer, *sources.conversation()]})
    case = Case(SYNTH_KD, {}, [row])
    (honest,) = documents_of(case, row, encoding)
    places = range(honest["tokens"].size)
    inserted = [
        {name: np.insert(each, at, (token if name == "tokens" else each[at])) for name, each in honest.items()}
        for at in places
    ]
    replaced = [
        {**honest, "tokens": np.where(np.arange(len(places)) == at, np.int32(token), honest["tokens"])} for at in places
    ]
    rows = [(row, [arrays]) for arrays in (honest, *inserted, *replaced)]
    expected = differences(case, rows, wrappers)
    assert len(expected) > len(places)
    assert found(case, rows, wrappers, table) == expected


def changed(arrays: Arrays, chance: random.Random) -> dict[str, Any]:
    """Arrays with one change, which may be one that no text shows."""
    tokens, mask, span = (arrays[name].copy() for name in ("tokens", "lossmask", "span"))
    at = chance.randrange(tokens.size)
    token = chance.choice([START, END, MESSAGE, CHANNEL, RETURN, CALL, EOD, 200_500, -1, 201_090, 13, 220, 0xFF])
    match chance.randrange(6):
        case 0:
            tokens[at] = token
        case 1:
            tokens, mask, span = (np.delete(each, at) for each in (tokens, mask, span))
        case 2:
            tokens = np.insert(tokens, at, token).astype(np.int32)
            mask, span = np.insert(mask, at, mask[at]), np.insert(span, at, span[at])
        case 3:
            other = chance.randrange(tokens.size)
            tokens[[at, other]] = tokens[[other, at]]
        case 4:
            mask[at] ^= 1
        case _:
            span[at] = (span[at] + 1) % 4
    return {"tokens": tokens, "lossmask": mask, "span": span}


@pytest.mark.parametrize("profile", [SYNTH_KD, CHAT_OF_ANY_MODEL], ids=["synth", "any_model"])
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_a_changed_row_is_seen(
    profile: Profile,
    ensure_ascii: bool,
    wrappers: Wrappers,
    table: TokenBytes,
    encoding: openai_harmony.HarmonyEncoding,
) -> None:
    if profile is SYNTH_KD:
        record = {"messages": sources.conversation("Äh, why?", "Because.", "So 😀.")}
    else:
        record = {
            "messages": [
                {"role": "user", "content": "Äh, why?"},
                {"role": "assistant", "content": "So 😀.", "reasoning": "Because."},
            ]
        }
    case = Case(profile, {} if profile is SYNTH_KD else CHAT_CONFIG, [])
    row = json.dumps(record, ensure_ascii=ensure_ascii)
    documents = [*documents_of(case, row, encoding)]
    honest = [(row, documents)] * 3
    assert found(case, honest, wrappers, table) == []
    for old, new in (
        ("why", "who"),
        ("So ", "So, "),
        ("Because.", ""),
        ("Because.", "Because. "),
        ('"user"', '"assistant"'),
        ('"role": "user"', '"role": "user", "role": "user"'),
        ('"role": "user"', '"name": "Ada", "role": "user"'),
        ("why?", "why\\u003f\\u0022"),
        ('{"messages"', '{"else": [], "messages"'),
        ("Because", "\\ud800"),
    ):
        assert old in row
        altered = row.replace(old, new, 1)
        if "else" in new and profile is SYNTH_KD:  # its rows may have other keys
            assert found(case, [*honest, (altered, documents)], wrappers, table) == []
            continue
        assert [each[0] for each in found(case, [*honest, (altered, documents)], wrappers, table)] == [3], new


def test_bytes_that_are_no_text_are_refused(
    wrappers: Wrappers, table: TokenBytes, encoding: openai_harmony.HarmonyEncoding
) -> None:
    """The document has the bytes of the row, which the rules refuse."""
    case = Case(SYNTH_KD, {}, [])
    row = json.dumps({"messages": sources.conversation("a", None, "b")})
    (arrays,) = documents_of(case, row, encoding)
    byte = next(token for token in range(256) if table.text_of([token]) == b"\xfe")
    (letter,) = encoding.encode("b")
    torn = {**arrays, "tokens": np.where(arrays["tokens"] == letter, np.int32(byte), arrays["tokens"])}
    rows = [(row, [arrays]), (row.replace('"b"', '"\udcfe"'), [torn])]
    (found_at,) = found(case, rows, wrappers, table)
    assert found_at[0] == 1
    assert "not_utf8" in found_at[1]


@pytest.mark.parametrize("place", ["user", "final"])
@pytest.mark.parametrize(
    "fields",
    [
        {"content": None},
        {"content": 5},
        {"content": ["Why?"]},
        {"content": [None]},
        {"content": [{"text": "Why?"}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"content": [{"type": "developer_content", "instructions": 5}]},
        {"name": 5},
        {"recipient": ["assistant"]},
    ],
    ids=str,
)
def test_a_row_that_openai_harmony_refuses_is_seen(
    place: str,
    fields: dict[str, Any],
    wrappers: Wrappers,
    table: TokenBytes,
    encoding: openai_harmony.HarmonyEncoding,
) -> None:
    """No dataset has a document of such a row, whatever its tokens are."""
    case, said = Case(SYNTH_KD, {}, []), sources.conversation("Why?", None, "So.")
    honest = json.dumps({"messages": said})
    said[0 if place == "user" else 1] |= fields
    refused = json.dumps({"messages": said})
    documents = [*documents_of(case, honest, encoding)]
    for rows in ([(refused, documents)], [(honest, documents), (refused, documents)]):
        (found_at,) = found(case, rows, wrappers, table)
        assert found_at[0] == len(rows) - 1
        assert found_at[1].startswith("openai-harmony refuses message")


def test_a_row_with_escapes_is_written_without_them_only_where_nothing_is_lost() -> None:
    for row, plain in (
        (b'{"a": "\\u00e4"}', '{"a":"ä"}'.encode()),
        (b'{"a": "x"}', b'{"a": "x"}'),
        (b'{"a": "\\u00e4", "a": 1}', None),
        (b'{"a": "\\u0022", "b": 1}', None),
        (b'{"a": "\\u00e4", "b": 18446744073709551617}', None),
        (b'{"a": "\\ud800"}', None),
        (b"\xff", None),
    ):
        assert plain_json(row) == plain, row


def test_a_large_number_of_a_schema_ends_in_no_error(wrappers: Wrappers) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**64 + 1}}}
    tools = {"functions": {"name": "functions", "tools": [{"name": "f", "description": "", "parameters": schema}]}}
    developer = {"role": "developer", "content": [{"type": "developer_content", "tools": tools}]}
    account = wrappers.account([developer, *sources.conversation()])
    assert account is None or len(account) == 4


def test_texts_that_change_places_between_messages_are_seen(
    wrappers: Wrappers, table: TokenBytes, encoding: openai_harmony.HarmonyEncoding
) -> None:
    """The bytes of all tokens end to end are the same in both rows, but for where messages begin."""
    case = Case(SYNTH_KD, {}, [])
    rows = [
        json.dumps({"messages": sources.conversation(user, None, final)})
        for user, final in (("x", "userx"), ("xuser", "x"), ("x", "assistant"), ("xassistant", ""))
    ]
    documents = [[*documents_of(case, row, encoding)] for row in rows]
    crossed = [*zip(rows, documents, strict=True), *zip(rows, documents[::-1], strict=True)]
    assert {each[0] for each in found(case, crossed, wrappers, table)} == {4, 5, 6, 7}
