"""Small transcripts, as text and as tokens, and a small tokenizer for them, for the tests of loader and training."""

import random
from pathlib import Path

from spanloom.families.chat.blocks.markers import CONTROL_STRINGS, Markers
from tokenizers import Tokenizer, models, pre_tokenizers

X, S, U, A, E = 0, 10, 11, 12, 13
MARKERS = Markers(eos=X, system=S, user=U, assistant=A, end=E)
VOCAB_SIZE = 40


def token_records(number: int, *, seed: int = 0) -> list[list[int]]:
    """Well-formed conversations of tokens, each closed by EOS; contents are 20 … 39."""
    draw = random.Random(seed)

    def span(marker: int, longest: int) -> list[int]:
        return [marker, *(draw.randrange(20, 40) for _ in range(draw.randrange(1, longest))), E]

    records = []
    for _ in range(number):
        record = span(S, 5) if draw.random() < 0.6 else []
        for _ in range(draw.randrange(1, 4)):
            record += span(U, 9) + span(A, 9)
        records.append([*record, X])
    return records


def text_records(number: int, *, seed: int = 0) -> list[str]:
    """The same as text, without the EOS, of the letters a … t."""
    names = {S: "<|SYSTEM|>", U: "<|USER|>", A: "<|ASSISTANT|>", E: "<|END|>"}
    return [
        "".join(names.get(token) or chr(ord("a") + token - 20) for token in record[:-1])
        for record in token_records(number, seed=seed)
    ]


def write_tokenizer(path: Path) -> Path:
    """A tokenizer whose tokens are those of `token_records`: a letter is one, a control string is one."""
    vocabulary = {chr(ord("a") + letter): 20 + letter for letter in range(20)}
    vocabulary |= {"<|EOS|>": X, "<|SYSTEM|>": S, "<|USER|>": U, "<|ASSISTANT|>": A, "<|END|>": E, "<|PAD|>": 14}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens(list(CONTROL_STRINGS))
    tokenizer.save(str(path))
    return path
