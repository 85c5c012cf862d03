"""The o200k Harmony tokenizer: openai-harmony's encoding over the pinned asset, and its special ids.

In: the asset. Out: openai-harmony's encoding, made from verified bytes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from spanloom.errors import TokenizerError
from spanloom.storage.temporaries import temporary_folder
from spanloom.tokenizers.o200k.asset import ASSET_DIRECTORY_VARIABLE, ASSET_NAME, verify_asset

if TYPE_CHECKING:  # imported only when the encoding is loaded: most users of the ids do not need it
    from openai_harmony import HarmonyEncoding

NAME = "o200k_harmony"
VOCAB_SIZE = 201_088  # padded; ids 200013 … 201087 are reserved specials
EOD = 199_999  # <|endoftext|>
RETURN, CONSTRAIN, CHANNEL, START, END, MESSAGE, CALL = 200002, 200003, 200005, 200006, 200007, 200008, 200012

SPECIAL_NAMES = {
    199_998: "<|startoftext|>",
    EOD: "<|endoftext|>",
    RETURN: "<|return|>",
    CONSTRAIN: "<|constrain|>",
    CHANNEL: "<|channel|>",
    START: "<|start|>",
    END: "<|end|>",
    MESSAGE: "<|message|>",
    CALL: "<|call|>",
}


def load_encoding(asset: Path) -> "HarmonyEncoding":
    """openai-harmony's gpt-oss encoding from the file `asset`, which is verified each time; loaded once per process.

    Raises TokenizerError if the asset is another file, or a special token has another id than in this module.
    """
    return _loaded(verify_asset(asset).absolute())


@cache
def _loaded(asset: Path) -> "HarmonyEncoding":
    """openai-harmony takes only a *directory*, from an environment variable; without it, it uses the network.

    The directory is the verified file's own folder if the file has its expected name; otherwise a temporary folder with
    a symlink of that name.
    """
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    before = os.environ.get(ASSET_DIRECTORY_VARIABLE)
    with _folder_of(asset) as directory:
        os.environ[ASSET_DIRECTORY_VARIABLE] = directory
        try:
            encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
        finally:
            if before is None:
                del os.environ[ASSET_DIRECTORY_VARIABLE]
            else:
                os.environ[ASSET_DIRECTORY_VARIABLE] = before
    for token, text in SPECIAL_NAMES.items():
        if (ids := encoding.encode(text, allowed_special="all")) != [token]:
            raise TokenizerError(
                f"openai-harmony encodes {text} as {ids}, not [{token}]",
                where=str(asset),
                remedy="install the pinned openai-harmony (constraints.txt)",
            )
    return encoding


@contextmanager
def _folder_of(asset: Path) -> Iterator[str]:
    if asset.name == ASSET_NAME:
        yield str(asset.parent)
        return
    with temporary_folder("spanloom-tokenizer-") as directory:
        Path(directory, ASSET_NAME).symlink_to(asset.resolve())
        yield directory
