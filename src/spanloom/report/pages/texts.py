"""Texts and tables with links as one page, for a service.

In: sections of labelled texts and of rows. Out: HTML without external resources; its policy lets it fetch nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from spanloom.report.pages.html import page

Link = tuple[str, str | None]
"""The text, and the path that it links to; None: text without a link."""


@dataclass(frozen=True, kw_only=True)
class TextSection:
    """`texts`: label and text, each in its own block; `rows`: a table below `columns`; `after`: a line below."""

    heading: str
    texts: Sequence[tuple[str, str]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Link]] = ()
    after: str = ""


def texts_page(
    title: str, *, path: Sequence[Link], sections: Sequence[TextSection], figures: Sequence[tuple[str, str]] = ()
) -> str:
    """The page. `path`: breadcrumbs, from the top; `figures`: names and values in large type."""
    return page("texts.html.j2", style="texts.css", title=title, path=path, figures=figures, sections=sections)
