"""Honest packed chat has no findings: alone, with its transcripts, with all blocks packed again."""

import random
from pathlib import Path

import pytest

from support.chat_datasets import packed, write_transcripts
from support.drawn_chats import EDGES, WORDS
from support.forging import LEVELS, validated
from support.nightly import nightly


def drawn_text(drawn: random.Random) -> str | None:
    """A conversation, with text outside of spans, an EOS inside, a span that is not closed, or nothing."""

    def text(most: int) -> str:
        return drawn.choice(EDGES) + " ".join(drawn.choices(WORDS, k=drawn.randint(1, most))) + drawn.choice(EDGES)

    if drawn.random() < 0.03:
        return drawn.choice([None, "", "<|END|>", "<|USER|>", "text alone"])
    parts = [f"<|SYSTEM|>{text(drawn.choice([3, 40]))}<|END|>"] if drawn.random() < 0.6 else []
    for _ in range(drawn.randint(1, 4)):
        long = 60 if drawn.random() < 0.15 else 6
        parts.append(f"<|USER|>{text(long)}<|END|>")
        parts.append(f"<|ASSISTANT|>{text(6)}{'<|END|>' if drawn.random() < 0.98 else ''}")
        if drawn.random() < 0.1:
            parts.append(drawn.choice([text(2), "<|EOS|>", "<|END|>", f"<|SYSTEM|>{text(3)}<|END|>"]))
    return "".join(parts)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *map(nightly, range(4, 80))])
def test_honest_datasets_have_no_findings(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    source = write_transcripts(tmp_path / "transcripts.jsonl", [drawn_text(drawn) for _ in range(80)])
    result = packed(
        tmp_path,
        block_size=drawn.choice([47, 64, 129, 256]),
        post_training=drawn.random() < 0.8,
        strict_user=drawn.random() < 0.5,
        keep_lossless=drawn.random() < 0.7,
        pad_tail=drawn.random() < 0.5,
        shards=drawn.choice([1, 3]),
        on_error="skip",
        reader="independent",
    )
    assert result.report.clean, result.report.findings[:3]
    for level in LEVELS:
        report = validated(result.root, source, level, tokenizer=tmp_path / "tokenizer.json")
        assert report.clean, (level, report.findings[:3])
