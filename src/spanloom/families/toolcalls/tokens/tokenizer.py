"""Loads the tokenizer for samples: a `tokenizer.json`, or the folder that contains it."""

from pathlib import Path

from spanloom.errors import TokenizerError
from spanloom.tokenizers.encoding import JsonTokenizer

FILE_NAME = "tokenizer.json"
EXTRA = "toolcalls"


def load_tokenizer(place: Path) -> JsonTokenizer:
    """Loads the tokenizer of a file or folder. Raises TokenizerError if there is no readable `tokenizer.json`."""
    return JsonTokenizer(place / FILE_NAME if place.is_dir() else place, extra=EXTRA)


def eod_id(tokenizer: JsonTokenizer, eod: str) -> int:
    """The id of the token `eod`, which ends a document. Raises TokenizerError if the tokenizer has no such token."""
    if (token := tokenizer.id_of(eod)) is None:
        raise TokenizerError(
            f"the tokenizer has no token {eod!r}", where=str(tokenizer.path), remedy="name one that it has: --eod"
        )
    return token
