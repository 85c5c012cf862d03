"""Texts → ids by the fast encoder of a `tokenizer.json`, and the characters of each token.

In: a loaded file. Out: ids int32 [T] of whole texts, without the tokens that the post-processor adds; offsets of tokens
in code points.

fastokens encodes, and caches the ids of the text between added tokens: for a text that continues an earlier one, only
the new part is encoded. `tokenizers` is the reference: `audit` encodes texts again with it, and it is used alone if
fastokens cannot load the file.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import AuditError
from spanloom.machine import give_back_freed_memory
from spanloom.supervision import Tokens
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.tokenizers.trial import try_tokenizer

CACHE_BYTES = 64_000_000
"""Size of fastokens' cache of texts and ids."""


_IDS = np.dtype("<i4")


class IdEncoder:
    """The encoder of one file. `fast`: whether fastokens encodes, which `fast_ahead` has begun to load."""

    def __init__(self, tokenizer: JsonTokenizer, fast: Future[Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._fast = None if fast is None else _checked(fast, tokenizer)

    @property
    def fast(self) -> bool:
        return self._fast is not None

    def ids(self, text: str) -> Tokens:
        """Token ids of a whole text, int32 [T]. Raises TokenizerError if the tokenizer fails."""
        if self._fast is None:
            return self._tokenizer.ids(text)
        try:
            # One text per call: a batch would start a thread for each core.
            flat, _ = self._fast.encode_batch_flat([text])
        except (ValueError, RuntimeError):  # a pattern without end, say; the reference decides
            return self._tokenizer.ids(text)
        return np.frombuffer(flat, _IDS)

    def audit(self, texts: Sequence[str]) -> None:
        """Raises AuditError if the ids of a text differ from those of the tokenizers package."""
        if self._fast is None:
            return
        for text in texts:
            if not np.array_equal(self.ids(text), self._tokenizer.ids(text)):
                raise AuditError(
                    f"fastokens and tokenizers give different ids for the text {text[:80]!r}",
                    where=str(self._tokenizer.path),
                    remedy="report the tokenizer; encode with tokenizers alone",
                )

    def offsets(self, text: str, ids: Tokens) -> npt.NDArray[np.int64] | None:
        """Start and end of each token in code points of the text, int64 [T, 2].

        None if the tokens' bytes are not the text's bytes, because the tokenizer normalizes it.
        """
        data = text.encode()
        written, edges = self._tokenizer.joined_bytes(ids)
        if written != data:
            return None
        begins, ends = edges[:-1], edges[1:]
        if len(data) != len(text):
            character = np.cumsum((np.frombuffer(data, np.uint8) & 0xC0) != 0x80) - 1
            begins, ends = character[begins], character[ends - 1] + 1
        return np.stack([begins, ends], axis=1)


def fast_ahead(path: Path) -> Future[Any] | None:
    """Begins to load fastokens' tokenizer of a file in a thread, for `IdEncoder`: that takes a second, and more than
    `tokenizers`, which is loaded meanwhile. None without the file or `tokenizers`, which `load_json_tokenizer` reports.
    Raises TokenizerError for a file that is refused."""
    if not path.is_file() or find_spec("tokenizers") is None:
        return None
    try_tokenizer(path)
    thread = ThreadPoolExecutor(1)
    loading = thread.submit(_loaded, path)
    thread.shutdown(wait=False)
    return loading


def _loaded(path: Path) -> Any:
    import fastokens

    fast = fastokens.Tokenizer.from_file(str(path))
    fast.no_truncation()
    fast.no_padding()
    fast.enable_segment_cache(CACHE_BYTES)
    give_back_freed_memory()
    return fast


def _checked(loading: Future[Any], tokenizer: JsonTokenizer) -> Any:
    """fastokens' tokenizer of the file, or None if it cannot load it or has other ids for the added tokens.

    Where a file contradicts itself, fastokens takes the ids of its list of added tokens; `tokenizers`, with which
    servers encode, takes those of the vocabulary, or counts on.
    """
    try:
        fast = loading.result()
        texts = list(tokenizer.added_texts())
        flat, _ = fast.encode_batch_flat(texts)
    except (ValueError, RuntimeError, OSError):
        return None
    expected = [encoded.ids for encoded in tokenizer.encode(texts, special=False)]
    return fast if flat == b"".join(ids.astype("<i4").tobytes() for ids in expected) else None
