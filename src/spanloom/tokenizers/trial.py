"""A `tokenizer.json` is loaded in a process with limits before this process loads it: the file is untrusted.

In: a file. Out: nothing; or a TokenizerError with the key of the file that is wrong. A file that takes all memory, or
that ends the process it is loaded in, ends the process of `rendering`. What loads is noted in the user's cache by its
hash, and is not tried again by the same code; workers of a build load what their parent has tried.
"""

import json
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from spanloom.errors import SpanloomError, TokenizerError, is_rust_panic
from spanloom.storage import read_small, sha256_file
from spanloom.storage.local import cache_folder
from spanloom.tokenizers.json_limits import refusal, refusal_of_file
from spanloom.tokenizers.rendering.process import LimitedCallError, TemplateProcess
from spanloom.tokenizers.rendering.wire import Limits

MOST_BYTES = 256 << 20
"""Of a file. The largest published ones have some 35 MB."""

SECONDS, MEMORY = 180.0, 6 << 30
"""Limits of the process: the largest published files take 2 s and 0.7 GB, and ten times as long on a
machine under load."""

PROBES = ("a", "A text: 12 words, two lines\nand  some  blanks.", "ä 漢字 🙂\r\n\t", "a" * 64 + "!", " " * 64 + "x")
"""Texts that are encoded within the limits; a tokenizer may fail at them."""

SECTIONS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding", "added_tokens")

_REMEDY = "give a tokenizer.json that works"


def try_tokenizer(path: Path) -> None:
    """Raises TokenizerError for a file that does not load within the limits, or that `json_limits` refuses."""
    if parent_process() is not None:
        return
    data = read_small(path, TokenizerError, "the tokenizer", _REMEDY, limit=MOST_BYTES)
    digest = sha256(data).hexdigest()
    note = cache_folder() / "tried-tokenizers" / _code() / digest
    if digest in _tried or note.is_file():
        return
    process = TemplateProcess(Limits(seconds=SECONDS, memory=MEMORY, modules=(__name__, "tokenizers", "fastokens")))
    try:
        reason = process.call(__name__, "reason_against", data)
    except LimitedCallError as stopped:
        reason = f"loading it was stopped: {stopped.what}"
    finally:
        process.close()
    if reason:
        raise TokenizerError(f"the tokenizer is refused: {reason}", where=str(path), remedy=_REMEDY)
    _tried.add(digest)
    with suppress(OSError, SpanloomError):  # without the note, the next process tries the file too
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


_tried: set[str] = set()
"""The sha256 of files that this process has tried."""


@cache
def _code() -> str:
    """Of what a trial depends on besides the file: the code of this package and the libraries."""
    packages = {name: version(name) for name in ("tokenizers", "fastokens")}
    folder = Path(__file__).parent
    code = [sha256_file(path) for path in (Path(__file__), folder / "json_limits.py")]
    return sha256(json.dumps([packages, code]).encode()).hexdigest()[:16]


def reason_against(data: bytes) -> str:
    """Why a tokenizer's file is refused, with the key; empty if it is not. Runs in the process with limits."""
    try:
        text = data.decode()
        values = json.loads(text)
    except (ValueError, RecursionError) as fault:
        return f"it is not JSON: {fault}"
    if not isinstance(values, dict):
        return "it is not a JSON object"
    if reason := refusal_of_file(values):
        return reason
    tokenizer = _loaded(text)
    if isinstance(tokenizer, str):
        return f"{_key(values)}: {tokenizer}"
    if reason := refusal(tokenizer):
        return reason
    for probe in PROBES:
        try:
            tokenizer.encode(probe, add_special_tokens=False)
        except BaseException as fault:  # it may encode others: a text that fails is named where it is met
            if not is_of_tokenizers(fault):
                raise
    _load_fast(text)
    return ""


def _loaded(text: str) -> Any:
    """The tokenizer, or why there is none."""
    from tokenizers import Tokenizer  # imported by the process before its limits; the parent has no need of it

    try:
        return Tokenizer.from_str(text)
    except BaseException as fault:
        if is_of_tokenizers(fault):
            return str(fault)
        raise


def _load_fast(text: str) -> None:
    """fastokens may refuse a file, which is then encoded without it. Here it may not end the process."""
    import fastokens

    try:
        fastokens.Tokenizer.from_json_str(text)
    except (ValueError, RuntimeError, OSError):
        return


def is_of_tokenizers(fault: BaseException) -> bool:
    """Whether a fault is of the tokenizers package, which raises plain `Exception`, or panics."""
    return type(fault) is Exception or is_rust_panic(fault)


def _key(values: dict[str, Any]) -> str:
    """The key of the file without which it loads; `model` if there is none."""
    if "model" not in values:
        return "the key model is missing"
    for section in SECTIONS:
        if values.get(section):
            less = {**values, section: [] if section == "added_tokens" else None}
            if not isinstance(_loaded(json.dumps(less)), str):
                return section
    return "version" if values.get("version") != "1.0" else "model"
