"""The `tokenizer.json` of a dataset, in families that are tokenized with such a file.

In: a manifest's `content`, a file of the tokenizers package. Out: the file, if it is the dataset's own; findings for
differences from the manifest. `check_tokenizer` reads the file as JSON, without the package that encodes.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.validate.content import check_stated
from spanloom.errors import TokenizerError
from spanloom.findings import Finding
from spanloom.storage import sha256_file
from spanloom.storage.scratch import Scratch
from spanloom.tokenizers.json_file import JsonVocabulary, load_json_tokenizer, tokenizer_faults


def stage_tokenizer(scratch: Scratch, place: str | None) -> Path | None:
    """The local path of a tokenizer.json; None for None: the dataset contains its own."""
    return None if place is None else scratch.file(place)


def own_tokenizer(content: Content, path: Path | None) -> Path:
    """Returns `path`, the tokenizer of a dataset. Raises TokenizerError if it is None or has another sha256."""
    if path is None:
        raise TokenizerError(
            "the dataset's tokenizer.json is missing", remedy="fetch the dataset again, or name the file: --tokenizer"
        )
    if path.is_file() and (sha256 := sha256_file(path)) != content.tokenizer.sha256:
        raise TokenizerError(
            f"the dataset's tokens are of another tokenizer: sha256 {content.tokenizer.sha256}; this is {sha256}",
            where=str(path),
            remedy="name the one that the dataset was made with: --tokenizer",
        )
    return path


def own_vocabulary(content: Content, path: Path | None, control: Iterable[str], *, extra: str) -> JsonVocabulary:
    """The vocabulary of a dataset's tokenizer. `control`: texts shown as special tokens, in addition to its EOD."""
    loaded = load_json_tokenizer(own_tokenizer(content, path), extra=extra)
    return JsonVocabulary(loaded, {*control, content.config["eod"]["text"]})


class CheckedEncoder:
    """A tokenizer.json that encodes texts a second time. Raises TokenizerError for a file that is no tokenizer, and for
    a text that it cannot encode.

    `special`: the texts of its special tokens.
    """

    def __init__(self, place: Path, *, extra: str) -> None:
        self.place, self.loaded = place, load_json_tokenizer(place, extra=extra)
        self.added = list(self.loaded.get_added_tokens_decoder().values())
        self.special = frozenset(token.content for token in self.added if token.special)

    def encode(
        self, text: str, controls: Sequence[tuple[int, int]] | None = None
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids and offsets of a text. `controls`: the only characters that are control tokens, [start, end) in order;
        None: wherever the tokenizer finds some."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        edges = [0, *(edge for places in controls or () for edge in places), len(text)]
        with tokenizer_faults(self.place), _ENCODING:
            try:
                for number, (begin, end) in enumerate(pairwise(edges)):
                    self.loaded.encode_special_tokens = controls is not None and number % 2 == 0
                    encoded = self.loaded.encode(text[begin:end], add_special_tokens=False)
                    ids += encoded.ids
                    offsets += [(begin + first, begin + last) for first, last in encoded.offsets]
            finally:
                self.loaded.encode_special_tokens = False
        return ids, offsets


_ENCODING = Lock()
"""Shards are checked in parallel, and how a tokenizer encodes is a state of it."""


def check_tokenizer(content: Content, path: Path) -> Iterator[Finding]:
    """Checks the dataset's tokenizer.json against the manifest, including `config.eod`."""
    if not path.is_file():  # already reported; reading a pipe or a device might never end
        return
    try:
        whole = orjson.loads(path.read_bytes())
        model = whole["model"]
        ids = _ids(model, whole["added_tokens"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as fault:
        message = f"the tokenizer that the dataset carries cannot be read: {type(fault).__name__}"
        yield Finding(check="tokenizer", message=message, file=TOKENIZER_NAME)
        return
    size = max(ids.values(), default=-1) + 1
    wanted = {"name": f"{str(model['type']).lower()}_{size}", "vocab_size": size}
    stated = {name: getattr(content.tokenizer, name) for name in wanted}
    yield from check_stated(stated, wanted, "tokenizer", check="tokenizer")
    eod = content.config["eod"]
    yield from check_stated(eod, {"text": eod["text"], "id": ids.get(eod["text"])}, "config.eod", check="tokenizer")


def _ids(model: Any, added: Any) -> dict[str, int]:
    """The id of every token, including added ones. `vocab` is a mapping, or for Unigram models a list of pairs."""
    vocab = model["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {text: number for number, (text, _) in enumerate(vocab)}
    return {**ids, **{token["content"]: int(token["id"]) for token in added}}
