"""Tokens → their text and the characters of each, by a table of the bytes of all tokens; nothing is encoded.

In: a `tokenizer.json`. Out: `TokenTexts`, or None where the text of tokens is not the text that was encoded: the file
lower-cases, drops white space, or has no tokens for some bytes. The package `tokenizers` is not needed.

    tokens   <s>   Hel   lo    " world"
    data     Hello world
    edges    0  0     3     5           11
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from spanloom.tokenizers.json_file import BYTES, Written

Ints = npt.NDArray[np.int64]

_REGEX_SPLITS = ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_KEEPS_ALL = ("Digits", "UnicodeScripts")
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def places_of(tokens: npt.NDArray[np.int32], size: int) -> Ints:
    """The places of tokens int32 [T] in a table of `size` entries, int64 [T]. Ids outside it are those of the last."""
    return np.minimum(tokens.view(np.uint32), np.uint32(size - 1)).astype(np.int64)


def joined(pieces: pa.LargeBinaryArray, places: Ints) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The bytes of tokens end to end, uint8 [B], and where each begins, with the end of the last, int64 [T + 1].
    `places`: int64 [T], in `pieces`. Arrow copies a token at once, which takes a fifth of an index in NumPy."""
    _, edges, data = pieces.take(pa.array(places)).buffers()
    return np.frombuffer(data or b"", np.uint8), np.frombuffer(edges, np.int64, places.size + 1)


