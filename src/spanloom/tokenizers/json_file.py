"""A file of the tokenizers package (`tokenizer.json`): loaded, and the bytes of each of its tokens.

In: a local file. Out: the package's tokenizer, which neither truncates nor pads; the bytes or the name of each token.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from spanloom.errors import TokenizerError
from spanloom.machine import give_back_freed_memory
from spanloom.tokenizers.trial import is_of_tokenizers, try_tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def load_json_tokenizer(path: Path, *, extra: str) -> Any:
    """The tokenizer of a file, without truncation or padding. `extra`: Spanloom's extra that installs the package.

    Raises TokenizerError for a missing package, and for a missing, invalid or refused (`trial`, `json_limits`) file.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TokenizerError(
            "a tokenizer's JSON file needs the package tokenizers",
            where=str(path),
            remedy=f"pip install 'spanloom[{extra}]'",
        ) from None
    if not path.is_file():
        raise TokenizerError("no tokenizer file", where=str(path), remedy="give a tokenizer.json")
    try_tokenizer(path)
    with tokenizer_faults(path, "not a file of the tokenizers package"):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    give_back_freed_memory()
    return tokenizer


@contextmanager
def tokenizer_faults(path: Path, what: str = "the tokenizer cannot encode a text") -> Iterator[None]:
    """Turns errors of the tokenizers package into TokenizerError."""
    try:
        yield
    except BaseException as fault:
        if not is_of_tokenizers(fault):
            raise
        raise TokenizerError(f"{what}: {fault}", where=str(path), remedy="give a tokenizer.json that works") from None


def part_of(tokenizer: Any, name: str) -> dict[str, Any]:
    """`decoder`, `normalizer` or `pre_tokenizer` of a loaded tokenizer, as its file has it; empty if it has none."""
    part = getattr(tokenizer, name)
    state: dict[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return state


def name_of(tokenizer: Any, vocab_size: int) -> str:
    """The name of a loaded tokenizer in manifests: the type of its model, and the size of its vocabulary."""
    return f"{type(tokenizer.model).__name__.lower()}_{vocab_size}"


class JsonVocabulary:
    """The tokens of a loaded tokenizer. The file's decoder determines how tokens are written.

    `structure`: added tokens to treat as special even if the file does not.
    """

    def __init__(self, tokenizer: Any, structure: Collection[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._written = Written(part_of(tokenizer, "decoder"))
        self._special: dict[int, str] = {
            number: token.content
            for number, token in tokenizer.get_added_tokens_decoder().items()
            if token.special or token.content in structure
        }

    def is_special(self, token: int) -> bool:
        return token in self._special or token < 0 or self._tokenizer.id_to_token(token) is None

    def name(self, token: int) -> str:
        """How a special token is written; for an id without a name, `<|id|>`."""
        return self._special.get(token, f"<|{token}|>")

    def piece(self, token: int) -> bytes:
        """The bytes of an ordinary token; empty for a special one."""
        if self.is_special(token):
            return b""
        return self._written.bytes_of(self._tokenizer.id_to_token(token))


class Written:
    """How a file writes the bytes of ordinary tokens, by its decoder as the file has it."""

    def __init__(self, decoder: Mapping[str, Any]) -> None:
        kinds = {part.get("type") for part in (decoder, *decoder.get("decoders", []))}
        self.byte_level, self.fallback = "ByteLevel" in kinds, "ByteFallback" in kinds
        self.spaces = "Metaspace" in kinds or self.fallback

    def all_bytes(self, written: Sequence[str]) -> list[bytes]:
        """The bytes of many tokens: those of a byte-level vocabulary in one step."""
        joined = "".join(written) if self.byte_level else ""
        if not joined or not BYTES.keys() >= set(joined):
            return [self.bytes_of(text) for text in written]
        data = joined.translate(_LETTERS).encode("latin-1")
        ends = list(accumulate(map(len, written)))
        return [data[end - len(text) : end] for text, end in zip(written, ends, strict=True)]

    def bytes_of(self, written: str) -> bytes:
        """The bytes of a token, from how the vocabulary writes it."""
        if self.byte_level and all(character in BYTES for character in written):
            return bytes(BYTES[character] for character in written)
        if self.fallback and (match := _BYTE.fullmatch(written)):
            return bytes.fromhex(match[1])
        return (written.replace("▁", " ") if self.spaces else written).encode()


def _byte_letters() -> dict[str, int]:
    """Letter → byte of byte-level tokenizers: printable bytes map to themselves, the others to U+0100 and up."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


BYTES = _byte_letters()
_LETTERS = str.maketrans({letter: chr(byte) for letter, byte in BYTES.items()})
