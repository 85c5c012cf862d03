"""Spans read off the tokens alone, and the faults that reading finds."""

import numpy as np
import openai_harmony
import pytest

from spanloom.families.harmony.tokenizer import CALL, CHANNEL, CONSTRAIN, END, EOD, MESSAGE, RETURN, START
from spanloom.families.harmony.verify.structure import messages as verify_messages
from spanloom.families.harmony.verify.structure import spans as verify_spans
from support.wrapper_spans import spans_from_wrappers

USER = [START, 1428, MESSAGE, 5, END]
FINAL = [START, verify_messages.ASSISTANT, CHANNEL, verify_messages.FINAL, MESSAGE, 5, RETURN]
ANALYSIS = [START, verify_messages.ASSISTANT, CHANNEL, verify_messages.ANALYSIS, MESSAGE, 5, END]


def read(*documents: list[int]) -> tuple[list[int], list[tuple[int, int, str]]]:
    tokens = np.array([token for document in documents for token in document], dtype=np.int32)
    spans, faults = spans_from_wrappers(tokens, np.array([len(document) for document in documents], dtype=np.int32))
    return spans.tolist(), [(fault.document, fault.offset, fault.message) for fault in faults]


def test_the_header_words_are_the_tokenizers(encoding: openai_harmony.HarmonyEncoding) -> None:
    words = {
        "assistant": verify_messages.ASSISTANT,
        "analysis": verify_messages.ANALYSIS,
        "final": verify_messages.FINAL,
    }
    for word, token in {**words, **verify_messages.CONTEXT_ROLES}.items():
        assert encoding.encode(word) == [token]


def test_spans_come_from_role_and_channel() -> None:
    spans, faults = read([*USER, *ANALYSIS, *FINAL, EOD], [*FINAL, *USER, EOD])
    assert spans == [0] * 5 + [1] * 7 + [2] * 7 + [0] + [2] * 7 + [0] * 5 + [0]
    assert faults == []


def test_a_users_channel_is_context() -> None:
    spans, faults = read([START, 1428, CHANNEL, verify_messages.FINAL, MESSAGE, 5, END, EOD])
    assert spans == [0] * 8
    assert faults == []


@pytest.mark.parametrize(
    ("document", "offset", "message"),
    [
        ([5, *USER, EOD], 0, "does not begin with <|start|>"),
        ([5, EOD], 0, "does not begin with <|start|>"),
        ([*USER, START, 1428, 5, END, EOD], 5, "no <|message|>"),
        ([START, 77, MESSAGE, 5, END, EOD], 1, "a role is not one of"),
        ([START, verify_messages.ASSISTANT, MESSAGE, 5, END, EOD], 0, "neither analysis nor final"),
        ([START, verify_messages.ASSISTANT, CHANNEL, 9, MESSAGE, 5, END, EOD], 0, "neither analysis nor final"),
        ([START, 1428, MESSAGE, 5, EOD], 3, "does not end in"),
        ([START], 0, "a role is not one of"),
        ([*USER, START, verify_messages.ASSISTANT, CHANNEL], 5, "no <|message|>"),
    ],
)
def test_broken_wrappers_are_found_where_they_are(document: list[int], offset: int, message: str) -> None:
    _, faults = read([*FINAL, EOD], document)
    assert any(fault[:2] == (1, offset) and message in fault[2] for fault in faults), faults
    assert all(fault[0] == 1 for fault in faults)


@pytest.mark.parametrize(
    ("call_format", "headers", "wrong"),
    [
        ("constrain", (CONSTRAIN, CONSTRAIN), []),
        ("json", (CONSTRAIN, 9), [5]),
        ("json", (9, 9), []),
        ("as-served", (CONSTRAIN, CONSTRAIN), [5]),
        ("as-served", (9, CONSTRAIN), []),
    ],
)
def test_calls_before_the_last_run_are_written_as_servers_show_them(
    call_format: str, headers: tuple[int, int], wrong: list[int]
) -> None:
    """Two calls with a result between them; the header of each has `<|constrain|>` or another token (9)."""
    result = [START, verify_messages.TOOLS["functions"], 7, MESSAGE, 5, END]
    first, second = (
        [START, verify_messages.ASSISTANT, 6, CHANNEL, *verify_messages.COMMENTARY, header, MESSAGE, 5, CALL]
        for header in headers
    )
    document = [*USER, *first, *result, *second, EOD]
    trained = verify_spans.TrainedMessages(history="serve", turns="all", spans=(1, 2, 3), call_format=call_format)
    tokens = np.array(document, dtype=np.int32)
    _, faults = spans_from_wrappers(tokens, np.array([tokens.size], dtype=np.int32), trained)
    assert [fault.offset for fault in faults] == wrong
    assert all("<|constrain|>" in fault.message for fault in faults)
