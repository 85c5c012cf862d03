"""Where the tokenizer asset is looked for, and where it is fetched to."""

from pathlib import Path

import pytest

from spanloom.errors import TokenizerError
from spanloom.tokenizers.o200k.asset import DEFAULT_ASSET, cached_asset, fetched_asset, locate_asset, verify_asset


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a cache of its own beside it; no variable says where the asset is."""
    for name in ("O200K_HARMONY_VOCAB_PATH", "TIKTOKEN_ENCODINGS_BASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_variables_come_before_the_cache_and_the_cache_before_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert locate_asset() == DEFAULT_ASSET == Path("data/tokenizer/o200k_base.tiktoken")
    cached = folder / "cache/spanloom/o200k_base.tiktoken"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert locate_asset() == cached_asset() == cached
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", "/encodings")
    assert locate_asset() == Path("/encodings/o200k_base.tiktoken")
    monkeypatch.setenv("O200K_HARMONY_VOCAB_PATH", "/vocabulary")
    assert locate_asset() == Path("/vocabulary")
    assert locate_asset(Path("/named")) == Path("/named")


def test_a_relative_cache_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cached_asset() == Path("/home/somebody/.cache/spanloom/o200k_base.tiktoken")


def test_it_is_fetched_into_a_checkout_or_the_cache(folder: Path) -> None:
    assert fetched_asset() == cached_asset()
    Path("src/spanloom/tokenizers/o200k").mkdir(parents=True)
    assert fetched_asset() == DEFAULT_ASSET


def test_a_variable_may_name_the_folder_and_is_named_by_the_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, other in (
        ("O200K_HARMONY_VOCAB_PATH", "TIKTOKEN_ENCODINGS_BASE"),
        ("TIKTOKEN_ENCODINGS_BASE", "O200K_HARMONY_VOCAB_PATH"),
    ):
        monkeypatch.delenv(other, raising=False)
        monkeypatch.setenv(variable, str(folder))
        assert locate_asset() == folder / "o200k_base.tiktoken"
        with pytest.raises(TokenizerError, match="missing") as raised:
            verify_asset(locate_asset())
        assert f"{variable} names this one" in raised.value.remedy
        assert f"{other} names" not in raised.value.remedy
    with pytest.raises(TokenizerError) as raised:
        verify_asset(folder / "given.tiktoken")
    assert "names this one" not in raised.value.remedy
