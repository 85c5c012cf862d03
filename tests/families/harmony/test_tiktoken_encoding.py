"""tiktoken and openai-harmony over the pinned asset are one tokenizer; where they are not, it is found and said."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai_harmony
import pytest
import tiktoken
from tiktoken_ext import openai_public

from spanloom.errors import TokenizerError
from spanloom.families.harmony.steps import verify_tokenizer as step
from spanloom.families.harmony.tiktoken_encoding import first_difference, load_tiktoken, probe_texts
from spanloom.families.harmony.tokenizer import SPECIAL_NAMES, VOCAB_SIZE


@pytest.fixture(scope="module")
def second(asset: Path) -> tiktoken.Encoding:
    return load_tiktoken(asset)


@pytest.fixture
def unloaded(asset: Path, tmp_path: Path) -> Path:
    """The asset at a path from which this process has not loaded it."""
    link = tmp_path / "asset" / asset.name
    link.parent.mkdir()
    link.symlink_to(asset)
    return link


def test_nothing_is_fetched_and_nothing_is_left_behind(
    unloaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("somebody goes to the network")

    monkeypatch.setattr(socket, "socket", refuse)
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    loader = openai_public.load_tiktoken_bpe
    assert load_tiktoken(unloaded).n_vocab == VOCAB_SIZE
    assert list(cache.iterdir()) == []
    assert openai_public.load_tiktoken_bpe is loader


def test_the_two_are_one_tokenizer(second: tiktoken.Encoding, encoding: openai_harmony.HarmonyEncoding) -> None:
    assert first_difference(encoding, second) is None
    assert {second.encode_single_token(name) for name in SPECIAL_NAMES.values()} == set(SPECIAL_NAMES)


def test_probe_texts_are_of_many_scripts() -> None:
    texts = "".join(probe_texts())
    for letter in "aäßçłжΩאعहก中かカ한ა𝔸🎉𐌰\u200d":
        assert letter in texts, hex(ord(letter))


def altered(asset: Path, change: Callable[[dict[str, Any]], object]) -> tiktoken.Encoding:
    """tiktoken's encoding with something in its definition changed."""
    made: list[dict[str, Any]] = []
    real = tiktoken.Encoding
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiktoken, "Encoding", lambda **definition: made.append(definition))
        load_tiktoken(asset)
    definition = {name: dict(said) if isinstance(said, dict) else said for name, said in made[0].items()}
    change(definition)
    return real(**definition)


def swap_two_words(definition: dict[str, Any]) -> None:
    ranks = definition["mergeable_ranks"]
    one, other = b" Wasser", b" water"
    ranks[one], ranks[other] = ranks[other], ranks[one]


def pattern_of_another_vocabulary(definition: dict[str, Any]) -> None:
    definition["pat_str"] = r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"


def a_special_token_renamed(definition: dict[str, Any]) -> None:
    definition["special_tokens"]["<|begin|>"] = definition["special_tokens"].pop("<|start|>")


def two_special_tokens_swapped(definition: dict[str, Any]) -> None:
    special = definition["special_tokens"]
    special["<|end|>"], special["<|message|>"] = special["<|message|>"], special["<|end|>"]


def a_smaller_vocabulary(definition: dict[str, Any]) -> None:
    del definition["special_tokens"][f"<|reserved_{VOCAB_SIZE - 1}|>"]


DIFFERENCES: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (swap_two_words, r"^id \d+ is b' (Wasser|water)' in openai-harmony and something else in tiktoken"),
    (pattern_of_another_vocabulary, r"^openai-harmony encodes '(.|\n)+' as \[.*\], tiktoken as \["),
    (a_special_token_renamed, r"^id 200006 is b'<\|start\|>' in openai-harmony"),
    (two_special_tokens_swapped, r"^id 200007 is b'<\|end\|>' in openai-harmony"),
    (a_smaller_vocabulary, r"^tiktoken has a vocabulary of 201087, not 201088\n"),
]


@pytest.mark.parametrize(("change", "message"), DIFFERENCES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_difference_stops_with_its_first_place(
    change: Callable[[dict[str, Any]], None],
    message: str,
    asset: Path,
    unloaded: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = altered(unloaded, change)
    monkeypatch.setattr(step, "load_tiktoken", lambda _: other)
    with pytest.raises(TokenizerError, match=message):
        step.verify_tokenizer(asset)


def test_a_tiktoken_that_wants_another_file_is_refused(unloaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_another_file() -> dict[str, Any]:
        return {"mergeable_ranks": openai_public.load_tiktoken_bpe("https://somewhere", expected_hash="0" * 64)}

    monkeypatch.setitem(openai_public.ENCODING_CONSTRUCTORS, "o200k_harmony", of_another_file)
    loader = openai_public.load_tiktoken_bpe
    with pytest.raises(TokenizerError, match=r"of another file \(sha256 0{64}\)(.|\n)*install the pinned tiktoken"):
        load_tiktoken(unloaded)
    assert openai_public.load_tiktoken_bpe is loader


def test_a_wrong_asset_is_refused(asset: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copyfile(asset, tmp_path / asset.name))
    with copy.open("r+b") as stream:
        stream.write(b"x")
    with pytest.raises(TokenizerError, match="it was changed"):
        load_tiktoken(copy)


def test_the_step_says_what_it_proved_with_what(asset: Path) -> None:
    result = step.run(tokenizer=str(asset))
    assert (result["vocab_size"], result["eod"]) == (201_088, 199_999)
    assert result["proven_by"] == {"openai-harmony": "0.0.8", "tiktoken": tiktoken.__version__}
    assert result["probe_texts"] > 2000
