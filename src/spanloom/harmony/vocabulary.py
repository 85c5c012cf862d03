"""What each token stands for: its bytes, or its name where it is special.

In: the verified asset. Out: `Vocabulary`. Bytes, not text: a token may be a part of a character, and only whoever shows
it can say so. Read off the asset itself, in a fifth of a second; a test holds it against openai-harmony.
"""

import base64
from dataclasses import dataclass
from pathlib import Path

from spanloom.harmony.tokenizer import CALL, CHANNEL, CONSTRAIN, END, EOD, MESSAGE, RETURN, START, verify_asset

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


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """`pieces[id]` are the bytes of an ordinary token."""

    pieces: tuple[bytes, ...]

    def is_special(self, token: int) -> bool:
        return not 0 <= token < len(self.pieces)

    def name(self, token: int) -> str:
        """How a special token is written; ids without a name are reserved ones."""
        return SPECIAL_NAMES.get(token, f"<|reserved_{token}|>")

    def piece(self, token: int) -> bytes:
        """The bytes of an ordinary token; nothing for a special one."""
        return b"" if self.is_special(token) else self.pieces[token]


def load_vocabulary(asset: Path) -> Vocabulary:
    """Reads the asset, which is verified first: a line holds the bytes in base64 and the id, ids without a gap."""
    lines = verify_asset(asset).read_bytes().split()
    return Vocabulary(pieces=tuple(base64.b64decode(word) for word in lines[::2]))
