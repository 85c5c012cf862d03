"""The o200k vocabulary as a Hugging Face tokenizer, for the peers that want one.

In: the tokenizer asset (base64 piece and rank a line). Out: a `tokenizer.json`.

The asset has ranks and no merges. Each piece came from merging two others, and byte pair encoding with only the merges
of lower rank takes it apart again into exactly these two.
"""

import base64
import json
from pathlib import Path

PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""How o200k cuts text into words before merging. Public, and the same in every implementation."""

SPECIALS = {
    "<|endoftext|>": 199999,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}


def read_ranks(asset: Path) -> dict[bytes, int]:
    """Piece → rank, which is its id."""
    lines = (line.split() for line in asset.read_bytes().splitlines() if line)
    return {base64.b64decode(piece): int(rank) for piece, rank in lines}


def derive_merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The two pieces that each piece of more than one byte is merged from, by rank.

    a 0 · b 1 · c 2 · ab 3 · abc 4   →   (a, b) (ab, c)
    """
    merges = []
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(piece) == 1:
            continue
        parts = _merged(piece, ranks, below=rank)
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def write_tokenizer_json(asset: Path, path: Path, *, specials: bool) -> Path:
    """Makes `path` when it is not there: byte-level BPE with the asset's ranks, with or without Harmony's specials."""
    if path.exists():
        return path
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    ranks = read_ranks(asset)
    letters = _byte_letters()

    def spelled(piece: bytes) -> str:
        return "".join(letters[byte] for byte in piece)

    tokenizer = Tokenizer(
        models.BPE(
            vocab={spelled(piece): rank for piece, rank in ranks.items()},
            merges=[(spelled(left), spelled(right)) for left, right in derive_merges(ranks)],
            ignore_merges=True,  # a word that is a piece is that piece, as in tiktoken
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    text = tokenizer.to_str()
    if specials:
        # Ids with gaps between them cannot be asked for, only written into the file.
        value = json.loads(text)
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        value["added_tokens"] = [{"id": number, "content": name, **flags} for name, number in SPECIALS.items()]
        value["model"]["vocab"] |= SPECIALS
        text = json.dumps(value, ensure_ascii=False)
        tokenizer = Tokenizer.from_str(text)
        assert tokenizer.token_to_id("<|call|>") == SPECIALS["<|call|>"], AddedToken
    path.write_text(text, encoding="utf-8")
    return path


def _merged(piece: bytes, ranks: dict[bytes, int], below: int) -> list[bytes]:
    parts = [piece[at : at + 1] for at in range(len(piece))]
    while len(parts) > 2:
        best, where = below, -1
        for at in range(len(parts) - 1):
            rank = ranks.get(parts[at] + parts[at + 1], below)
            if rank < best:
                best, where = rank, at
        if where < 0:
            break
        parts[where : where + 2] = [parts[where] + parts[where + 1]]
    return parts


def _byte_letters() -> dict[int, str]:
    """Byte → the letter that byte-level vocabularies write it as: itself where it shows, else one from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(0x100 + at) for at, byte in enumerate(hidden)}}
