"""The pinned file of the o200k vocabulary: its path, and the check of its hash.

In: a path, two environment variables, the user's cache or the current folder. Out: the path of verified bytes. Nothing
here touches the network; `spanloom.tokenizers.o200k.fetch` is the set-up step that does.
"""

import os
from pathlib import Path

from spanloom.errors import TokenizerError
from spanloom.storage.local import cache_folder, sha256_file

ASSET_NAME = "o200k_base.tiktoken"
ASSET_BYTES = 3_613_922
ASSET_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
DEFAULT_ASSET = Path("data/tokenizer") / ASSET_NAME

ASSET_FILE_VARIABLE = "O200K_HARMONY_VOCAB_PATH"
ASSET_DIRECTORY_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"


def locate_asset(path: Path | None = None) -> Path:
    """The asset's expected path: the first that is set of `path`, $O200K_HARMONY_VOCAB_PATH (each a file or a folder)
    and $TIKTOKEN_ENCODINGS_BASE (a folder), whether or not the file exists; otherwise the user's cache if the file
    exists there; otherwise `data/tokenizer/o200k_base.tiktoken` below the current folder."""
    if path is not None:
        return _file_in(path)
    for named in _named_by_variables().values():
        return named
    return cached if (cached := cached_asset()).is_file() else DEFAULT_ASSET


def _named_by_variables() -> dict[str, Path]:
    """Variable → the asset's path, in the order in which they count."""
    named = {}
    if file := os.environ.get(ASSET_FILE_VARIABLE):
        named[ASSET_FILE_VARIABLE] = _file_in(Path(file))
    if directory := os.environ.get(ASSET_DIRECTORY_VARIABLE):
        named[ASSET_DIRECTORY_VARIABLE] = Path(directory) / ASSET_NAME
    return named


def _file_in(path: Path) -> Path:
    return path / ASSET_NAME if path.is_dir() else path


def cached_asset() -> Path:
    """The asset's path in the user's cache ($XDG_CACHE_HOME, or ~/.cache). The file may be missing."""
    return cache_folder() / ASSET_NAME


def fetched_asset() -> Path:
    """Where `fetch-tokenizer` puts the asset by default: inside a checkout of Spanloom, or in the user's cache."""
    return DEFAULT_ASSET if Path("src/spanloom/tokenizers/o200k").is_dir() else cached_asset()


def verify_asset(path: Path) -> Path:
    """Returns `path` if it is the pinned file. Raises TokenizerError if it is missing or has other bytes."""
    remedy = (
        f"run `spanloom fetch-tokenizer` (or `make setup`), or name the file with --tokenizer or {ASSET_FILE_VARIABLE}"
    )
    if chosen := next((variable for variable, named in _named_by_variables().items() if named == path), None):
        remedy += f"; {chosen} names this one: unset it if that is not meant"
    elif path.name != ASSET_NAME:
        remedy += (
            "; this option takes the tokenizer of gpt-oss: for another model, run `spanloom build --model DIR` with "
            "its folder, or `spanloom chat pack --tokenizer tokenizer.json`"
        )
    if not path.is_file():
        raise TokenizerError(f"the tokenizer asset {ASSET_NAME} is missing", where=str(path), remedy=remedy)
    size = path.stat().st_size
    if size != ASSET_BYTES:
        raise TokenizerError(
            f"the tokenizer asset has {size} bytes, not {ASSET_BYTES}: truncated, or another file",
            where=str(path),
            remedy=remedy,
        )
    digest = sha256_file(path)
    if digest != ASSET_SHA256:
        raise TokenizerError(
            f"the tokenizer asset has sha256 {digest}, not {ASSET_SHA256}: it was changed",
            where=str(path),
            remedy=remedy,
        )
    return path
