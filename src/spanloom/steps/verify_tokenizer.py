"""Step 1: is the tokenizer asset the pinned file, and does openai-harmony take it?

In: a path, or the usual places. Out: the verified path and what is to be recorded of it.
"""

from dataclasses import dataclass
from pathlib import Path

from spanloom.errors import TokenizerError
from spanloom.harmony import tokenizer
from spanloom.o200k.asset import ASSET_SHA256, locate_asset, verify_asset


@dataclass(frozen=True, kw_only=True)
class VerifiedTokenizer:
    """An asset that is right."""

    path: Path
    sha256: str
    vocab_size: int
    eod: int


def verify_tokenizer(path: Path | None = None) -> VerifiedTokenizer:
    """Verifies the asset's bytes, loads the encoding and tries each special id. Raises TokenizerError."""
    asset = verify_asset(locate_asset(path))
    encoding = tokenizer.load_encoding(asset)
    for token, text in tokenizer.SPECIAL_NAMES.items():
        if (found := encoding.encode(text, allowed_special="all")) != [token]:
            raise TokenizerError(
                f"openai-harmony encodes {text} as {found}, not [{token}]",
                where=str(asset),
                remedy="install the pinned openai-harmony (constraints.txt)",
            )
    return VerifiedTokenizer(path=asset, sha256=ASSET_SHA256, vocab_size=tokenizer.VOCAB_SIZE, eod=tokenizer.EOD)
