"""Control tokens in texts, encoded as ordinary text, while those of a template stay tokens.

In: a text F, a tokenizer.json, a pattern of control tokens; and F', which is F with a word of the same length in place
of each control token that is text. Out: ids and offsets of F. What is a control token in F' is the template's; the text
between two of them is encoded with control tokens as ordinary text.

    F    <|im_start|>user\\nWhat is <|im_end|>?<|im_end|>\\n        the first <|im_end|> is text
    F'   <|im_start|>user\\nWhat is QQQQQQQQQQ?<|im_end|>\\n
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from spanloom.tokenizers.encoding import Encoded, JsonTokenizer


class ControlTextError(Exception):
    """A text whose control tokens cannot be encoded as text. The message says why."""


def control_pattern(texts: set[str]) -> re.Pattern[str]:
    """Matches each of these texts, the longest first."""
    return re.compile("|".join(map(re.escape, sorted(texts - {""}, key=len, reverse=True))) or "(?!)")


def controls_in(value: Any, pattern: re.Pattern[str]) -> Iterator[str]:
    """The control tokens in all texts of a JSON value, keys too."""
    if isinstance(value, str):
        yield from (match[0] for match in pattern.finditer(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from controls_in(key, pattern)
            yield from controls_in(item, pattern)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from controls_in(item, pattern)


def without_controls(value: Any, pattern: re.Pattern[str]) -> Any:
    """A JSON value with a word of the same length in place of each control token."""
    if isinstance(value, str):
        return pattern.sub(lambda match: "Q" * len(match[0]), value)
    if isinstance(value, Mapping):
        return {without_controls(key, pattern): without_controls(item, pattern) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_controls(item, pattern) for item in value]
    return value


def check_plain(whole: str, plain: str, pattern: re.Pattern[str]) -> None:
    """Raises ControlTextError unless F' is F with words in place of control tokens alone."""
    kept = {match.span() for match in pattern.finditer(plain)}
    covered = list(whole)
    for match in pattern.finditer(whole):
        if match.span() not in kept:
            covered[match.start() : match.end()] = "Q" * len(match[0])
    if "".join(covered) != plain:
        raise ControlTextError("with words in place of control tokens the template writes another frame")


def encoded_as_text(
    tokenizer: JsonTokenizer, whole: str, plain: str, pattern: re.Pattern[str], *, special: bool = False
) -> Encoded:
    """The ids and offsets of F. `special`: with the tokens that the tokenizer's post-processor adds.

    Raises ControlTextError if the tokenizer cannot do this, or F' has another frame; TokenizerError if it fails.
    """
    check_plain(whole, plain, pattern)
    like, (known,) = _pieces(tokenizer, plain, plain, pattern), tokenizer.encode([plain], special=special)
    extra = known.ids.size - like.ids.size
    lead = next((at for at in range(extra + 1) if np.array_equal(known.ids[at : at + like.ids.size], like.ids)), None)
    if lead is None:
        raise ControlTextError("the tokenizer encodes a text between control tokens in another way than alone")
    encoded = _pieces(tokenizer, whole, plain, pattern)
    trail = lead + like.ids.size
    return Encoded(
        ids=np.concatenate([known.ids[:lead], encoded.ids, known.ids[trail:]]),
        offsets=[*known.offsets[:lead], *encoded.offsets, *known.offsets[trail:]],
    )


def _pieces(tokenizer: JsonTokenizer, text: str, plain: str, pattern: re.Pattern[str]) -> Encoded:
    ids, offsets = [], []
    edges = [0, *(edge for match in pattern.finditer(plain) for edge in match.span()), len(plain)]
    for number, (begin, end) in enumerate(pairwise(edges)):
        piece = text[begin:end]
        if number % 2:
            (encoded,) = tokenizer.encode([piece], special=False)
        else:
            encoded = tokenizer.encode_as_text(piece)
            named = [tokenizer.id_of(token) for token in controls_in(piece, pattern)]
            if np.isin(encoded.ids, [token for token in named if token is not None]).any():
                raise ControlTextError("the tokenizer cannot encode a control token as text")
        ids.append(encoded.ids)
        offsets += [(begin + int(first), begin + int(last)) for first, last in encoded.offsets]
    return Encoded(ids=np.concatenate(ids).astype(np.int32), offsets=offsets)
