"""What each token of a packed chat dataset stands for: its bytes, or its name where it is special.

In: what a manifest says of its tokenizer, and where that lies. Out: `Vocabulary`, for people who look at blocks.
"""

import json
import re
from pathlib import Path
from typing import Any

from spanloom.dataset.manifest import TokenizerEntry
from spanloom.errors import ChatError
from spanloom.families.chat.markers import CONTROL_STRINGS
from spanloom.families.chat.tokenizer import O200K_NAME, ChatTokenizer, load_tokenizer
from spanloom.tokenizers.o200k import vocabulary as o200k

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class JsonVocabulary:
    """The tokens of a `tokenizers` file. How a token is written there depends on the file's decoder."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_file(str(path))
        said = json.loads(self._tokenizer.to_str())
        decoder = said.get("decoder") or {}
        kinds = {part.get("type") for part in (decoder, *decoder.get("decoders", []))}
        self._byte_level, self._fallback = "ByteLevel" in kinds, "ByteFallback" in kinds
        self._spaces = "Metaspace" in kinds or self._fallback
        # A control string is structure here, whether or not the file calls it special.
        added = said.get("added_tokens", [])
        self._special: dict[int, str] = {
            token["id"]: token["content"] for token in added if token["special"] or token["content"] in CONTROL_STRINGS
        }

    def is_special(self, token: int) -> bool:
        return token in self._special or token < 0 or self._tokenizer.id_to_token(token) is None

    def name(self, token: int) -> str:
        """How a special token is written; an id without a token says its number."""
        return self._special.get(token, f"<|{token}|>")

    def piece(self, token: int) -> bytes:
        """The bytes of an ordinary token; nothing for a special one."""
        if self.is_special(token):
            return b""
        written: str = self._tokenizer.id_to_token(token)
        if self._byte_level and all(character in _BYTES for character in written):
            return bytes(_BYTES[character] for character in written)
        if self._fallback and (found := _BYTE.fullmatch(written)):
            return bytes.fromhex(found[1])
        return (written.replace("▁", " ") if self._spaces else written).encode()


def load_vocabulary(made: TokenizerEntry, tokenizer: Path | None) -> "JsonVocabulary | o200k.O200kVocabulary":
    """The vocabulary of the tokenizer that a manifest records as `made`, from where it lies now."""
    loaded = tokenizer_of(made, tokenizer)
    if loaded.name != O200K_NAME:
        return JsonVocabulary(loaded.path)
    names = {token: name for name, token in loaded.as_dict()["markers"].items()}
    return o200k.load_vocabulary(loaded.path, names)


def tokenizer_of(made: TokenizerEntry, tokenizer: Path | None) -> ChatTokenizer:
    """The tokenizer at `tokenizer`, None for the o200k asset, which must be what a manifest records as `made`.

    Raises ChatError for another one.
    """
    loaded = load_tokenizer(tokenizer)
    if loaded.sha256 != made.sha256 or loaded.markers.eos != made.eod:
        raise ChatError(
            f"the tokens are of another tokenizer: {made.name}, sha256 {made.sha256}; this is {loaded.name}, "
            f"sha256 {loaded.sha256}",
            where=str(loaded.path),
            remedy="name the one that the dataset was packed with: --tokenizer",
        )
    return loaded


def _byte_letters() -> dict[str, int]:
    """The letters that byte-level tokenizers write for bytes: those that print are themselves, the others U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES = _byte_letters()
