"""The record route: every conversation rendered by openai-harmony's own package, which is the authority.

In: checked conversations. Out: `RenderedBatch`: one document per conversation, each closed by a masked EOD, plus the
conversations that openai-harmony refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from openai_harmony import Conversation as HarmonyConversation
from openai_harmony import HarmonyEncoding, HarmonyError, Message, RenderConversationConfig, Role

from spanloom.conversations.source.structure import LabelledConversation
from spanloom.errors import is_rust_panic
from spanloom.families.harmony.tokenizer import EOD, START
from spanloom.supervision import SPAN_CONTEXT, Flags, TokenDocuments, Tokens, spans_from_messages

KEEP_ANALYSIS = RenderConversationConfig(auto_drop_analysis=False)
"""The default of openai-harmony would drop the reasoning of all answers but the last."""


@dataclass(frozen=True, kw_only=True)
class RenderedBatch:
    """`documents` holds the conversations at the indices `kept`, in order; `refused` the others with the reason.

    `fallbacks`: the number of conversations that the fast route passed to this one.
    """

    documents: TokenDocuments
    kept: list[int]
    refused: list[tuple[int, str]]
    fallbacks: int = 0


def render_through_harmony(conversations: Sequence[LabelledConversation], encoding: HarmonyEncoding) -> RenderedBatch:
    """Renders each conversation whole. Rendering single messages would not give the same: tools change the system text,
    and the last message ends differently."""
    tokens: list[Tokens] = []
    spans: list[Flags] = []
    kept: list[int] = []
    refused: list[tuple[int, str]] = []
    for index, conversation in enumerate(conversations):
        try:
            rendered = render_one(conversation.messages, encoding)
            span = spans_from_messages(rendered, conversation.labels, message_start=START)
            if conversation.truncated:
                span[_last_tokens(rendered)[list(conversation.truncated)]] = SPAN_CONTEXT
        except RefusedByRendererError as refusal:
            refused.append((index, str(refusal)))
            continue
        except ValueError as fault:
            # Text with a second <|start|> could shift a span, so such a render is refused.
            refused.append((index, f"the render does not match its messages: {fault}"))
            continue
        tokens += (rendered, _EOD)
        spans += (span, _CONTEXT)
        kept.append(index)
    lengths = np.array([part.size + 1 for part in tokens[::2]], dtype=np.int32)
    span_id = np.concatenate([_NO_FLAGS, *spans])
    return RenderedBatch(
        documents=TokenDocuments(
            tokens=np.concatenate([_NO_TOKENS, *tokens]),
            loss_mask=(span_id != SPAN_CONTEXT).view(np.uint8),
            span_id=span_id,
            lengths=lengths,
        ),
        kept=kept,
        refused=refused,
    )


def _last_tokens(rendered: Tokens) -> npt.NDArray[np.int64]:
    """The place of the last token of each message of a render without EOD, int64 [messages]."""
    return np.append(np.flatnonzero(rendered == START)[1:], rendered.size) - 1


def untrain_ends(documents: TokenDocuments, conversations: Sequence[LabelledConversation]) -> None:
    """Makes the last token of each truncated message context, in place. `conversations`: of each document."""
    ends = np.cumsum(documents.lengths, dtype=np.int64)
    for number, conversation in enumerate(conversations):
        if not conversation.truncated:
            continue
        first = int(ends[number] - documents.lengths[number])
        last = first + _last_tokens(documents.tokens[first : int(ends[number]) - 1])[list(conversation.truncated)]
        documents.loss_mask[last] = 0
        documents.span_id[last] = SPAN_CONTEXT


class RefusedByRendererError(Exception):
    """openai-harmony refuses to render this conversation."""


def render_one(messages: Sequence[dict[str, Any]], encoding: HarmonyEncoding) -> Tokens:
    """One conversation's messages through openai-harmony's public wrapper, without EOD. Returns int32 [T].

    The public wrapper, not the raw binding, because it sets the fields that a `system_content` leaves out.
    """
    return _rendered(lambda: encoding.render_conversation_for_training(_conversation(messages), KEEP_ANALYSIS))


def render_prompt(messages: Sequence[dict[str, Any]], encoding: HarmonyEncoding, *, drop_analysis: bool) -> Tokens:
    """openai-harmony's prompt for the next message, without the last two tokens `<|start|>assistant`, which belong to
    that message. Returns int32 [T]. Raises RefusedByRendererError.

    `drop_analysis`: leave out reasoning as openai-harmony does by default.
    """
    config = RenderConversationConfig(auto_drop_analysis=drop_analysis)
    return _rendered(
        lambda: encoding.render_conversation_for_completion(_conversation(messages), Role.ASSISTANT, config)[:-2]
    )


def _conversation(messages: Sequence[dict[str, Any]]) -> HarmonyConversation:
    return HarmonyConversation(messages=[Message.from_dict(message) for message in messages])


def _rendered(render: Callable[[], list[int]]) -> Tokens:
    """The result of `render`. Raises RefusedByRendererError for any exception of openai-harmony."""
    try:
        rendered = render()
    except (HarmonyError, RuntimeError, ValueError, TypeError, KeyError, AttributeError) as refusal:
        # The exceptions of the wrapper and its Rust code for invalid content: a type that is unknown or not allowed for
        # the role, no content, a field of a wrong type.
        first_line = (str(refusal).splitlines() or [""])[0]
        raise RefusedByRendererError(f"{type(refusal).__name__}: {first_line}") from refusal
    except BaseException as panic:
        # Its regex engine overflows on a megabyte of spaces, for instance.
        if not is_rust_panic(panic):
            raise
        raise RefusedByRendererError(f"openai-harmony panicked: {panic}") from panic
    return np.array(rendered, dtype=np.int32)


_EOD = np.array([EOD], dtype=np.int32)
_CONTEXT = np.array([SPAN_CONTEXT], dtype=np.uint8)
_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_FLAGS = np.empty(0, dtype=np.uint8)
