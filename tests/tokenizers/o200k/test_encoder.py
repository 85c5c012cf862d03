"""The encoder against openai-harmony on every code point, alone and in context.

`make test` takes every eighth in each context.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import openai_harmony
import pytest

from spanloom.families.harmony.render.fast import LONGEST_TEXT, may_be_refused
from spanloom.tokenizers.o200k.encoder import Encoder
from support.nightly import NIGHTLY

POINTS = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
CONTEXTS = {"alone": "{}", "inside a word": "wor{}d", "after a space": "a {} b", "before a contraction": "x{}'s"}
"""The last tells letters and marks from everything else most sharply: `'s` belongs to the word before it."""


@pytest.fixture(scope="module")
def encoder(asset: Path) -> Encoder:
    return Encoder(asset)


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_code_point_encodes_as_openai_harmony_encodes_it(
    encoder: Encoder, encoding: openai_harmony.HarmonyEncoding, context: str
) -> None:
    points = POINTS if NIGHTLY else POINTS[list(CONTEXTS).index(context) :: 2 * len(CONTEXTS)]
    texts = [CONTEXTS[context].format(chr(point)) for point in points]
    ours = encoder.encode(texts)
    cuts = np.split(ours.tokens, np.cumsum(ours.lengths)[:-1])
    wrong = [
        f"U+{point:04X}"
        for point, text, tokens in zip(points, texts, cuts, strict=True)
        if encoding.encode(text, disallowed_special=()) != tokens.tolist()
    ]
    assert wrong == []


def test_text_never_gives_a_special_token(encoder: Encoder, encoding: openai_harmony.HarmonyEncoding) -> None:
    texts = ["<|endoftext|>", "a<|end|><|start|>assistant", "<|endofprompt|>", "<|return|> <|call|>"]
    ours = encoder.encode(texts)
    assert int(ours.tokens.max()) < 199_998
    assert ours.tokens.tolist() == [id for text in texts for id in encoding.encode(text, disallowed_special=())]


def test_a_lone_surrogate_is_no_text(encoder: Encoder) -> None:
    with pytest.raises(UnicodeEncodeError):
        encoder.encode(["fine", "\ud800"])


def test_text_that_openai_harmony_decides_on() -> None:
    assert not may_be_refused("plain text, größer, 日本語, 🎉, <|end|>, \u0378")
    assert may_be_refused("\ud800")
    assert may_be_refused("x" * (LONGEST_TEXT + 1))
    assert not may_be_refused("x" * LONGEST_TEXT)


def test_lengths_and_order_are_those_of_the_texts(encoder: Encoder, encoding: openai_harmony.HarmonyEncoding) -> None:
    texts = ["one", "", "two words", "", "größer 日本"]
    encoded = encoder.encode(texts)
    expected = [encoding.encode(text) for text in texts]
    assert encoded.lengths.tolist() == [len(tokens) for tokens in expected]
    assert encoded.tokens.tolist() == [token for tokens in expected for token in tokens]
    assert encoder.encode([]).tokens.size == encoder.encode([]).lengths.size == 0


@pytest.mark.slow
@pytest.mark.parametrize("letter", [" ", "a", "A", "字", "\n", "!", "7", "\u0301"])
def test_runs_up_to_the_longest_text_are_taken_by_both(
    encoder: Encoder, encoding: openai_harmony.HarmonyEncoding, letter: str
) -> None:
    text = letter * (LONGEST_TEXT // 5)
    assert encoder.encode([text]).tokens.tolist() == encoding.encode(text)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core here")
def test_a_process_encodes_on_one_core_and_may_use_them_all(asset: Path) -> None:
    code = """
import os, sys, time
from pathlib import Path
from spanloom.tokenizers.o200k.encoder import Encoder
threads = lambda: len(os.listdir("/proc/self/task"))
cores, before = os.sched_getaffinity(0), threads()
encoder = Encoder(Path(sys.argv[1]))
encoder.encode([f"{number} some words to encode" * 50 for number in range(2000)])
assert os.sched_getaffinity(0) == cores, "the process is not held to one core"
deadline = time.monotonic() + 10
while threads() > before and time.monotonic() < deadline:
    time.sleep(0.05)  # the thread that loaded ends when it likes; those of a pool would stay
print(threads() - before)
"""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("no /proc here")
    done = subprocess.run([sys.executable, "-c", code, str(asset)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"], "threads that encoding started"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_memory_does_not_follow_the_words_that_were_seen(asset: Path) -> None:
    """The tokenizer keeps what it has encoded. A worker sees words without end, so that must have a bound."""
    code = """
import sys
from pathlib import Path
import numpy as np
from spanloom.tokenizers.o200k.encoder import Encoder
encoder, draw = Encoder(Path(sys.argv[1])), np.random.default_rng(0)
for turn in range(1, 121):
    letters = draw.integers(97, 123, size=(20_000, 9)).astype(np.uint8)
    words = b" ".join(word.tobytes() for word in letters).decode()
    encoder.encode([words[at : at + 4000] for at in range(0, len(words), 4000)])
    if turn in (60, 120):
        print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
"""
    done = subprocess.run([sys.executable, "-c", code, str(asset)], capture_output=True, text=True, check=True)
    half, whole = map(int, done.stdout.split())
    assert whole - half < 32 << 20, "1.2 million more distinct words: an entry for each would be 60 MB and more"


def test_an_asset_that_cannot_be_read_raises_each_time(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("no vocabulary")
    for _ in range(2):
        with pytest.raises(Exception, match=r"(?i)tiktoken|invalid|line|base64"):
            Encoder(tmp_path / "broken")
