"""The span of each token of a completion.

In: F, where the run's texts are in it, the tokens' offsets. Out: uint8 [T], the span of each token by its first
character. Between two texts, everything through the first added token (such as `</think>`) belongs to the first text;
without an added token, everything does. What precedes the first text belongs to it.

    <think>\\n Add. \\n</think> \\n\\n It is 4. <|im_end|>
    1          1    1          2     2        2
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from spanloom.families.models.defaults import SPAN_ANALYSIS, SPAN_COMMENTARY, SPAN_FINAL
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import CONTENT, REASONING
from spanloom.families.models.prove.fields import Field
from spanloom.families.models.prove.refusals import REMEDIES, TOKEN_STRADDLES
from spanloom.families.models.prove.traced import Placed
from spanloom.supervision import Flags
from spanloom.tokenizers.character_spans import Offsets


def span_of(field: Field, *, calls: bool) -> int:
    """The span of a text: reasoning, answer, or calls and the content before them."""
    if field.kind == REASONING:
        return SPAN_ANALYSIS
    return SPAN_FINAL if field.kind == CONTENT and not calls else SPAN_COMMENTARY


def spans_of_tokens(
    whole: str, texts: Sequence[Placed], offsets: Offsets, *, calls: bool, added: re.Pattern[str]
) -> Flags:
    """Spans, uint8 [T]. `added`: the texts of added tokens. Raises RefusedError (`token_straddles`)."""
    if not texts:
        return np.full(len(offsets), SPAN_FINAL, np.uint8)
    numbers = [span_of(text.field, calls=calls) for text in texts]
    begins: list[int] = []  # where the spans of the second and later texts begin
    for before, after in pairwise(texts):
        closing = added.search(whole, before.end, after.start)
        begins.append(closing.end() if closing else after.start)
    pairs = np.asarray(offsets, np.int64).reshape(-1, 2)
    for (before, number), (after, following) in pairwise(zip(texts, numbers, strict=True)):
        both = (pairs[:, 0] < before.end) & (pairs[:, 1] > after.start)
        if number != following and both.any():
            first, end = pairs[both][0]
            raise RefusedError(
                TOKEN_STRADDLES, f"the token {whole[first:end]!r} is of two spans", REMEDIES[TOKEN_STRADDLES]
            )
    return np.array(numbers, np.uint8)[np.searchsorted(np.array(begins, np.int64), pairs[:, 0], side="right")]
