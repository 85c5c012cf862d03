"""Texts → ids and offsets, by a `tokenizer.json`.

In: a local file. Out: encodings with ids and offsets in code points; the id of a token by its name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spanloom.storage import sha256_file
from spanloom.supervision import Tokens
from spanloom.tokenizers.character_spans import Offsets
from spanloom.tokenizers.json_file import (
    JsonVocabulary,
    Written,
    load_json_tokenizer,
    name_of,
    part_of,
    tokenizer_faults,
)

if TYPE_CHECKING:  # pyarrow takes 40 MB, and encoding does not need it
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """One text. `ids` int32 [T]; `offsets` int [T, 2], start and end of each token in code points of the text."""

    ids: Tokens
    offsets: Offsets


class JsonTokenizer:
    """A loaded file. `name`: model type and vocabulary size. Ids are below `vocab_size`. Raises like
    `load_json_tokenizer`.
    """

    def __init__(self, path: Path, *, extra: str) -> None:
        self.path = path
        self._loaded = load_json_tokenizer(path, extra=extra)
        self.sha256 = sha256_file(path)
        self._vocabulary: dict[str, int] = self._loaded.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self._vocabulary.values()) + 1
        self.name = name_of(self._loaded, self.vocab_size)

    def entry(self, eod: int) -> dict[str, Any]:
        """The tokenizer as a manifest lists it. `eod`: the id of the token that ends a document."""
        return {"name": self.name, "sha256": self.sha256, "vocab_size": self.vocab_size, "eod": eod}

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Encoded]:
        """Encodes whole texts. `special`: with the tokens that the tokenizer's post-processor adds.

        Raises TokenizerError if the tokenizer fails.
        """
        with tokenizer_faults(self.path):
            encodings = self._loaded.encode_batch(list(texts), add_special_tokens=special)
        return [Encoded(ids=np.array(each.ids, np.int32), offsets=each.offsets) for each in encodings]

    def ids(self, text: str) -> Tokens:
        """The ids of a whole text, int32 [T], without the tokens of the post-processor. Raises TokenizerError."""
        with tokenizer_faults(self.path):  # a single text: the encodings of a batch would all be in memory
            (encoding,) = self._loaded.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoding.ids, np.int32)

    def encode_as_text(self, text: str) -> Encoded:
        """Encodes a text in which special tokens are ordinary text. Raises TokenizerError."""
        self._loaded.encode_special_tokens = True
        try:
            (encoded,) = self.encode([text], special=False)
        finally:
            self._loaded.encode_special_tokens = False
        return encoded

    def special_texts(self) -> set[str]:
        """The texts that the tokenizer encodes as a control token wherever they occur."""
        return {token.content for token in self._loaded.get_added_tokens_decoder().values() if token.special}

    def added_texts(self) -> dict[str, int]:
        """The texts of all added tokens, special or not, and their ids. The tokenizer splits a text at them first."""
        return {token.content: number for number, token in self._loaded.get_added_tokens_decoder().items()}

    def added_tokens(self) -> Mapping[int, Any]:
        """The added tokens by id, as the tokenizers package describes them."""
        added: Mapping[int, Any] = self._loaded.get_added_tokens_decoder()
        return added

    def part(self, name: str) -> dict[str, Any]:
        """A part of the file, see `part_of`."""
        return part_of(self._loaded, name)

    @property
    def model(self) -> Any:
        """The model of the tokenizers package."""
        return self._loaded.model

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token represents; for an added token, its text in UTF-8; empty for an id without a token."""
        return self._bytes[token]

    def pieces(self, tokens: Iterable[int]) -> list[bytes]:
        """The bytes of each token, see `token_bytes`."""
        return list(map(self._bytes.__getitem__, tokens))

    def joined_bytes(self, tokens: Tokens) -> tuple[bytes, npt.NDArray[np.int64]]:
        """The bytes of tokens int32 [T] end to end, and where each begins, with the end of the last: int64 [T + 1]."""
        from spanloom.tokenizers.token_texts import joined, places_of

        data, edges = joined(self._pieces, places_of(tokens, len(self._pieces)))
        return data.tobytes(), edges

    @cached_property
    def _pieces(self) -> "pa.LargeBinaryArray":
        """The bytes of all tokens; the last has none, for ids outside the vocabulary."""
        import pyarrow as pa

        return pa.array(self.pieces(range(self.vocab_size + 1)), pa.large_binary())

    @cached_property
    def _bytes(self) -> "_Bytes":
        added = self.added_texts()
        plain = {text: number for text, number in self._vocabulary.items() if text not in added}
        pieces = Written(self.part("decoder")).all_bytes(list(plain))
        found = _Bytes(zip(plain.values(), pieces, strict=True))
        found.update((number, text.encode()) for text, number in added.items())
        return found

    @cached_property
    def vocabulary(self) -> JsonVocabulary:
        """The bytes of each token, or its name if it is special."""
        return JsonVocabulary(self._loaded)

    def id_of(self, token: str) -> int | None:
        """The id of a token by its name, or None if there is no such token."""
        return self._vocabulary.get(token)


class _Bytes(dict[int, bytes]):
    """Token → its bytes; none for an id without a token."""

    def __missing__(self, token: int) -> bytes:
        return b""
