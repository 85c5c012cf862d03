"""The tokenizer that traces are encoded with: a `tokenizer.json`, and its end-of-document token.

In: a local file. Out: the tokenizer; the id of the EOD.
"""

import json
from pathlib import Path
from typing import Any

from spanloom.errors import OptionError, TokenizerError
from spanloom.tokenizers.encoding import JsonTokenizer

CONFIG_NAME = "tokenizer_config.json"
"""The file beside a tokenizer.json that names the end-of-document token."""

_USUAL_EODS = ("<eos>", "<|endoftext|>", "</s>")


def load_tokenizer(path: Path) -> JsonTokenizer:
    """Loads a `tokenizer.json`. Raises TokenizerError if it is missing or invalid."""
    return JsonTokenizer(path, extra="traces")


def find_eod(tokenizer: JsonTokenizer, named: str | None = None) -> dict[str, Any]:
    """The end-of-document token: its `text` and `id`, as in a manifest.

    It is `named` if given, otherwise `eos_token` of the `tokenizer_config.json` beside the file, otherwise the usual
    one. Raises OptionError if the tokenizer lacks the token, or has none or several of the usual ones.
    """
    text = named if named is not None else _configured(tokenizer.path)
    if text is None:
        usual = [name for name in _USUAL_EODS if tokenizer.id_of(name) is not None]
        if len(usual) != 1:
            raise OptionError(
                f"which token ends a document is not known: there is no {CONFIG_NAME} beside the tokenizer, and "
                + (f"it has {', '.join(usual)}" if usual else f"it has none of {', '.join(_USUAL_EODS)}"),
                where=str(tokenizer.path),
                remedy="name the token: --eod TOKEN",
            )
        text = usual[0]
    if (token := tokenizer.id_of(text)) is None:
        raise OptionError(f"the tokenizer has no token {text!r}", where=str(tokenizer.path), remedy="--eod TOKEN")
    return {"text": text, "id": token}


def _configured(path: Path) -> str | None:
    config = path.with_name(CONFIG_NAME)
    if not config.is_file():
        return None
    try:
        token = json.loads(config.read_bytes()).get("eos_token")
    except (ValueError, AttributeError) as fault:
        raise TokenizerError(f"{CONFIG_NAME} cannot be read: {fault}", where=str(config)) from None
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None
