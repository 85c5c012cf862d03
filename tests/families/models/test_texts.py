"""Texts that are found in a document's bytes are those that are found where it is read as text."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families.models.conftest import content_of
from spanloom.families.models.verify import texts as module
from spanloom.families.models.verify.frames import frames_of
from spanloom.families.models.verify.messages import plain_conversation
from spanloom.families.models.verify.texts import Texts
from support.nightly import drawn

OTHERS = ("", " ", "e\u0301", "\u00e9", "\ud800", "Yes.", "\n", "a", "?")


@pytest.fixture(scope="module")
def cases(root: Path) -> tuple[Texts, list[tuple[Any, ...]]]:
    frames, _ = frames_of(root, content_of(root))
    assert frames is not None
    found = []
    for conversation, document in frames.documents:
        messages = conversation.messages
        runs = [run.run for run in document.runs]
        answers = [([messages[run].get("reasoning") or ""], messages[run].get("content") or "") for run in runs]
        prompts = [each.get("content") or "" for each in messages[: runs[-1]] if each["role"] != "assistant"]
        found.append((document.tokens, document.spans * document.mask, answers, prompts))
    assert len(found) > 20
    return Texts(frames), found


def test_the_bytes_of_honest_documents_hold_all_texts(cases: tuple[Texts, list[tuple[Any, ...]]]) -> None:
    texts, documents = cases
    for tokens, spans, answers, prompts in documents:
        document = module._Bytes(*texts._model.tokenizer.joined_bytes(tokens))
        assert document.holds_all(module._stretches(spans > 0), spans == module.ANALYSIS, answers, prompts)


@pytest.mark.parametrize("seed", range(drawn(40, 2)))
def test_changed_documents_and_texts_are_judged_alike(
    seed: int, cases: tuple[Texts, list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, documents = cases
    chance = random.Random(seed)
    changed = [_changed(chance, *chance.choice(documents)) for _ in range(300)]
    fast = [[*texts.differences(*each)] for each in changed]
    monkeypatch.setattr(module._Bytes, "holds_all", lambda *_: False)
    assert fast == [[*texts.differences(*each)] for each in changed]
    assert any(fast)


def _changed(chance: random.Random, tokens: Any, spans: Any, answers: Any, prompts: Any) -> tuple[Any, ...]:
    tokens, spans = tokens.copy(), spans.copy()
    answers, prompts = [([*reasoning], said) for reasoning, said in answers], [*prompts]
    at = chance.randrange(tokens.size)
    number = chance.randrange(len(answers))
    reasoning, said = answers[number]
    match chance.randrange(7):
        case 0:
            tokens[at] = tokens[chance.randrange(tokens.size)]
        case 1:
            spans[at] = (spans[at] + 1) % 4
        case 2:
            tokens, spans = np.delete(tokens, at), np.delete(spans, at)
        case 3:
            other = chance.choice([said[1:], said + chance.choice(OTHERS), chance.choice(OTHERS), said.upper()])
            answers[number] = (reasoning, other)
        case 4:
            answers[number] = ([*reasoning, chance.choice(OTHERS)], said)
        case 5:
            # A text that ends before a combining character is in the bytes, and not in the characters, of the whole.
            prompts.append(chance.choice([*OTHERS, said[:-1] if said.isascii() else said]))
        case _:
            answers = answers[::-1]
    return tokens, spans, answers, prompts


def test_a_large_number_of_a_schema_stays_whole() -> None:
    tool = {"name": "f", "parameters": {"maximum": 2**64 + 1}}
    row = json.dumps({"messages": [{"role": "user", "content": "Q"}], "tools": [tool]}).encode()
    assert plain_conversation(row, "conversations_v1").tools == [tool]
    assert type(plain_conversation(row, "conversations_v1").tools[0]["parameters"]["maximum"]) is int
