"""Plain text → o200k tokens: batches of texts in, flat arrays out, without a Python object a token.

In: texts. Out: their tokens end to end, and how many each has. Text never gives a special token, whatever it spells.

fastokens does the work: the fastest of the encoders that were found exact (`python -m bench.encoders`);
tests/o200k/test_encoder.py holds it against openai-harmony on every code point.
"""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.supervision import Lengths, Tokens

PACKAGE = "fastokens"


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """`tokens` int32 [T], the texts' tokens end to end; `lengths` int32 [N], tokens of each."""

    tokens: Tokens
    lengths: Lengths


class Encoder:
    """The encoder over the verified asset. Loading takes more than a second, once a process (see `load_ahead`)."""

    def __init__(self, asset: Path) -> None:
        self._tokenizer = load_ahead(asset).result()

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Tokens of each text. Raises UnicodeEncodeError where one holds a lone surrogate."""
        # What looks like a special token is text like any other: there are none, so none can be found.
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts))
        return EncodedTexts(
            tokens=np.frombuffer(ids, dtype="<u4").astype(np.int32),
            lengths=np.diff(np.frombuffer(offsets, dtype="<u8")).astype(np.int32),
        )


_loading: dict[Path, "Future[Any]"] = {}
_loading_lock = threading.Lock()


def load_ahead(asset: Path) -> "Future[Any]":
    """Begins to load the tokenizer in a thread, if this process has not begun yet: a worker imports its libraries
    meanwhile, for loading holds no GIL. Returns at once."""
    with _loading_lock:
        if asset not in _loading:
            future = _loading[asset] = Future()
            threading.Thread(target=_load, args=(asset, future), daemon=True).start()
        return _loading[asset]


def _load(asset: Path, future: "Future[Any]") -> None:
    try:
        import fastokens

        tokenizer = fastokens.Tokenizer.from_tiktoken(str(asset), encoding="o200k_base", special_tokens={})
        # It would start a thread for each core that it sees at its first batch, in each worker. Work is divided among
        # processes here, one a core, so let it see one. Only this thread is held to it, and it ends here.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        tokenizer.encode_batch_flat([""])
    except BaseException as fault:
        future.set_exception(fault)
    else:
        future.set_result(tokenizer)
