"""Whether a teacher's tokenizer is that of a dataset: ids of one mean nothing in the other.

In: the dataset's vocabulary and tokenizer file, the teacher's `tokenizer.json`, texts of the dataset. Out: nothing, or
TeacherError. Every token must have the same bytes or the same name, and texts the same ids.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from spanloom.dataset.family import Vocabulary
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import open_arrays
from spanloom.storage import sha256_file
from spanloom.supervision import Tokens
from spanloom.teacher.signals import TeacherError
from spanloom.tokenizers.encoding import JsonTokenizer

TEXTS = 1_000
"""How many stretches of text between special tokens are encoded with both tokenizers."""


def check_tokenizer(
    vocabulary: Vocabulary, size: int, own: Path | None, teacher: Path, stretches: Sequence[list[int]]
) -> None:
    """Raises TeacherError where the tokenizers differ.

    size       of the dataset's vocabulary
    own        the dataset's `tokenizer.json`, None if its tokenizer is no such file
    stretches  ids of the dataset between special tokens, which were encoded together
    """
    if own is not None and sha256_file(own) == sha256_file(teacher):
        return
    other = JsonTokenizer(teacher, extra="hf")
    pieces = other.pieces(range(min(size, other.vocab_size)))
    for token, piece in enumerate(pieces):
        known = vocabulary.name(token).encode() if vocabulary.is_special(token) else vocabulary.piece(token)
        if known != piece:
            raise _differs(teacher, f"token {token} is {known!r} in the dataset, {piece!r} with the teacher")
    held = max((max(ids) for ids in stretches if ids), default=0)
    if held >= len(pieces):
        raise _differs(teacher, f"the dataset has token {held}, the teacher's has {len(pieces):,} tokens")
    ours = None if own is None else JsonTokenizer(own, extra="hf")
    for ids in stretches:
        try:
            text = b"".join(pieces[token] for token in ids).decode()
        except UnicodeDecodeError:
            continue
        encoded = other.encode([text], special=False)[0].ids.tolist()
        expected = ids if ours is None else ours.encode([text], special=False)[0].ids.tolist()
        if encoded != expected:
            raise _differs(teacher, f"the text {text[:40]!r} has other tokens with the teacher")


def _differs(teacher: Path, how: str) -> TeacherError:
    return TeacherError(
        f"tokenizer_differs: {how}",
        where=str(teacher),
        remedy="take a teacher with the tokenizer of the dataset, or build the dataset for the teacher's model",
    )


def stretches(
    root: Path, content: Content, shards: Sequence[tuple[str, int]], vocabulary: Vocabulary
) -> Iterator[list[int]]:
    """Ids between special tokens, of documents that are evenly spaced in `shards`: at most `TEXTS` in all."""
    each = -(-TEXTS // max(1, len(shards)))
    for split, shard in shards:
        reader = open_arrays(root, split, shard, {"tokens": content.arrays["tokens"]})
        found = 0
        step = max(1, reader.sequences // each)
        for sequence in range(0, reader.sequences, step):
            for stretch in _between_specials(reader.read(sequence, reader.lengths(sequence, 1))["tokens"], vocabulary):
                yield stretch
                found += 1
                if found == each:
                    break
            if found == each:
                break


def _between_specials(tokens: Tokens, vocabulary: Vocabulary) -> Iterator[list[int]]:
    stretch: list[int] = []
    for token in tokens.tolist():
        if not vocabulary.is_special(token):
            stretch.append(token)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch
