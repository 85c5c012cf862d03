"""The family's own sample: always the same, and with something of all that the generator is there for."""

import json
from pathlib import Path

from spanloom.families.chat.transcripts.convert import generate
from spanloom.families.chat.transcripts.left_out import GeneratorCounts, GeneratorRules
from spanloom.families.chat.transcripts.sample import sample_conversations
from spanloom.families.chat.transcripts.source import read_conversations


def test_the_sample_is_the_same_every_time_and_a_longer_one_begins_with_a_shorter() -> None:
    assert list(sample_conversations(30)) == list(sample_conversations(90))[:30]


def test_the_generator_finds_all_kinds_of_trouble_in_it(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in sample_conversations(80)))
    counts = GeneratorCounts()
    written = list(
        generate(
            read_conversations(file),
            GeneratorRules(context_len=600, drop=frozenset({"tool"})),
            count_tokens=lambda texts: [len(text) for text in texts],
            counts=counts,
        )
    )
    assert counts.conversations_read == 80
    assert counts.conversations_written == len(written)
    assert counts.conversations_skipped["control_string"] == 2  # type: ignore[index]
    assert counts.conversations_shortened + counts.conversations_skipped.get("first_pair_too_long", 0) == 2  # type: ignore[call-overload]
    assert counts.roles_dropped["tool"] == 2
    assert counts.conversations_ended_early == 2
