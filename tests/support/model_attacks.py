"""Hostile files of a model's folder, by name: what others can put where a tokenizer, its configuration or the stop
tokens are read.

In: nothing. Out: `ATTACKS`. Each is one file beside the right ones of `chat_models`; `told` is a part of the message
that it must end with, the key where the file has one.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from support.chat_models import small_tokenizer

TOKENIZER, CONFIG, GENERATION = "tokenizer.json", "tokenizer_config.json", "generation_config.json"
FILES = (TOKENIZER, CONFIG, GENERATION)

Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """`write`: the bytes of the file, made when they are needed: some have many megabytes. `text`: of a file that may
    be loaded, a text that ends in the message."""

    name: str
    file: str
    write: Callable[[], bytes]
    told: str
    text: str | None = None


def _changed(change: Change) -> Callable[[], bytes]:
    def write() -> bytes:
        values = json.loads(small_tokenizer().to_str())
        change(values)
        return json.dumps(values).encode()

    return write


def _set(*path: str | int, to: Any) -> Change:
    def change(values: Any) -> None:
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = to

    return change


def _nested(kind: str, key: str, depth: int, last: Any) -> Any:
    for _ in range(depth):
        last = {"type": kind, key: [last]}
    return last


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _added(number: int, content: Any, **more: Any) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **flags, **more}


def _many_added(values: dict[str, Any]) -> None:
    values["added_tokens"] += [_added(1000 + at, f"<|{at}|>", normalized=True) for at in range(400_000)]


def _million_merges(values: dict[str, Any]) -> None:
    values["model"]["merges"] += [["a", "b"]] * 10**6 + [["no", "such"]]


def _chain_of_merges(values: dict[str, Any]) -> None:
    """Each token is the one before it and an `a`: five gigabytes of texts in the vocabulary, from few merges."""
    model = values["model"]
    model["vocab"] |= {"a" * size: 1000 + size for size in range(2, 6000)}
    model["merges"] += [["a" * size, "a"] for size in range(2, 5999)]
    model["merges"].append(["a" * 5999, "b"])


def _of_words(kind: str, **more: Any) -> Change:
    """A model of words with the vocabulary of the other, which has no token for what is unknown."""

    def change(values: dict[str, Any]) -> None:
        values["model"] = {"type": kind, "vocab": values["model"]["vocab"], "unk_token": "none", **more}
        values["pre_tokenizer"] = None

    return change


def _template(*pieces: dict[str, Any], special: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": list(pieces), "pair": [], "special_tokens": special or {}}


_TEXT = {"Sequence": {"id": "A", "type_id": 0}}

_CHANGES: dict[str, tuple[Change, str]] = {
    "version": (_set("version", to="9.0"), "version"),
    "no model": (_set("model", to=None), "model"),
    "unknown model": (_set("model", "type", to="Oracle"), "model"),
    "vocab is a list": (_set("model", "vocab", to=["a", "b"]), "model"),
    "negative id": (_set("model", "vocab", "a", to=-1), "model"),
    "id above 32 bits": (_set("model", "vocab", "a", to=2**32), "model"),
    "id above 64 bits": (_set("model", "vocab", "a", to=2**70), "model"),
    "id above the limit": (_set("model", "vocab", "a", to=2**31), "id"),
    "id is a float": (_set("model", "vocab", "a", to=1.5), "model"),
    "merge of unknown tokens": (_set("model", "merges", to=[["no", "such"]]), "model"),
    "merge of three": (_set("model", "merges", to=[["a", "b", "c"]]), "model"),
    "a million merges": (_million_merges, "model"),
    "merges that grow": (_chain_of_merges, "model"),
    "dropout": (_set("model", "dropout", to=0.5), "dropout"),
    "dropout out of range": (_set("model", "dropout", to=7), "model"),
    "words without unknown": (_of_words("WordLevel"), "cannot encode"),
    "unigram without its unknown": (
        _set("model", to={"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 7}),
        "model",
    ),
    "unigram without scores": (_set("model", to={"type": "Unigram", "vocab": [["a"]], "unk_id": 0}), "model"),
    "word pieces without unknown": (
        _of_words("WordPiece", continuing_subword_prefix="#", max_input_chars_per_word=2**40),
        "cannot encode",
    ),
    "added tokens are no list": (_set("added_tokens", to={"a": 1}), "added_tokens"),
    "added token without content": (_set("added_tokens", 0, to={"id": 1, "special": True}), "added_tokens"),
    "added id above 32 bits": (_set("added_tokens", 0, to=_added(2**32, "<|x|>")), "added_tokens"),
    "added id far away": (_set("added_tokens", 0, to=_added(2**31, "<|x|>")), "added_tokens"),
    "added token is a number": (_set("added_tokens", 0, to=_added(1, 5)), "added_tokens"),
    "added token of 20 MB": (_set("added_tokens", 0, to=_added(300, "x" * 20_000_000)), "added_tokens"),
    "400,000 added tokens": (_many_added, "added_tokens"),
    "normalizer that doubles": (
        _set("normalizer", to={"type": "Sequence", "normalizers": [_replace({"String": "a"}, "aa")] * 40}),
        "normalizer",
    ),
    "normalizer that writes everywhere": (
        _set("normalizer", to={"type": "Sequence", "normalizers": [_replace({"Regex": ""}, "bb")] * 20}),
        "normalizer",
    ),
    "normalizer that puts a megabyte before": (
        _set("normalizer", to={"type": "Prepend", "prepend": "x" * 1_000_000}),
        "normalizer",
    ),
    "normalizers nested 60 deep that double": (
        _set("normalizer", to=_nested("Sequence", "normalizers", 60, _replace({"String": "a"}, "a" * 5000))),
        "normalizer",
    ),
    "normalizers nested 400 deep": (
        _set("normalizer", to=_nested("Sequence", "normalizers", 400, {"type": "NFC"})),
        "normalizer",
    ),
    "map of characters that is junk": (
        _set("normalizer", to={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "normalizer",
    ),
    "unknown normalizer": (_set("normalizer", to={"type": "Rot13"}), "normalizer"),
    "pattern without end": (_set("pre_tokenizer", to=_split("(a+)+$")), "cannot encode"),
    "pattern of blanks without end": (_set("pre_tokenizer", to=_split("( +)+$")), "cannot encode"),
    "pattern that is none": (_set("pre_tokenizer", to=_split("(")), "pre_tokenizer"),
    "pattern that repeats too often": (_set("pre_tokenizer", to=_split("(a{1,999999}){1,999999}")), "pre_tokenizer"),
    "unknown pre-tokenizer": (_set("pre_tokenizer", to={"type": "Rhyme"}), "pre_tokenizer"),
    "post-processor that copies": (_set("post_processor", to=_template(_TEXT, _TEXT)), "post-processor"),
    "post-processor with an unknown token": (
        _set("post_processor", to=_template(_TEXT, {"SpecialToken": {"id": "none", "type_id": 0}})),
        "post-processor",
    ),
    "decoders nested 400 deep": (_set("decoder", to=_nested("Sequence", "decoders", 400, {"type": "Fuse"})), "decoder"),
    "unknown decoder": (_set("decoder", to={"type": "Enigma"}), "decoder"),
    "padding to a terabyte": (
        _set(
            "padding",
            to={
                "strategy": {"Fixed": 2**70},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "a",
            },
        ),
        "padding",
    ),
}

_TEXTS = {
    "words without unknown": "no word of it",
    "word pieces without unknown": "no word of it",
    "pattern without end": "a" * 60 + "!",
    "pattern of blanks without end": " " * 60 + "!",
}
"""What the files of these names cannot encode."""

_JUNK: dict[str, bytes] = {
    "empty": b"",
    "torn": b'{"model": {"ty',
    "no UTF-8": b'{"model": "\xff\xfe"}',
    "null": b"null",
    "a list": b"[]",
    "lists nested 100,000 deep": b"[" * 100_000,
    "objects nested 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}
"""Of each of the three files."""

_CONFIGS: dict[str, tuple[Any, str]] = {
    "the end of text is a number": ({"eos_token": 5}, "eos_token"),
    "the end of text has no content": ({"eos_token": {"lstrip": True}}, "eos_token"),
    "the begin of text has 20 MB": ({"bos_token": "x" * 20_000_000}, "bos_token"),
    "half of a character": ({"eos_token": "\ud800"}, "eos_token"),
}

_STOPS: dict[str, Any] = {
    "a text that is no token": "no such token",
    "a float": 1.5,
    "true": True,
    "negative": -1,
    "above 64 bits": 2**70,
    "lists in a list": [[[0]]],
    "an object": {"id": 0},
    "null in a list": [None],
    "a million of them": [0] * 10**6,
    "an unknown id": 9_999_999,
}


def _all() -> Iterator[Attack]:
    for name, (change, told) in _CHANGES.items():
        yield Attack(name=name, file=TOKENIZER, write=_changed(change), told=told, text=_TEXTS.get(name))
    for file in FILES:
        for name, data in _JUNK.items():
            told = "UTF-8" if (file, name) == (CONFIG, "no UTF-8") else "JSON"
            yield Attack(name=f"{name}, {file}", file=file, write=lambda data=data: data, told=told)
    for name, (values, told) in _CONFIGS.items():
        yield Attack(name=name, file=CONFIG, write=lambda values=values: json.dumps(values).encode(), told=told)
    for name, value in _STOPS.items():
        yield Attack(
            name=f"stops: {name}",
            file=GENERATION,
            write=lambda value=value: json.dumps({"eos_token_id": value}).encode(),
            told="eos_token_id",
        )


ATTACKS = tuple(_all())
