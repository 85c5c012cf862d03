"""Documents as one page: spans by colour and by the shape of their rule, tokens, ids and labels on demand, search.

In: `ShownDocument`s. Out: self-contained HTML. Each token is its own element with its id and its two values on disk, so
that the page can show boundaries and labels without a second copy of the text.
"""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

from spanloom.dataset.document import LEVELS, ShownDocument, ShownMessage, shown_parts
from spanloom.report.pages.html import page
from spanloom.report.terminal import Shown
from spanloom.text import hex_bytes, visible

_FEED, _MARKED_FEED = "\n", "<u></u>\n"
"""A line feed, with an empty element before it that makes it visible with token boundaries."""


def documents_page(
    title: str, documents: list[ShownDocument], *, sequences: int, shown: Shown, summary: Sequence[Sequence[str]] = ()
) -> str:
    """The page.

    Args: `sequences`, number of documents of the dataset; `shown`, what is switched on at first; `summary`, a table
    above the documents whose first row has the column names.
    """
    names = documents[0].span_names if documents else ("context",)
    scores = [token.score for document in documents for token in document.tokens if token.score]
    return page(
        "inspect.html.j2",
        style="inspect.css",
        script="inspect.js",
        title=title,
        sequences=sequences,
        summary=summary,
        documents=[_document(document, shown.most) for document in documents],
        span_names=" ".join(names),
        trained=names[1:],
        marker=next((token.text for document in documents for token in document.tokens if token.special), "<|start|>"),
        on={"teacher": int(bool(scores)), **{name: int(getattr(shown, name)) for name in ("tokens", "ids", "labels")}},
        levels=[f"{100 * level:g} %" for level in LEVELS],
        texts=sorted({(token, text) for score in scores for token, text, _ in score.top}),
    )


def _document(document: ShownDocument, most: int) -> dict[str, Any]:
    counts = document.span_tokens
    spans = [
        {"span": span, "name": name, "count": count}
        for span, (name, count) in enumerate(zip(document.span_names, counts, strict=True))
    ]
    total, x, bar = max(sum(counts), 1), 0.0, []
    for span, count in enumerate(counts):
        bar.append({"span": span, "x": round(x, 2), "width": round(100 * count / total, 2)})
        x += 100 * count / total
    return {
        "address": document.address,
        "id": document.id,
        "groups": list(document.groups.values()),
        "row": document.row,
        "notes": document.notes,
        "count": len(document.tokens),
        "spans": spans,
        "bar": bar,
        "messages": [_message(document, message, most) for message in document.messages],
    }


def _message(document: ShownDocument, message: ShownMessage, most: int) -> dict[str, Any]:
    head, missing, tail = shown_parts(message.first, message.last, len(document.tokens), most)
    opening = sum(document.tokens[position].header for position in head)  # headers come first
    state = f"learned as {document.span_names[message.span]}" if message.trained else "masked"
    return {
        "role": message.role,
        "channel": message.channel,
        "span": message.span,
        "state": state,
        "label": " ".join(filter(None, [message.role or "end of document", message.channel, state])),
        "count": message.last - message.first,
        "header": _tokens(document, message, head[:opening]),
        "head": _tokens(document, message, head[opening:]),
        "missing": missing,
        "tail": _tokens(document, message, tail),
    }


def _tokens(document: ShownDocument, message: ShownMessage, positions: range) -> Markup:
    """One `<i data-n=17 data-i=1428 data-k=1,2>text</i>` per token: position, id, loss mask and span on disk; and of a
    teacher, `data-o`: its log-probability, `data-r`: that of the rest, `data-t`: those of the top k by their ids."""
    parts = []
    for position in positions:
        token = document.tokens[position]
        flags = (("s", token.special), ("h", token.header), ("p", token.partial))
        kinds = [name for name, on in flags if on]
        if token.span != message.span:  # a damaged dataset, or a document's very first token
            kinds.append(f"x{token.span}")
        if token.score:
            kinds.append(f"b{token.score.level}")
        attributes = f' class="{" ".join(kinds)}"' if kinds else ""
        if token.partial:
            attributes += f' data-b="{hex_bytes(token.piece)}"'
        if score := token.score:
            top = " ".join(f"{each}:{value:.3f}" for each, _, value in score.top)
            attributes += f' data-o="{score.own:.3f}" data-r="{score.rest:.3f}" data-t="{top}"'
        parts.append(
            f'<i data-n="{position}" data-i="{token.id}" data-k="{token.disk[0]},{token.disk[1]}"{attributes}>'
            f"{str(escape(visible(token.text))).replace(_FEED, _MARKED_FEED)}</i>"
        )
    return Markup("".join(parts))
