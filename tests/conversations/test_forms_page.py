"""docs/convert.md lists every form and all markup that is known: its tables are made of the tables in the code,
and of `forms.toml`.

`python tests/conversations/test_forms_page.py` writes them anew.
"""

import re
import tomllib
from pathlib import Path

from spanloom.conversations.forms.registry import FORMS
from spanloom.conversations.reading.markup import CALL_STYLES, SOLUTION_TAGS, TEMPLATE_SHAPES, THINK_TAGS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "convert.md"
ABOUT = tomllib.loads(Path(__file__).with_name("forms.toml").read_text("utf-8"))
"""Form → its records, and the tools that write or take them."""
EXAMPLES = {
    "openai_messages": (
        *("anthropic.jsonl", "bedrock.jsonl", "wildchat.jsonl", "llama_factory_v1.jsonl"),
        *("openhands.jsonl", "opentelemetry.jsonl", "ai_sdk.jsonl"),
    ),
    "sharegpt": ("hermes.jsonl", "toolace.jsonl", "stratos.jsonl"),
    "alternating": ("ultrachat.jsonl", "lima.jsonl"),
    "gemini": ("gemini.jsonl", "vertex_preference.jsonl"),
    "trajectories": ("swe_agent.jsonl",),
    "columns": ("alpaca_history.jsonl", "kto.jsonl", "columns.csv"),
    "preference": ("preference.jsonl", "preference_openai.jsonl", "preference_turns.jsonl", "ultrafeedback.jsonl"),
}


def forms_table() -> str:
    """A row for each form, in the order in which they are tried."""
    rows = ["| form | records | written or taken by | examples |", "|---|---|---|---|"]
    for form in FORMS:
        names = EXAMPLES.get(form.name, (f"{form.name}.jsonl",))
        links = ", ".join(f"[{Path(name).stem}](examples/forms/{name})" for name in names)
        about = ABOUT[form.name]
        rows.append(f"| `{form.name}` | {about['records']} | {about['peers']} | {links} |")
    return "\n".join(rows)


def markup_table() -> str:
    """A row for each option, with the markup that it reads."""

    def written(marks: tuple[str, ...]) -> str:
        return " ".join(f"`{mark.replace('|', chr(92) + '|')}`" for mark in marks)

    rows = ["| in an answer | option that reads it |", "|---|---|"]
    pairs = tuple(f"{opening}…{closing}" for opening, closing in (*THINK_TAGS, *SOLUTION_TAGS))
    rows.append(f"| {written(pairs)} | `--think-tags` |")
    for style, marks in CALL_STYLES.items():
        rows.append(f"| {written(marks or ('[f(a=1)]',))} | `--call-tags {style}` |")
    shapes = (*TEMPLATE_SHAPES, "[NAME]…[/NAME]", "<tools>…</tools>", "</s>")
    rows.append(f"| what chat templates write, by its shape: {written(shapes)} | `--text-as-is` |")
    return "\n".join(rows)


TABLES = {"forms": forms_table, "markup": markup_table}


def with_tables(page: str) -> str:
    for name, table in TABLES.items():
        pattern = re.compile(f"(<!-- {name}:[^>]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        assert pattern.search(page), f"{PAGE} has no place for the table of {name}"
        page = pattern.sub(lambda found, table=table: f"{found[1]}{table()}\n{found[2]}", page)  # type: ignore[misc]
    return page


def test_the_page_has_the_tables_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "python tests/conversations/test_forms_page.py writes them anew"


def test_the_texts_are_those_of_the_forms_and_of_no_others() -> None:
    assert sorted(ABOUT) == sorted(form.name for form in FORMS)


def test_every_example_that_is_named_is_there() -> None:
    names = [name for form in FORMS for name in EXAMPLES.get(form.name, (f"{form.name}.jsonl",))]
    assert [name for name in names if not (DOCS / "examples/forms" / name).is_file()] == []


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
