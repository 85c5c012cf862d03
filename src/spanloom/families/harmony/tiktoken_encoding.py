"""tiktoken's o200k Harmony tokenizer over the pinned asset, and its comparison with openai-harmony's.

In: the asset; openai-harmony's encoding. Out: tiktoken's encoding, made from verified bytes without the network; the
first difference between the two.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from spanloom.errors import TokenizerError
from spanloom.families.harmony.sample import KINDS, TEXTS, sample_rows
from spanloom.families.harmony.tokenizer import NAME, SPECIAL_NAMES, VOCAB_SIZE
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, verify_asset

if TYPE_CHECKING:
    import tiktoken
    from openai_harmony import HarmonyEncoding

FIRST_SPECIAL = min(SPECIAL_NAMES)
_PLANES = range(0x20000)
"""The code points of the first two Unicode planes: nearly all letters in use, and the emoji."""
_loading = Lock()


def load_tiktoken(asset: Path) -> "tiktoken.Encoding":
    """tiktoken's `o200k_harmony` encoding: its own pattern and special tokens, over the asset's tokens.

    The asset is verified each time; the encoding is loaded once per process. Raises TokenizerError if the asset, or
    the file that tiktoken requests, is not the pinned one.
    """
    return _loaded(verify_asset(asset).absolute())


@cache
def _loaded(asset: Path) -> "tiktoken.Encoding":
    """tiktoken would look for the asset in its own cache and then on the network. Therefore its loader is replaced
    while it defines the encoding."""
    import tiktoken
    from tiktoken_ext import openai_public

    data = asset.read_bytes()
    if hashlib.sha256(data).hexdigest() != ASSET_SHA256:
        raise TokenizerError("the tokenizer asset was changed while it was read", where=str(asset), remedy="run again")

    def ranks(_: str, expected_hash: str | None = None) -> dict[bytes, int]:
        if expected_hash != ASSET_SHA256:
            raise TokenizerError(
                f"tiktoken {tiktoken.__version__} makes {NAME} of another file (sha256 {expected_hash})",
                where=str(asset),
                remedy="install the pinned tiktoken (constraints.txt)",
            )
        words = data.split()
        return {base64.b64decode(word): int(rank) for word, rank in zip(words[::2], words[1::2], strict=True)}

    with _loading:
        before = openai_public.load_tiktoken_bpe
        openai_public.load_tiktoken_bpe = ranks
        try:
            definition = openai_public.ENCODING_CONSTRUCTORS[NAME]()
        finally:
            openai_public.load_tiktoken_bpe = before
    return tiktoken.Encoding(**definition)


@cache
def probe_texts() -> tuple[str, ...]:
    """Texts that must give the same tokens in both: those of the built-in sample, one per 64 code points, and the names
    of the special tokens."""
    written = [text for row in sample_rows(KINDS) for column in TEXTS if (text := row[column])]
    points = [
        "".join(map(chr, range(first, first + 64)))
        for first in _PLANES[::64]
        if not 0xD800 <= first <= 0xDFFF  # surrogates are not valid text
    ]
    return (*written, *points, *SPECIAL_NAMES.values())


def first_difference(encoding: "HarmonyEncoding", second: "tiktoken.Encoding") -> str | None:
    """The first difference between openai-harmony and tiktoken, over every id and the tokens of all texts, or None.

    Two differences are ignored, because neither is ever written: tiktoken's second name `<|endofprompt|>` for id
    200018, and one id of openai-harmony beyond the vocabulary.
    """
    if second.n_vocab != VOCAB_SIZE:
        return f"tiktoken has a vocabulary of {second.n_vocab}, not {VOCAB_SIZE}"
    for token in range(VOCAB_SIZE):
        ours = encoding.decode([token], errors="surrogateescape").encode(errors="surrogateescape")
        if not _stands_for(second, token, ours):
            return f"id {token} is {ours!r} in openai-harmony and something else in tiktoken"
    for text in probe_texts():
        ours, theirs = encoding.encode(text, disallowed_special=()), second.encode_ordinary(text)
        if ours != theirs:
            return f"openai-harmony encodes {text!r} as {ours}, tiktoken as {theirs}"
    return None


def _stands_for(second: "tiktoken.Encoding", token: int, piece: bytes) -> bool:
    try:
        if token < FIRST_SPECIAL:
            return second.decode_single_token_bytes(token) == piece
        # By name, since one id may have several.
        return second.encode_single_token(piece) == token and second.is_special_token(token)
    except KeyError:
        return False
