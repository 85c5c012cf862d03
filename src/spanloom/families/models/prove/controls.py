"""Control tokens in the texts that a run sees: refused, kept as a server makes them, or encoded as text.

In: a conversation, the place of a run, F. Out: how many control tokens its context holds; an encoder for F. Raises
RefusedError (`special_in_text`). The texts of the run itself never hold one: `run` refuses that.

To encode them as text, F is rendered again with words in their place: see `tokenizers.control_texts`.
"""

from dataclasses import dataclass
from typing import Any

from spanloom.families.models.conversation import Conversation
from spanloom.families.models.defaults import CONTROL_TEXTS
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import Form, shaped
from spanloom.families.models.model import Model
from spanloom.families.models.prove.refusals import REMEDIES, SPECIAL_IN_TEXT, STRUCTURE_DEPENDS_ON_TEXT
from spanloom.supervision import Tokens
from spanloom.tokenizers.control_texts import (
    ControlTextError,
    check_plain,
    controls_in,
    encoded_as_text,
    without_controls,
)

REFUSE, AS_SERVED, TEXT = CONTROL_TEXTS

_NAMES = ("tool_call_id", "name")
_TEXTS = ("content", "reasoning", "tool_calls", *_NAMES)


@dataclass(frozen=True)
class Control:
    """A control token in a text. `message`: the place of its message, -1 for tools and variables."""

    message: int
    where: str
    token: str


def controls_of(model: Model, conversation: Conversation, eod: str | None) -> list[Control]:
    """The control tokens in all texts of a conversation."""
    pattern = model.special_and(eod)
    found: list[Control] = []

    for place, message in enumerate(conversation.messages):
        for key in _TEXTS:
            if tokens := [*controls_in(message.get(key), pattern)]:
                where = f"{key} of message {place} ({message['role']})"
                found += [Control(place, where, token) for token in tokens]
    for where, value in (("the tools", conversation.tools), ("the template's variables", conversation.variables)):
        found.extend(Control(-1, where, token) for token in controls_in(value, pattern))
    return found


def check_context(controls: list[Control], run: int, how: str, eod: str | None) -> int:
    """The number of control tokens that a run sees. Raises RefusedError for one that is not allowed.

    `how`: one of `CONTROL_TEXTS`. The EOD of the dataset is never kept: it would end a document in its middle.
    """
    seen = [control for control in controls if control.message < run]
    refused = next((control for control in seen if how == REFUSE or (how == AS_SERVED and control.token == eod)), None)
    if refused is not None:
        kept = "" if refused.token == eod else "; --control-texts as-served keeps it as a server makes it"
        what = "the dataset's EOD" if refused.token == eod else "the control token"
        raise RefusedError(
            SPECIAL_IN_TEXT,
            f"{what} {refused.token!r} is in {refused.where}",
            f"--control-texts text encodes it as text{kept}",
        )
    return len(seen)


class LiteralEncoder:
    """The ids of F and of its beginnings, with the control tokens in texts as ordinary text."""

    def __init__(self, model: Model, whole: str, plain: str) -> None:
        """`plain`: F with words in place of these control tokens. Raises RefusedError."""
        self._model, self._whole, self._plain = model, whole, plain
        try:
            check_plain(whole, plain, model.special)
        except ControlTextError as fault:
            raise RefusedError(STRUCTURE_DEPENDS_ON_TEXT, str(fault), REMEDIES[STRUCTURE_DEPENDS_ON_TEXT]) from None

    def ids(self, text: str) -> Tokens:
        """Token ids of F, of its beginning, or of F and what follows; int32 [T]. Raises RefusedError."""
        length = min(len(text), len(self._whole))
        if text[:length] != self._whole[:length]:  # the completion alone, which holds no such token
            return self._model.encoder.ids(text)
        plain = (self._plain + text[len(self._whole) :])[: len(text)]
        try:
            return encoded_as_text(self._model.tokenizer, text, plain, self._model.special).ids
        except ControlTextError as fault:
            raise RefusedError(SPECIAL_IN_TEXT, str(fault), REMEDIES[SPECIAL_IN_TEXT]) from None


def plain_messages(model: Model, conversation: Conversation, form: Form) -> list[dict[str, Any]]:
    """The messages for the template, with words in place of control tokens."""
    messages = []
    for message in conversation.messages:
        written = shaped(message, form, _Harmless(model))
        named = {key: plain_values(model, written[key]) for key in _NAMES if key in written}
        messages.append({**written, **named})
    return messages


def plain_values(model: Model, value: Any) -> Any:
    """A JSON value with words in place of control tokens."""
    return without_controls(value, model.special)


class _Harmless:
    """Replaces control tokens in texts by words of the same length; as `form.Texts`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def text(self, kind: str, value: str) -> str:  # noqa: ARG002  # as the protocol has it
        plain: str = plain_values(self._model, value)
        return plain

    def number(self, value: float | None) -> float | None:
        return value
