"""Laws of the two tokenizers: markers are one token and no text makes one, EOS closes a record, text comes back."""

import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openai_harmony
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.dataset.manifest import TokenizerEntry
from spanloom.errors import ChatError, TokenizerError
from spanloom.families.chat.blocks.markers import CONTROL_STRINGS, find_markers
from spanloom.families.chat.root.vocabulary import load_vocabulary
from spanloom.families.chat.tokenizer import ChatTokenizer, load_tokenizer
from support.nightly import drawn
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

TRANSCRIPT = "<|SYSTEM|>Kurz.<|END|><|USER|>Zwei\nplus 2?<|END|><|ASSISTANT|>Vier 🎉<|END|>"


def save(path: Path, tokenizer: Tokenizer) -> Path:
    tokenizer.save(str(path))
    return path


def byte_level(special: tuple[str, ...] = CONTROL_STRINGS) -> Tokenizer:
    """Every byte a token, and the control strings: small, and text always comes back."""
    tokenizer = Tokenizer(
        models.BPE(vocab={letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return tokenizer


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return load_tokenizer(save(tmp_path_factory.mktemp("tokenizer") / "bytes.json", byte_level()))


@pytest.fixture(scope="module")
def o200k(asset: Path) -> ChatTokenizer:
    return load_tokenizer(asset)


@pytest.fixture(scope="module", params=["own", "o200k"])
def tokenizer(request: pytest.FixtureRequest) -> ChatTokenizer:
    found: ChatTokenizer = request.getfixturevalue(request.param)
    return found


@cache
def vocabulary_of(tokenizer: ChatTokenizer) -> Any:
    names = ("name", "sha256", "vocab_size")
    entry = TokenizerEntry(**{name: getattr(tokenizer, name) for name in names}, eod=tokenizer.markers.eos)
    return load_vocabulary(entry, tokenizer.path)


def text_of(tokenizer: ChatTokenizer, tokens: list[int]) -> str:
    """Text again, as people are shown the tokens of blocks."""
    shown = vocabulary_of(tokenizer)
    return b"".join(
        shown.name(token).encode() if shown.is_special(token) else shown.piece(token) for token in tokens
    ).decode()


texts = st.text(max_size=20)
records = st.lists(st.one_of(texts, st.sampled_from(CONTROL_STRINGS)), max_size=8).map("".join)


def test_the_bytes_of_a_record_are_its_tokens(own: ChatTokenizer) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    a, b = alphabet.index("a"), alphabet.index("b")
    pad, eos, system, user, assistant, end = range(256, 262)
    encoded = own.encode(["<|USER|>ab<|END|>", "", "<|EOS|>", "<|PAD|>a<|SYSTEM|><|ASSISTANT|>"])
    assert encoded.tokens.tolist() == [user, a, b, end, eos, eos, eos, eos, pad, a, system, assistant, eos]
    assert encoded.lengths.tolist() == [5, 1, 2, 5]
    assert (encoded.tokens.dtype, encoded.lengths.dtype) == (np.int32, np.int32)
    assert own.vocab_size == 262
    assert own.name == f"bpe_{own.vocab_size}"


def test_o200k_has_the_control_strings_above_all_of_harmonys_ids(o200k: ChatTokenizer) -> None:
    assert o200k.as_dict()["markers"] == {name: 201_088 + number for number, name in enumerate(CONTROL_STRINGS)}
    assert o200k.vocab_size == 201_094


@settings(max_examples=drawn(100, 33))
@given(st.lists(records, max_size=5))
def test_o200k_is_harmonys_encoding_of_the_text_between_the_markers(
    o200k: ChatTokenizer, encoding: openai_harmony.HarmonyEncoding, given_: list[str]
) -> None:
    ids = {name: 201_088 + number for number, name in enumerate(CONTROL_STRINGS)}
    wanted, lengths = [], []
    for record in given_:
        tokens, rest = [], record
        while rest:
            control = min(ids, key=lambda name: rest.find(name) % (len(rest) + 1))
            before, found, rest = rest.partition(control)
            tokens += encoding.encode(before, disallowed_special=()) + ([ids[control]] if found else [])
        wanted += [*tokens, ids["<|EOS|>"]]
        lengths.append(len(tokens) + 1)
    encoded = o200k.encode(given_)
    assert encoded.tokens.tolist() == wanted
    assert encoded.lengths.tolist() == lengths


@settings(max_examples=drawn(100, 33))
@given(st.lists(records, max_size=5))
def test_every_record_is_closed_by_eos_and_comes_back_as_text(tokenizer: ChatTokenizer, given_: list[str]) -> None:
    encoded = tokenizer.encode(given_)
    ends = np.cumsum(encoded.lengths)
    assert encoded.tokens.size == encoded.lengths.sum()
    assert (encoded.lengths >= 1).all()
    for record, end, length in zip(given_, ends.tolist(), encoded.lengths.tolist(), strict=True):
        tokens = encoded.tokens[end - length : end]
        assert text_of(tokenizer, tokens.tolist()) == record + "<|EOS|>"
    assert tokenizer.count(given_) == (encoded.lengths - 1).tolist()


@settings(max_examples=drawn(100, 33))
@given(texts)
def test_text_makes_no_marker(tokenizer: ChatTokenizer, text: str) -> None:
    if not any(control in text for control in CONTROL_STRINGS):
        assert find_markers(tokenizer.encode([text]).tokens, tokenizer.markers).positions.size == 1  # the EOS


def test_no_records_are_no_tokens(tokenizer: ChatTokenizer) -> None:
    encoded = tokenizer.encode([])
    assert (encoded.tokens.size, encoded.lengths.size) == (0, 0)


def test_a_record_that_is_no_text_is_named(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(ValueError, match="record 11 is not text but null"):
        tokenizer.encode(["a", None, "b"], first=10)
    with pytest.raises(ChatError, match="record 6 holds half a character"):
        tokenizer.encode(["a", "\ud800"], first=5)


def test_a_tokenizer_travels_to_a_worker_by_its_file(tokenizer: ChatTokenizer) -> None:
    other = pickle.loads(pickle.dumps(tokenizer))
    assert other.encode([TRANSCRIPT]).tokens.tolist() == tokenizer.encode([TRANSCRIPT]).tokens.tolist()
    assert other.as_dict() == tokenizer.as_dict()


def test_missing_markers_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "t.json", byte_level(("<|EOS|>", "<|USER|>", "<|END|>")))
    with pytest.raises(ValueError, match=r"no id for <\|SYSTEM\|>, <\|ASSISTANT\|>(?s:.*)t\.json"):
        load_tokenizer(path)


def test_pad_may_be_missing(tmp_path: Path) -> None:
    without = load_tokenizer(save(tmp_path / "t.json", byte_level(CONTROL_STRINGS[1:])))
    assert without.markers.pad is None
    assert without.as_dict()["markers"]["<|PAD|>"] is None


def test_markers_that_share_an_id_are_named(tmp_path: Path) -> None:
    described = json.loads(byte_level().to_str())
    vocabulary = described["model"]["vocab"]
    vocabulary["<|USER|>"] = vocabulary["<|SYSTEM|>"] = 258
    described["added_tokens"] = [t for t in described["added_tokens"] if t["content"] not in ("<|USER|>", "<|SYSTEM|>")]
    (tmp_path / "t.json").write_text(json.dumps(described))
    with pytest.raises(ChatError, match=r"share an id: .*<\|(USER|SYSTEM)\|> 258"):
        load_tokenizer(tmp_path / "t.json")


def test_markers_that_share_an_id_with_text_are_named(tmp_path: Path) -> None:
    described = json.loads(byte_level().to_str())
    vocabulary = described["model"]["vocab"]
    vocabulary["a"] = 259  # the id of <|USER|>
    (tmp_path / "t.json").write_text(json.dumps(described))
    with pytest.raises(ChatError, match=r"share an id with a piece of text: <\|USER\|> 259 with 'a'"):
        load_tokenizer(tmp_path / "t.json")


def test_markers_that_text_does_not_reach_are_named(tmp_path: Path) -> None:
    described = json.loads(byte_level(CONTROL_STRINGS[:-1]).to_str())
    described["model"]["vocab"]["<|END|>"] = 300  # in the vocabulary, but no merge leads there
    (tmp_path / "t.json").write_text(json.dumps(described))
    with pytest.raises(ChatError, match=r"has ids for <\|END\|>, but does not find them in text"):
        load_tokenizer(tmp_path / "t.json")


@pytest.mark.parametrize("limit", ["truncation", "padding", "post_processor"])
def test_what_a_file_was_made_for_does_not_cut_or_fill_records(tmp_path: Path, limit: str) -> None:
    tokenizer: Any = byte_level()
    if limit == "truncation":
        tokenizer.enable_truncation(4)
    elif limit == "padding":
        tokenizer.enable_padding(length=400)
    else:
        from tokenizers.processors import TemplateProcessing

        tokenizer.post_processor = TemplateProcessing(single="<|SYSTEM|> $A", special_tokens=[("<|SYSTEM|>", 258)])
    plain = load_tokenizer(save(tmp_path / "plain.json", byte_level()))
    assert (
        load_tokenizer(save(tmp_path / "t.json", tokenizer)).encode([TRANSCRIPT]).tokens.tolist()
        == plain.encode([TRANSCRIPT]).tokens.tolist()
    )


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="does not exist"):
        load_tokenizer(tmp_path / "missing.json")
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(TokenizerError, match="the key model is missing"):
        load_tokenizer(tmp_path / "t.json")
    (tmp_path / "o200k_base.tiktoken").write_text("YQ== 0\n")
    with pytest.raises(TokenizerError, match="truncated, or another file"):
        load_tokenizer(tmp_path)


def test_markers_that_other_text_can_become_are_refused(tmp_path: Path) -> None:
    loose = byte_level(())
    loose.normalizer = normalizers.Lowercase()
    loose.add_special_tokens([AddedToken(name, special=True, normalized=True) for name in CONTROL_STRINGS])
    with pytest.raises(ChatError, match=r"(?s)normalized text.*<\|END\|>|<\|END\|>.*normalized text"):
        load_tokenizer(save(tmp_path / "loose.json", loose))
    strict = byte_level()
    strict.normalizer = normalizers.Lowercase()
    tokenizer = load_tokenizer(save(tmp_path / "strict.json", strict))
    assert tokenizer.markers.end not in tokenizer.encode(["<|end|>"]).tokens.tolist()
