"""Transcripts → tokens, and the ids of the markers.

In: a local `tokenizers` JSON file that has the control strings, or the o200k asset, to which they are added here. Out:
`ChatTokenizer`: records as flat tokens, EOS appended to each; counts.

Control strings in the text of a record become markers: that is the format. The generator has checked the messages of
users for them.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.errors import ChatError, TokenizerError
from spanloom.families.chat.blocks.markers import CONTROL_STRINGS, MARKER_NAMES, Markers
from spanloom.storage import sha256_file
from spanloom.text import is_utf8
from spanloom.tokenizers.json_file import load_json_tokenizer, name_of, tokenizer_faults
from spanloom.tokenizers.o200k.asset import ASSET_NAME, ASSET_SHA256, locate_asset, verify_asset
from spanloom.tokenizers.o200k.encoder import EncodedTexts, Encoder

O200K_NAME = "o200k_chat"
O200K_FIRST_ADDED = 201_088
"""First id of the control strings, which follow in the order of `CONTROL_STRINGS`. It lies above the padded vocabulary
of o200k_harmony, so that no special token of it, named or reserved, changes its meaning."""

_CONTROL = re.compile("(" + "|".join(map(re.escape, CONTROL_STRINGS)) + ")")


class ChatTokenizer:
    """Transcripts → tokens. Made by `load_tokenizer`; a worker process that receives one loads its own copy.

    name, sha256  for manifests
    vocab_size    all ids are below it
    markers       the ids of the control strings, including `pad` if the tokenizer has it
    """

    def __init__(self, *, path: Path, name: str, sha256: str, engine: "_Json | _O200k") -> None:
        self.path, self.name, self.sha256 = path, name, sha256
        self.vocab_size, self.markers = engine.vocab_size, engine.markers
        self._engine = engine

    def encode(self, texts: Sequence[str | None], *, first: int = 0) -> EncodedTexts:
        """Tokens of each record, followed by EOS, even if the text already ends with one. All lengths are ≥ 1.

        Raises ChatError for a record that is not text, with its number; the first of `texts` has number `first`.
        """
        for number, text in enumerate(texts, start=first):
            if not isinstance(text, str):
                kind = "null" if text is None else type(text).__name__
                raise ChatError(f"record {number} is not text but {kind}", remedy="fix it, or leave it out")
        try:
            return self._engine.encode([text for text in texts if text is not None])
        except UnicodeEncodeError:
            place = next(number for number, text in enumerate(texts, start=first) if text and not is_utf8(text))
            raise ChatError(f"record {place} holds half a character (a lone surrogate)", remedy="fix it") from None

    def count(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text, without the EOS, for the generator's length filter."""
        counts: list[int] = (self.encode(texts).lengths - 1).tolist()
        return counts

    def as_dict(self) -> dict[str, Any]:
        """Its section of a manifest."""
        ids = {text: getattr(self.markers, name) for name, text in MARKER_NAMES.items()}
        return {"name": self.name, "sha256": self.sha256, "vocab_size": self.vocab_size, "markers": ids}

    def __reduce__(self) -> tuple[Any, ...]:
        return (load_tokenizer, (self.path,))


def load_tokenizer(place: Path | None = None) -> ChatTokenizer:
    """The tokenizer at `place`: a `tokenizers` JSON file, or the o200k asset or its folder. Default: the asset.

    Raises TokenizerError for any other file, ChatError if ids of markers are missing or equal.
    """
    if place is not None and _is_json(place):
        return _load_json(place)
    asset = verify_asset(locate_asset(place)).resolve()
    return ChatTokenizer(path=asset, name=O200K_NAME, sha256=ASSET_SHA256, engine=_O200k(asset))


def _is_json(place: Path) -> bool:
    """By its suffix, or by its first byte: the artifacts of a pipeline have no suffix."""
    if place.suffix == ".json" or not place.is_file():
        return place.suffix == ".json"
    with place.open("rb") as stream:
        return stream.read(1) == b"{"