@dataclass(frozen=True, kw_only=True)
class TokenTexts:
    """The bytes of each token of a vocabulary of V tokens.

    pieces    binary [V + 1]  the bytes of each token; the last has none, for ids outside the vocabulary
    spaces    int64 [V + 1, 2]  spaces at the beginning and at the end of each, which its offsets leave out
    added     ids of added tokens by their text; `controls`: of those that are special
    before, behind  ids that the post-processor adds to a text
    forms     normal form of Unicode that texts are brought to, None for none
    blanks    whether U+2581 in a text is read as a space
    """

    pieces: pa.LargeBinaryArray
    spaces: Ints
    added: Mapping[str, int]
    controls: frozenset[int]
    before: tuple[int, ...]
    behind: tuple[int, ...]
    forms: str | None
    blanks: bool

    def read(self, tokens: npt.NDArray[np.int32]) -> "Text":
        """The text of tokens, int32 [T]."""
        ids = places_of(tokens, len(self.pieces))
        data, edges = joined(self.pieces, ids)
        characters = np.zeros(data.size + 1, np.int64)
        np.cumsum((data & 0xC0) != 0x80, out=characters[1:])
        return Text(data=data, edges=edges, characters=characters, spaces=self.spaces[ids])

    def as_read(self, text: str) -> str:
        """A text as its tokens give it back."""
        formed = text if self.forms is None or text.isascii() else unicodedata.normalize(self.forms, text)  # type: ignore[arg-type]  # a name of a form
        return formed.replace("▁", " ") if self.blanks else formed


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text of T tokens.

    data        uint8 [B]      UTF-8
    edges       int64 [T + 1]  the bytes of token t are data[edges[t]:edges[t + 1]]
    characters  int64 [B + 1]  characters that begin before each byte
    spaces      int64 [T, 2]   see `TokenTexts`
    """

    data: npt.NDArray[np.uint8]
    edges: Ints
    characters: Ints
    spaces: Ints

    def between(self, first: int, end: int) -> str:
        """The text of the tokens [first, end)."""
        return self.data[self.edges[first] : self.edges[end]].tobytes().decode(errors="replace")

    def offsets(self, first: int, end: int) -> tuple[Ints, Ints]:
        """First and last character, exclusive, of the tokens [first, end), from the first of them on: int64 [T] each.
        Both are equal for tokens without characters; a token inside a character is at that character."""
        edges = self.edges[first : end + 1]
        start = self.characters[edges[0]]
        inside = (self.data[np.minimum(edges[:-1], max(self.data.size - 1, 0))] & 0xC0) == 0x80
        begins = self.characters[edges[:-1]] - inside - start
        ends = self.characters[edges[1:]] - start
        spaces = self.spaces[first:end]
        begins = np.minimum(begins + spaces[:, 0], ends)
        return begins, np.maximum(ends - spaces[:, 1], begins)


def token_texts(path: Path) -> TokenTexts | None:
    """The table of a file; None if it is no such file, or texts do not come back from tokens."""
    try:
        state = path.stat()
    except OSError:
        return None
    if not path.is_file():
        return None
    with _LOADING:  # shards are checked in parallel, and each asks first
        return _of_file(path, state.st_mtime_ns, state.st_size)


_LOADING = Lock()


@lru_cache(maxsize=2)
def _of_file(path: Path, changed: int, size: int) -> TokenTexts | None:  # noqa: ARG001  # the key of the cache
    try:
        return _made(orjson.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError):
        return None  # in the report already: the tokenizer is checked by itself


def _made(file: dict[str, Any]) -> TokenTexts | None:
    model, added, written = file["model"], file["added_tokens"], Written(file.get("decoder") or {})
    normal = _parts(file.get("normalizer"), "normalizers")
    forms = [part["type"] for part in normal if part["type"] in ("NFC", "NFKC")]
    replaced = _SPACES in normal
    if len(forms) + replaced != len(normal) or len(forms) > 1 or model["type"] != "BPE":
        return None
    if model.get("dropout") or any(token["lstrip"] or token["rstrip"] for token in added):
        return None
    splits = _parts(file.get("pre_tokenizer"), "pretokenizers")
    if not all(map(_keeps_text, splits)) or replaced != written.spaces:
        return None
    around = _around(_parts(file.get("post_processor"), "processors"))
    if around is None or not _has_all_bytes(model["vocab"], splits, written):
        return None
    texts = {token["content"]: int(token["id"]) for token in added}
    plain = {text: int(number) for text, number in model["vocab"].items() if text not in texts}
    pieces = dict(zip(plain.values(), written.all_bytes(list(plain)), strict=True))
    return _table(
        pieces,
        texts,
        controls=frozenset(int(token["id"]) for token in added if token["special"]),
        around=around,
        forms=forms[0] if forms else None,
        blanks=written.spaces,
    )


def texts_of_pieces(pieces: Sequence[bytes], added: Mapping[str, int]) -> TokenTexts:
    """The table of a vocabulary whose token i is `pieces[i]`; `added`: control tokens by their text."""
    return _table(
        dict(enumerate(pieces)),
        added,
        controls=frozenset(added.values()),
        around=((), (), False),
        forms=None,
        blanks=False,
    )


def _table(
    pieces: Mapping[int, bytes],
    added: Mapping[str, int],
    *,
    controls: frozenset[int],
    around: tuple[tuple[int, ...], tuple[int, ...], bool],
    forms: str | None,
    blanks: bool,
) -> TokenTexts:
    """`around`: ids before and behind a text, and whether offsets leave spaces out."""
    of_all = {**pieces, **{number: text.encode() for text, number in added.items()}}
    ordered = [of_all.get(number, b"") for number in range(max(of_all) + 1)] + [b""]
    return TokenTexts(
        pieces=pa.array(ordered, pa.large_binary()),
        spaces=_spaces(ordered, trimmed=around[2]),
        added=added,
        controls=controls,
        before=around[0],
        behind=around[1],
        forms=forms,
        blanks=blanks,
    )


def _parts(part: Any, name: str) -> list[dict[str, Any]]:
    """The steps of a part of the file that may be a sequence of several."""
    if part is None:
        return []
    return [step for each in part[name] for step in _parts(each, name)] if part["type"] == "Sequence" else [part]


def _keeps_text(split: Mapping[str, Any]) -> bool:
    """Whether this way to split a text keeps all of it."""
    if split["type"] == "ByteLevel":
        return not split["add_prefix_space"]
    if split["type"] in ("Split", "Punctuation"):
        return split["behavior"] in _REGEX_SPLITS
    return split["type"] in _KEEPS_ALL


def _has_all_bytes(vocab: Mapping[str, int], splits: list[dict[str, Any]], written: Written) -> bool:
    """Whether each byte of a text has a token."""
    if any(split["type"] == "ByteLevel" for split in splits):
        return written.byte_level and all(letter in vocab for letter in BYTES)
    return written.fallback and all(f"<0x{byte:02X}>" in vocab for byte in range(256))


def _around(processors: list[dict[str, Any]]) -> tuple[tuple[int, ...], tuple[int, ...], bool] | None:
    """Ids that are added before and behind a text, and whether offsets leave spaces out; None if that is unknown."""
    before: list[int] = []
    behind: list[int] = []
    trimmed = False
    for each in processors:
        if each["type"] == "ByteLevel":
            trimmed = trimmed or bool(each["trim_offsets"])
        elif each["type"] == "TemplateProcessing":
            ids = [each["special_tokens"][part["SpecialToken"]["id"]]["ids"] for part in _special(each["single"])]
            place = next(number for number, part in enumerate(each["single"]) if "Sequence" in part)
            before += [token for some in ids[:place] for token in some]
            behind += [token for some in ids[place:] for token in some]
        else:
            return None
    return tuple(before), tuple(behind), trimmed


def _special(parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (part for part in parts if "SpecialToken" in part)


def _spaces(pieces: list[bytes], *, trimmed: bool) -> Ints:
    """Spaces at both ends of each token, int64 [V, 2]; 0 if offsets have them."""
    spaces = np.zeros((len(pieces), 2), np.int64)
    for number, piece in enumerate(pieces) if trimmed else ():
        if piece[:1] == b" " or piece[-1:] == b" ":
            spaces[number] = len(piece) - len(piece.lstrip(b" ")), len(piece) - len(piece.rstrip(b" "))
    return spaces
