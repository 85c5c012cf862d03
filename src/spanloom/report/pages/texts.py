"""Texts and tables with links as one page, for what a service shows.

In: sections of labelled texts and of rows. Out: HTML that needs nothing from outside; its policy fetches nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from spanloom.report.pages.html import page

Link = tuple[str, str | None]
"""What is shown, and the path that it leads to; None for text alone."""


@dataclass(frozen=True, kw_only=True)
class TextSection:
    """`texts`: label and text, each in a block of its own; `rows`: a table below `columns`; `after`: a line below."""

    heading: str
    texts: Sequence[tuple[str, str]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Link]] = ()
    after: str = ""


def texts_page(
    title: str, *, path: Sequence[Link], sections: Sequence[TextSection], figures: Sequence[tuple[str, str]] = ()
) -> str:
    """The page. `path`: where it is, from the top; `figures`: names and values set large."""
    return page("texts.html.j2", style="texts.css", title=title, path=path, figures=figures, sections=sections)