def _load_json(path: Path) -> ChatTokenizer:
    if not path.is_file():
        raise TokenizerError(
            "the tokenizer does not exist", where=str(path), remedy=f"give a tokenizer.json, or the asset {ASSET_NAME}"
        )
    loaded = load_json_tokenizer(path, extra="chat")
    try:
        with tokenizer_faults(path):
            engine = _Json(loaded, path)
    except ChatError as error:
        raise ChatError(error.what, where=str(path), remedy=error.remedy) from None
    # The name does not depend on the path, so that the same dataset is made from any copy of the tokenizer.
    name = name_of(loaded, engine.vocab_size)
    return ChatTokenizer(path=path.resolve(), name=name, sha256=sha256_file(path), engine=engine)


class _Json:
    """A tokenizer of the `tokenizers` package."""

    def __init__(self, tokenizer: Any, path: Path) -> None:
        self._tokenizer, self._path = tokenizer, path
        self.markers = Markers(**{name: tokenizer.token_to_id(text) for name, text in MARKER_NAMES.items()})
        vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        names = {tokenizer.token_to_id(control): control for control in CONTROL_STRINGS}
        shared = [
            f"{names[token]} {token} with {piece!r}"
            for piece, token in sorted(vocabulary.items())
            if token in names and piece not in CONTROL_STRINGS
        ]
        if shared:
            raise ChatError(
                f"control strings share an id with a piece of text: {', '.join(shared)}",
                remedy="give the control strings ids of their own",
            )
        added = tokenizer.get_added_tokens_decoder()
        if tokenizer.normalizer is not None and (
            loose := [names[token] for token in sorted(set(names) & set(added)) if added[token].normalized]
        ):
            raise ChatError(
                f"the tokenizer looks for {', '.join(loose)} in normalized text, where other text can become them",
                remedy='say "normalized": false of these added_tokens in its file',
            )
        # An id in the vocabulary is not enough: encoding must produce it, also between letters.
        torn = []
        for control in CONTROL_STRINGS:
            token = tokenizer.token_to_id(control)
            if token is not None and tokenizer.encode(f"a{control}b", add_special_tokens=False).ids.count(token) != 1:
                torn.append(control)
        if torn:
            raise ChatError(
                f"the tokenizer has ids for {', '.join(torn)}, but does not find them in text",
                remedy="make them special tokens of the tokenizer (its added_tokens)",
            )

    def encode(self, texts: list[str]) -> EncodedTexts:
        try:
            with tokenizer_faults(self._path):
                encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            for text in texts:
                text.encode()  # names the character; the package's own error only mentions types
            raise
        flat: list[int] = []
        lengths = []
        eos = self.markers.eos
        for encoding in encodings:
            ids = encoding.ids
            flat += ids
            flat.append(eos)
            lengths.append(len(ids) + 1)
        return EncodedTexts(tokens=np.array(flat, np.int32), lengths=np.array(lengths, np.int32))


class _O200k:
    """The o200k vocabulary with the control strings added. Text is split at them, and the pieces are encoded."""

    vocab_size = O200K_FIRST_ADDED + len(CONTROL_STRINGS)

    def __init__(self, asset: Path) -> None:
        self._ids = {name: O200K_FIRST_ADDED + number for number, name in enumerate(CONTROL_STRINGS)}
        self.markers = Markers(**{name: self._ids[text] for name, text in MARKER_NAMES.items()})
        self._encoder = Encoder(asset)

    def encode(self, texts: list[str]) -> EncodedTexts:
        """Each piece of text is followed by one control string, the last one by EOS:

        "<|USER|>hi<|END|>"  →  pieces ["", "hi", ""]  controls [USER END EOS]
        """
        pieces: list[str] = []
        controls: list[int] = []
        counts = []
        for text in texts:
            parts = _CONTROL.split(text)
            pieces += parts[::2]
            controls += [self._ids[control] for control in parts[1::2]]
            controls.append(self.markers.eos)
            counts.append(len(parts) // 2 + 1)
        encoded = self._encoder.encode(pieces)
        ends = np.cumsum(encoded.lengths + 1, dtype=np.int64)
        tokens = np.empty(int(ends[-1]) if ends.size else 0, np.int32)
        is_text = np.ones(tokens.size, np.bool_)
        is_text[ends - 1] = False
        tokens[is_text] = encoded.tokens
        tokens[ends - 1] = controls
        last = np.concatenate([[0], ends])[np.cumsum(counts, dtype=np.int64)]
        return EncodedTexts(tokens=tokens, lengths=np.diff(last, prepend=0).astype(np.int32))
