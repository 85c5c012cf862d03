"""What each token of a packed chat dataset stands for: its bytes, or its name where it is special.

In: the tokenizer that made the tokens. Out: `Vocabulary`, for people who look at blocks.
"""

import json
import re
from pathlib import Path
from typing import Any

from spanloom.chat.tokenizer import load_tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """The tokens of a `tokenizers` file. How a token is written there depends on the file's decoder."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        said = json.loads(tokenizer.to_str())
        decoder = said.get("decoder") or {}
        kinds = {part["type"] for part in (decoder, *decoder.get("decoders", [])) if "type" in part}
        self._byte_level, self._fallback = "ByteLevel" in kinds, "ByteFallback" in kinds
        self._spaces = "Metaspace" in kinds or self._fallback
        self._special = {token["id"]: token["content"] for token in said.get("added_tokens", []) if token["special"]}

    def is_special(self, token: int) -> bool:
        return token in self._special or self._tokenizer.id_to_token(token) is None

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


def load_vocabulary(made: dict[str, Any], tokenizer: Path | None) -> Vocabulary:
    """The vocabulary of the tokenizer that is recorded as `made` in a manifest. Raises ChatError for another one."""
    loaded = load_tokenizer(tokenizer, made=made)
    return Vocabulary(loaded.tokenizer)


def _byte_letters() -> dict[str, int]:
    """GPT-2's alphabet: bytes that print stand for themselves, the others for the letters from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES = _byte_letters()
