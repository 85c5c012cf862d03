"""What each token stands for: its bytes, or its name where it is special.

In: the verified asset, and the special tokens that a family adds to it. Out: `O200kVocabulary`. Bytes, not text: a
token may be a part of a character, so pieces are joined before they are decoded. Read off the asset itself, each piece
when it is needed; a test holds it against openai-harmony.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from spanloom.tokenizers.o200k.asset import verify_asset


@dataclass(frozen=True, kw_only=True)
class O200kVocabulary:
    """`pieces[id]` are the bytes of an ordinary token; `special_names[id]` is how a special one is written."""

    pieces: Sequence[bytes]
    special_names: Mapping[int, str] = field(default_factory=dict)

    def is_special(self, token: int) -> bool:
        return not 0 <= token < len(self.pieces)

    def name(self, token: int) -> str:
        """How a special token is written; ids without a name are reserved ones."""
        return self.special_names.get(token, f"<|reserved_{token}|>")

    def piece(self, token: int) -> bytes:
        """The bytes of an ordinary token; nothing for a special one."""
        return b"" if self.is_special(token) else self.pieces[token]


class _Decoded(Sequence[bytes]):
    """Pieces in base64, decoded one by one: of 199,998, a look at some documents needs a few hundred."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._words = words

    def __len__(self) -> int:
        return len(self._words)

    @overload
    def __getitem__(self, token: int) -> bytes: ...
    @overload
    def __getitem__(self, token: slice) -> Sequence[bytes]: ...
    def __getitem__(self, token: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(token, slice):
            return _Decoded(self._words[token])
        return b64decode(self._words[token])


def load_vocabulary(asset: Path, special_names: Mapping[int, str]) -> O200kVocabulary:
    """Reads the asset, which is verified first: a line holds the bytes in base64 and the id, ids without a gap."""
    words = verify_asset(asset).read_bytes().split()
    return O200kVocabulary(pieces=_Decoded(words[::2]), special_names=special_names)
