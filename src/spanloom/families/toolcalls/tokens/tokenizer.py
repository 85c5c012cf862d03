"""The tokenizer that samples are encoded with: a `tokenizer.json`, or the folder of one."""

from pathlib import Path

from spanloom.errors import TokenizerError
from spanloom.tokenizers.encoding import JsonTokenizer

FILE_NAME = "tokenizer.json"
EXTRA = "toolcalls"


def load_tokenizer(place: Path) -> JsonTokenizer:
    """Raises TokenizerError for a place that holds no `tokenizer.json`."""
    return JsonTokenizer(place / FILE_NAME if place.is_dir() else place, extra=EXTRA)


def eod_id(tokenizer: JsonTokenizer, eod: str) -> int:
    """The id of the token that ends a document. Raises TokenizerError where there is none of that name."""
    if (token := tokenizer.id_of(eod)) is None:
        raise TokenizerError(
            f"the tokenizer has no token {eod!r}", where=str(tokenizer.path), remedy="name one that it has: --eod"
        )
    return token
