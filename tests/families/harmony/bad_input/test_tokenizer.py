"""A tokenizer asset that is missing or changed stops a build before any work."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spanloom.errors import TokenizerError
from support.bad_builds import build_it, cut_short


def lost(path: Path) -> None:
    path.unlink()


def one_byte_changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1_000_000] ^= 1
    path.write_bytes(data)


TOKENIZER_FAULTS = [
    pytest.param(lost, r"the tokenizer asset o200k_base\.tiktoken is missing", id="missing"),
    pytest.param(cut_short, r"the tokenizer asset has 3613822 bytes, not 3613922: truncated", id="truncated"),
    pytest.param(
        one_byte_changed,
        r"the tokenizer asset has sha256 [0-9a-f]{64}, not 446a9538[0-9a-f]{56}: it was changed",
        id="one byte changed",
    ),
]


@pytest.mark.parametrize(("break_it", "message"), TOKENIZER_FAULTS)
def test_a_wrong_tokenizer_asset_stops_before_any_work(
    break_it: Callable[[Path], None], message: str, asset: Path, good: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copyfile(asset, tmp_path / "o200k_base.tiktoken"))
    break_it(copy)
    said = rf"^{message}(.|\n)*where: {re.escape(str(copy))}\n  remedy: run `spanloom fetch-tokenizer`"
    with pytest.raises(TokenizerError, match=said):
        build_it(good, tmp_path / "out", shards=4, tokenizer=copy)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("variable", ["O200K_HARMONY_VOCAB_PATH", "TIKTOKEN_ENCODINGS_BASE"])
def test_an_environment_variable_that_names_no_asset_is_no_reason_to_look_elsewhere(
    variable: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("O200K_HARMONY_VOCAB_PATH")
    monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    with pytest.raises(TokenizerError, match=r"is missing\n  where: .*/nowhere"):
        build_it(good, tmp_path / "out", shards=4)
    assert not (tmp_path / "out").exists()
