"""Self-contained HTML pages: no network, and no text from a dataset is ever run as code.

In: a template of this folder and values. Out: HTML. Every value is made `visible` and then escaped by Jinja, so
templates need not do it. Trusted markup (our own SVG, style, script) has the type Markup. The policy in the page's head
lets the browser run one script, identified by its hash, and fetch nothing.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from spanloom.text import visible

if TYPE_CHECKING:
    from jinja2 import Environment


def page(template: str, *, style: str, script: str | None = None, inline_styles: bool = False, **values: Any) -> str:
    """Renders a template with its style and script inlined.

    `inline_styles` allows style attributes, which drawn boards have; these are ours, never from a dataset.
    """
    css = _asset("page.css") + "\n" + _asset(style)
    js = _asset(script) if script else ""
    policy = [
        "default-src 'none'",
        f"style-src {_source(css)}",
        f"script-src {_source(js)}" if js else "script-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if inline_styles:
        policy.insert(2, "style-src-attr 'unsafe-inline'")
    return (
        _environment().get_template(template).render(policy="; ".join(policy), css=Markup(css), js=Markup(js), **values)
    )


def drawing(template: str, **values: Any) -> Markup:
    """Renders a part of a page, such as a plot. Values are escaped as in a page."""
    return Markup(_environment().get_template(template).render(**values).strip())


def load(*templates: str) -> None:
    """Loads templates, and what renders them, before a page is made."""
    for template in templates:
        _environment().get_template(template)


def _source(text: str) -> str:
    """The hash of a style or script, as in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return files("spanloom.report").joinpath("templates", name).read_text("utf-8").strip()


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("spanloom.report"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # Markup, a subclass of str, stays
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = lambda value: "–" if value is None else f"{value:,}"
    environment.filters["percent"] = percent
    return environment


def percent(value: float | None) -> str:
    """0.1234 → `12.3 %`. 100 % means exactly all, and 0 % exactly nothing."""
    if value is None:
        return "–"
    if value in (0, 1):
        return f"{value:.0%}".replace("%", " %")
    if value < 0.001:
        return f"{100 * value:.2g} %"
    return f"{min(100 * value, 99.9):.1f} %" if value < 1 else f"{100 * value:.1f} %"
