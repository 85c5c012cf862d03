"""Conversations → tokens, loss mask and spans.

In: checked conversations. Out: `TokenDocuments`, one document a conversation, each closed by a masked EOD, plus the
conversations that the renderer refused. openai-harmony is the renderer of record: a faster one may stand beside it in
`load_renderer` when it gives the same bits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from openai_harmony import Conversation as HarmonyConversation
from openai_harmony import HarmonyEncoding, HarmonyError, Message, RenderConversationConfig

from spanloom.errors import SpanloomError
from spanloom.harmony.conversations import Conversation
from spanloom.harmony.tokenizer import EOD, START, load_encoding
from spanloom.supervision import SPAN_CONTEXT, Flags, TokenDocuments, Tokens, spans_from_messages

KEEP_ANALYSIS = RenderConversationConfig(auto_drop_analysis=False)
"""The wrapper's default would drop the reasoning of all but the last answer."""


@dataclass(frozen=True, kw_only=True)
class RenderedBatch:
    """`documents` holds the conversations at the indices `kept`, in order; `refused` the others with the reason."""

    documents: TokenDocuments
    kept: list[int]
    refused: list[tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class Renderer:
    """A way to render; whichever it is, the bits are openai-harmony's."""

    name: str
    render: Callable[[Sequence[Conversation]], RenderedBatch]


def load_renderer(name: str, asset: Path) -> Renderer:
    """The renderer called `name`, its encoding made from the verified `asset`. Takes 0.3 s; load it once a process."""
    check_renderer(name)
    return RENDERERS[name](load_encoding(asset))


def harmony_renderer(encoding: HarmonyEncoding) -> Renderer:
    """The renderer of record: every row through openai-harmony's own conversation render."""
    return Renderer(
        name="harmony",
        render=lambda conversations: render_through_harmony(conversations, encoding),
    )


def renderer_version(name: str) -> str:
    """What the manifest says of a renderer: the libraries that made the tokens."""
    check_renderer(name)
    return f"openai-harmony {version('openai-harmony')}"


RENDERERS: dict[str, Callable[[HarmonyEncoding], Renderer]] = {"harmony": harmony_renderer}


def check_renderer(name: str) -> None:
    """Raises SpanloomError when there is no renderer of this name."""
    if name not in RENDERERS:
        raise SpanloomError(f"there is no renderer {name!r}", remedy=f"use one of: {', '.join(RENDERERS)}")


def render_through_harmony(conversations: Sequence[Conversation], encoding: HarmonyEncoding) -> RenderedBatch:
    """Renders each conversation whole: joining per-message renders is not always the same (tools change the system
    text), and only the conversation render knows which message is the very last."""
    tokens: list[Tokens] = []
    spans: list[Flags] = []
    kept: list[int] = []
    refused: list[tuple[int, str]] = []
    for index, conversation in enumerate(conversations):
        try:
            rendered = render_one(conversation, encoding)
            span = spans_from_messages(rendered, conversation.labels, message_start=START)
        except RefusedByRendererError as refusal:
            refused.append((index, str(refusal)))
            continue
        except ValueError as fault:
            # A second <|start|> in one message would let text move a span: never trust such a render.
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


class RefusedByRendererError(Exception):
    """openai-harmony does not take this conversation."""


def render_one(conversation: Conversation, encoding: HarmonyEncoding) -> Tokens:
    """One conversation through openai-harmony's public wrapper, without EOD. Returns int32 [T].

    The wrapper, not the raw binding: it fills the fields that a `system_content` leaves out, and its meaning counts.
    """
    try:
        harmony = HarmonyConversation(messages=[Message.from_dict(message) for message in conversation.messages])
        rendered = encoding.render_conversation_for_training(harmony, KEEP_ANALYSIS)
    except (HarmonyError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as refusal:
        # What the wrapper raises for content it cannot read: an unknown type, no content, a field of another type.
        first_line = (str(refusal).splitlines() or [""])[0]
        raise RefusedByRendererError(f"{type(refusal).__name__}: {first_line}") from refusal
    except BaseException as panic:
        # The Rust side panics (a BaseException without an importable type) where its regex engine overflows,
        # for instance on a megabyte of spaces.
        if type(panic).__name__ != "PanicException":
            raise
        raise RefusedByRendererError(f"openai-harmony panicked: {panic}") from panic
    return np.array(rendered, dtype=np.int32)


_EOD = np.array([EOD], dtype=np.int32)
_CONTEXT = np.array([SPAN_CONTEXT], dtype=np.uint8)
_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_FLAGS = np.empty(0, dtype=np.uint8)
