"""Texts and characters read off tokens are those that the tokenizers package gives for the text that was encoded."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanloom.families.models import samples
from spanloom.tokenizers.token_texts import token_texts
from support.cases import cases_of
from support.drawn_chats import RARE, WORDS
from tokenizers import Tokenizer

PIECES = (*WORDS, *RARE, "<end_of_turn>", "<|eot_id|>", "  ", "e\u0301", "\x00", "▁", " x", "\r\n")


def files() -> dict[str, Path]:
    return {
        "llama": cases_of("toolcalls") / "fixtures/tokenizer_llamalike.json",
        "gemma": cases_of("traces") / "fixtures/masks/tokenizer_gemmalike.json",
        "bytes": cases_of("traces") / "fixtures/masks/tokenizer_bytelevel.json",
    }


def changed(folder: Path, **parts: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(files()["llama"].read_bytes()), **parts}))
    return path


def check_like_tokenizers(path: Path) -> None:
    texts, loaded = token_texts(path), Tokenizer.from_file(str(path))
    assert texts is not None
    drawn = random.Random(1)
    for _ in range(300):
        text = "a" + "".join(drawn.choices(PIECES, k=drawn.randint(1, 12)))
        encoded = loaded.encode(text, add_special_tokens=False)
        read = texts.read(np.array(encoded.ids, np.int32))
        assert read.between(0, len(encoded.ids)) == texts.as_read(text)
        if len(texts.as_read(text)) == len(text):
            begins, ends = read.offsets(0, len(encoded.ids))
            assert begins.tolist() == [begin for begin, _ in encoded.offsets]
            assert (begins < ends).tolist() == [begin < end for begin, end in encoded.offsets]


@pytest.mark.parametrize("name", ["llama", "gemma", "bytes"])
def test_texts_and_characters_are_those_of_the_package(name: str) -> None:
    check_like_tokenizers(files()[name])


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "NFC"}},
        {"post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}},
    ],
)
def test_normal_forms_and_offsets_without_spaces(parts: dict[str, Any], tmp_path: Path) -> None:
    check_like_tokenizers(changed(tmp_path, **parts))


def test_a_token_inside_a_character_is_at_that_character() -> None:
    path = Path(samples.__file__).parent / "files/model/tokenizer.json"  # a token is a byte
    texts, loaded = token_texts(path), Tokenizer.from_file(str(path))
    assert texts is not None
    ids = np.array(loaded.encode("aé<|im_end|>中").ids, np.int32)
    read = texts.read(ids)
    assert ids.size == 1 + 2 + 1 + 3
    assert read.offsets(0, 7)[0].tolist() == [0, 1, 1, 2, 12, 12, 12]
    assert read.between(1, 4) == "é<|im_end|>"


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Prepend", "prepend": "_"}},
        {"pre_tokenizer": {"type": "WhitespaceSplit"}},
        {"post_processor": {"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]}},
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
        {"added_tokens": "none"},
    ],
)
def test_files_whose_tokens_do_not_tell_the_text(parts: dict[str, Any], tmp_path: Path) -> None:
    assert token_texts(changed(tmp_path, **parts)) is None


def test_ids_outside_the_vocabulary_have_no_text() -> None:
    texts = token_texts(files()["llama"])
    assert texts is not None
    assert texts.read(np.array([-1, 10**9], np.int32)).data.size == 0
