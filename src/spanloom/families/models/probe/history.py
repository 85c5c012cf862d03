"""A template variable that keeps earlier thoughts, and what it saves.

In: a model, how conversations were proven for it, what became of them. Out: a `History`, or None. Where a template
drops thoughts of earlier turns, each run may need a document of its own; with the variable, one holds them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spanloom.families.models.conversation import Conversation
from spanloom.families.models.model import Model
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.refusals import Refusal

KEEPS_HISTORY = {
    "preserve_thinking": True,
    "preserved_thinking": True,
    "keep_past_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
}
"""Variables of published templates, and the value that keeps thoughts of earlier turns."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Documents and tokens of the conversations that are proven with the variable and without.

    variable, value   the variable that keeps earlier thoughts, and its value
    conversations     how many are proven both ways
    documents, tokens             of them, without the variable
    kept_documents, kept_tokens   of them, with it
    """

    variable: str
    value: bool
    conversations: int
    documents: int
    tokens: int
    kept_documents: int
    kept_tokens: int


def find_history(
    model: Model, proving: Proving, tried: Sequence[tuple[Conversation, Proven | Refusal]]
) -> History | None:
    """What the template's variable saves; None if it has none, the user sets it, or it saves nothing."""
    read = model.template.variables()
    given = {name for values in proving.variables for name in values}
    name = next((name for name in KEEPS_HISTORY if name in read - given), None)
    if name is None:
        return None
    keeping: list[dict[str, Any]] = [{**values, name: KEEPS_HISTORY[name]} for values in proving.variables]
    kept = replace(proving, variables=keeping)
    pairs = [
        (outcome, other)
        for conversation, outcome in tried
        if isinstance(outcome, Proven) and isinstance(other := prove_conversation(model, conversation, kept), Proven)
    ]
    documents, tokens = _size([outcome for outcome, _ in pairs])
    kept_documents, kept_tokens = _size([other for _, other in pairs])
    if kept_tokens >= tokens:
        return None
    return History(
        variable=name,
        value=KEEPS_HISTORY[name],
        conversations=len(pairs),
        documents=documents,
        tokens=tokens,
        kept_documents=kept_documents,
        kept_tokens=kept_tokens,
    )


def _size(outcomes: Sequence[Proven]) -> tuple[int, int]:
    """Documents and their tokens."""
    documents = [document for outcome in outcomes for document in outcome.documents]
    return len(documents), sum(len(document.tokens) for document in documents)
