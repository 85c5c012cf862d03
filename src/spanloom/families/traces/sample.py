"""Generates example traces and a small tokenizer trained on them, to try the family without other data.

In: a count. Out: traces as JSON objects, the same in every run; a `tokenizer.json` with Gemma's control tokens.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanloom.errors import TokenizerError
from spanloom.families.traces.render import CONTROL_STRINGS
from spanloom.storage.scratch import scratch_for

VOCABULARY = 600

_WORDS = ("lantern", "Straße", "école", "вода", "河川", "🙂🙃")


def sample_traces(count: int) -> Iterator[dict[str, Any]]:
    """`count` traces: sums, reversed words, days of a month."""
    for number in range(count):
        first, second = 3 + number * 37 % 91, 2 + number * 53 % 83
        kind = ("sum", "word", "month")[number % 3]
        if kind == "sum":
            prompt, answer = f"What is {first} + {second}?", str(first + second)
            steps = [
                ("read", f"The numbers are {first} and {second}."),
                ("add", f"{first} + {second} = {first + second}"),
            ]
        elif kind == "word":
            word = _WORDS[number // 3 % len(_WORDS)]
            prompt, answer = f"Write {word!r} backwards.", word[::-1]
            steps = [("letters", " ".join(word)), ("turn", " ".join(word[::-1])), ("join", word[::-1])]
        else:
            year = 1900 + first
            leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
            prompt, answer = f"How many days has February {year}?", "29" if leap else "28"
            steps = [("rule", f"{year} divided by 4 leaves {year % 4}."), ("so", f"It has {answer} days.")]
        yield {
            "trace_version": "1.0",
            "prompt": prompt,
            "final_answer": answer,
            "steps": [{"i": i, "type": name, "content": text} for i, (name, text) in enumerate(steps)],
            "meta": {"kind": kind, "number": number},
        }


def sample_tokenizer(traces: list[dict[str, Any]]) -> bytes:
    """A small byte-level tokenizer trained on these traces. Raises TokenizerError without the package tokenizers."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise TokenizerError("this needs the package tokenizers", remedy="pip install 'spanloom[traces]'") from None
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=sorted(CONTROL_STRINGS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = [text for trace in traces for text in (trace["prompt"], *(step["content"] for step in trace["steps"]))]
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str(pretty=True)).encode()


def run(*, out: str, traces: int, tokenizer: str | None = None, scratch: Path | None = None) -> None:
    """Writes the traces as JSON Lines to `out`, and a tokenizer to `tokenizer` if given."""
    with scratch_for("sample-traces", [out, tokenizer], scratch) as staging:
        made = list(sample_traces(traces))
        lines = b"".join(json.dumps(trace, ensure_ascii=False).encode() + b"\n" for trace in made)
        staging.create(out, lines)
        if tokenizer is not None:
            staging.create(tokenizer, sample_tokenizer(made))
