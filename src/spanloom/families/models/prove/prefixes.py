"""Method B: F begins with P, in characters and in tokens; the rest is the completion.

In: P, F, the encoder. Out: the ids of P and of the completion. Raises RefusedError: `prompt_not_prefix`,
`merge_at_boundary`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spanloom.families.models.errors import RefusedError
from spanloom.families.models.prove.refusals import MERGE_AT_BOUNDARY, PROMPT_NOT_PREFIX, REMEDIES
from spanloom.supervision import Tokens

JOINED, SERVED = "joined", "served"


@dataclass(frozen=True)
class Encoded:
    """`prompt` and `completion`: int32 ids; `boundary`: `joined`, or `served` if each was encoded alone."""

    prompt: Tokens
    completion: Tokens
    boundary: str


def check_prefix(prompt: str, whole: str) -> None:
    """Raises RefusedError (`prompt_not_prefix`) unless the whole text begins with the prompt."""
    if whole.startswith(prompt):
        return
    at = next(
        (place for place, (left, right) in enumerate(zip(prompt, whole, strict=False)) if left != right),
        min(len(prompt), len(whole)),
    )
    raise RefusedError(
        PROMPT_NOT_PREFIX,
        f"the prompt has {prompt[at : at + 30]!r} where the whole text has {whole[at : at + 30]!r}, "
        f"{len(prompt) - at} characters before the prompt ends",
        REMEDIES[PROMPT_NOT_PREFIX],
    )


class Encoder(Protocol):
    """Texts → ids, int32 [T]."""

    def ids(self, text: str) -> Tokens: ...


def encoded(prompt: str, whole: str, encoder: Encoder, *, served: bool) -> Encoded:
    """The ids of both parts. If a token would span the boundary: encoded apart if `served`, otherwise RefusedError."""
    prompt_ids, whole_ids = encoder.ids(prompt), encoder.ids(whole)
    if np.array_equal(whole_ids[: len(prompt_ids)], prompt_ids):
        return Encoded(prompt_ids, whole_ids[len(prompt_ids) :], JOINED)
    if served:
        return Encoded(prompt_ids, encoder.ids(whole[len(prompt) :]), SERVED)
    raise RefusedError(
        MERGE_AT_BOUNDARY,
        f"a token spans the end of the prompt {prompt[-20:]!r} and the begin of the answer "
        f"{whole[len(prompt) : len(prompt) + 20]!r}",
        REMEDIES[MERGE_AT_BOUNDARY],
    )
