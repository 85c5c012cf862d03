"""Hostile files of a model's folder end in one line that names the file and the key, in a stated time."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from spanloom.errors import SpanloomError, TokenizerError
from spanloom.families.models.model import load_model
from spanloom.tokenizers import json_file, trial
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.tokenizers.json_ids import IdEncoder, fast_ahead
from support.chat_models import small_tokenizer, write_model
from support.model_attacks import ATTACKS, Attack
from support.nightly import drawn
from tokenizers import Tokenizer

SECONDS = 360.0
"""Twice the limit of the process, so that a file that would never end fails the test. Alone the slowest takes 4 s."""


@pytest.mark.parametrize("attack", ATTACKS[:: drawn(1, 5)], ids=lambda attack: attack.name)
def test_a_hostile_file_ends_in_one_line_with_file_and_key(attack: Attack, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / attack.file).write_bytes(attack.write())
    began = time.monotonic()
    with pytest.raises(SpanloomError) as refused:
        model = load_model(folder)
        assert attack.text is not None, "it was loaded"
        model.encoder.ids(attack.text)
    assert time.monotonic() - began < SECONDS
    assert refused.value.where == str(folder / attack.file)
    assert attack.told in refused.value.what
    what, where, remedy = str(refused.value).split("\n")
    assert len(what) < 400
    assert where.endswith(attack.file)
    assert remedy.startswith("  remedy: ")


def test_there_are_72_of_them_and_each_is_another() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 72


def test_the_files_that_are_right_load(tmp_path: Path) -> None:
    assert load_model(write_model(tmp_path / "model")).tokenizer.vocab_size > 256


@pytest.mark.parametrize("text", ["b" * 60 + "!", "b" * 5_000 + "c"])
def test_a_pattern_that_fails_at_a_row_names_the_file(tmp_path: Path, text: str) -> None:
    """The texts that are tried have no `b` in a row: the pattern fails at a row of the data."""
    tokenizer = small_tokenizer()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    split = '{"type": "Split", "pattern": {"Regex": "(b+)+$"}, "behavior": "Isolated", "invert": false}'
    values = path.read_text()
    begin = values.index('"pre_tokenizer": ') + len('"pre_tokenizer": ')
    end = values.index('"post_processor"')
    path.write_text(f'{values[:begin]}{{"type": "Sequence", "pretokenizers": [{split}]}},{values[end:]}')
    began = time.monotonic()
    encoder = IdEncoder(JsonTokenizer(path, extra="chat"), fast_ahead(path))
    with pytest.raises(TokenizerError) as refused:
        encoder.ids(text)
    assert refused.value.where == str(path)
    assert time.monotonic() - began < SECONDS


def test_a_file_is_loaded_within_limits_before_it_is_loaded_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token far away ends the process that loads it: this process must not be the first."""
    path = tmp_path / "tokenizer.json"
    small_tokenizer().save(str(path))
    monkeypatch.setattr(trial, "_tried", set())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "MEMORY", 1 << 20)

    def load(_path: str) -> Tokenizer:
        raise AssertionError("it was loaded here")

    monkeypatch.setattr(Tokenizer, "from_file", load)
    with pytest.raises(SpanloomError):
        json_file.load_json_tokenizer(path, extra="chat")


@pytest.mark.parametrize("cached", [True, False])
def test_a_file_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cached: bool) -> None:
    """By one process, or by all that have the user's cache, which need not be there."""
    path, cache = tmp_path / "tokenizer.json", tmp_path / "cache"
    small_tokenizer().save(str(path))
    if not cached:
        cache.write_text("a file in its place")
    monkeypatch.setattr(trial, "_tried", set())
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    json_file.load_json_tokenizer(path, extra="chat")

    def start(*_: object) -> None:
        raise AssertionError("it was tried again")

    monkeypatch.setattr(trial, "TemplateProcess", start)
    json_file.load_json_tokenizer(path, extra="chat")
    monkeypatch.setattr(trial, "_tried", set())  # as in the next process
    with nullcontext() if cached else pytest.raises(AssertionError):
        json_file.load_json_tokenizer(path, extra="chat")
    path.write_text(path.read_text() + " ")
    with pytest.raises(AssertionError):
        json_file.load_json_tokenizer(path, extra="chat")
