"""One record read as `convert` reads it, and what it says; or why it is refused."""

from typing import Any

import pytest

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import ChatRecord, Dropping, Reading, RecordRefusedError, Refusal
from support.chat_records import ANSWER as ANSWER
from support.chat_records import USER as USER

TALK = [("user", "Q"), ("assistant", "A")]


def read(
    record: Any,
    *,
    maps: tuple[str, ...] = (),
    metadata: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    **options: Any,
) -> ChatRecord:
    form = recognise(record, key_map(maps, metadata), "here")
    reading = Reading(metadata=frozenset(metadata), **options)
    return read_record(record, form, reading, Dropping(names=frozenset(drop)))


def texts(record: ChatRecord) -> list[tuple[str, str]]:
    return [(turn.role, "".join(turn.texts)) for turn in record.turns]


def refused(record: Any, **options: Any) -> tuple[Refusal, str]:
    with pytest.raises(RecordRefusedError) as caught:
        read(record, **options)
    return caught.value.reason, caught.value.remedy or ""
