"""Files of tokenizers that others made to cost more than they may are refused with a reason; the usual ones load.

Each file is read by the tokenizers package itself.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.errors import TokenizerError
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.tokenizers.json_file import load_json_tokenizer

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
AT_EVERY_PLACE = {"type": "Replace", "pattern": {"Regex": "(?=.)"}, "content": "b"}
SPACES = [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
]


def sequence(*normalizers: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(normalizers)}


def template(*pieces: str, ids: int = 1) -> dict[str, Any]:
    single = [
        {"Sequence": {"id": "A", "type_id": 0}} if piece == "A" else {"SpecialToken": {"id": "E", "type_id": 0}}
        for piece in pieces
    ]
    special = {"E": {"id": "E", "ids": [2] * ids, "tokens": ["?"] * ids}}
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special}


def charsmap(written: str) -> str:
    """Bytes of the trie, here one empty unit of 4, then the texts that are written, each closed by a zero."""
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + written.encode() + b"\0").decode()


def saved(folder: Path, model: dict[str, Any] = WORDS, **parts: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **parts}))
    return path


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"normalizer": sequence(*SPACES)},
        {"normalizer": sequence({"type": "NFKC"}, {"type": "Lowercase"}, {"type": "ByteLevel"})},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap("eighteen code poin")}},
        {"normalizer": sequence(*[DOUBLING] * 10)},
        {"post_processor": template("E", "A", "E")},
        {"model": {**BPE, "dropout": 0.0}},
        {"model": {**WORDS, "vocab": {**WORDS["vocab"], "last": 2**22 - 1}}},  # type: ignore[dict-item]
    ],
    ids=lambda parts: json.dumps(parts)[:60],
)
def test_what_is_within_the_limits_loads(tmp_path: Path, parts: dict[str, Any]) -> None:
    assert load_json_tokenizer(saved(tmp_path, **parts), extra="traces").get_vocab()["a"] == 0


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"normalizer": sequence(*[DOUBLING] * 11)}, "1,024 times as long"),
        ({"normalizer": sequence(*[AT_EVERY_PLACE] * 11)}, "1,024 times as long"),
        ({"normalizer": sequence(*[sequence(DOUBLING, DOUBLING)] * 6)}, "1,024 times as long"),
        ({"normalizer": sequence(*[{"type": "ByteLevel"}] * 6)}, "1,024 times as long"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 1024}}, "1,024 times as long"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap("x" * 1025)}}, "1,024 times as long"),
        ({"post_processor": template("A", "E", ids=1025)}, "1,024 tokens"),
        ({"post_processor": {"type": "Sequence", "processors": [template("A", *"E" * 1025)]}}, "1,024 tokens"),
        ({"post_processor": template("A", "A")}, "copies the text"),
        ({"model": {**BPE, "dropout": 0.1}}, "dropout"),
        ({"model": {**WORDS, "vocab": {}}}, "no tokens"),
        ({"model": {**WORDS, "vocab": {"a": 2**22}}}, "4,194,304"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "normalizer: "),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:60],
)
def test_what_is_beyond_them_is_refused_with_the_reason(tmp_path: Path, parts: dict[str, Any], reason: str) -> None:
    path = saved(tmp_path, **parts)
    with pytest.raises(TokenizerError, match=reason) as refused:
        load_json_tokenizer(path, extra="traces")
    assert refused.value.where == str(path)


@pytest.mark.parametrize(
    ("parts", "text", "reason"),
    [
        (
            # Each letter more doubles the ways to take the text apart: the package's engine gives up.
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(a+)+$"},
                    "behavior": "Isolated",
                    "invert": False,
                }
            },
            "a" * 60 + "!",
            "retry-limit",
        ),
        ({"model": {**WORDS, "unk_token": "nothing"}}, "c", "Missing"),
    ],
    ids=["a pattern without end", "a model without its token for what is unknown"],
)
def test_a_tokenizer_that_fails_at_a_text_is_named(
    tmp_path: Path, parts: dict[str, Any], text: str, reason: str
) -> None:
    tokenizer = JsonTokenizer(saved(tmp_path, **parts), extra="traces")
    with pytest.raises(TokenizerError, match=reason) as failed:
        tokenizer.encode([text], special=False)
    assert failed.value.where == str(tokenizer.path)
