"""The `tokenizer.json` that a dataset carries, in families that are tokenized with such a file.

In: a manifest's `content`, a file of the tokenizers package. Out: the file, if it is the dataset's own; findings where
the manifest says something of it that is not so. The file is read as JSON here, without the package that encodes.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.validate.content import check_stated
from spanloom.errors import TokenizerError
from spanloom.findings import Finding
from spanloom.storage import sha256_file
from spanloom.storage.scratch import Scratch
from spanloom.tokenizers.json_file import JsonVocabulary, load_json_tokenizer


def stage_tokenizer(scratch: Scratch, place: str | None) -> Path | None:
    """A tokenizer.json on this machine; the dataset carries its own where none is named."""
    return None if place is None else scratch.file(place)


def own_tokenizer(content: Content, path: Path | None) -> Path:
    """`path`, the tokenizer of a dataset. Raises TokenizerError where there is none, or one with another sha256."""
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
    """The vocabulary of the tokenizer of a dataset. `control`: texts shown as special tokens beside its EOD."""
    loaded = load_json_tokenizer(own_tokenizer(content, path), extra=extra)
    return JsonVocabulary(loaded, {*control, content.config["eod"]["text"]})


def check_tokenizer(content: Content, path: Path) -> Iterator[Finding]:
    """The tokenizer.json that the dataset carries against what the manifest says of it, `config.eod` too."""
    if not path.is_file():  # in the report already; a pipe or a device would be read without end
        return
    try:
        whole = json.loads(path.read_bytes())
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
    """The id of every token: `vocab` is a mapping, or of Unigram models a list of pairs; added tokens count too."""
    vocab = model["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {text: number for number, (text, _) in enumerate(vocab)}
    return {**ids, **{token["content"]: int(token["id"]) for token in added}}
