"""`spanloom build --model DIR`: the options of a build for a model."""

from typing import Annotated, Literal

from spanloom.cli.options import option
from spanloom.families.models import defaults

PANEL = "For a model (--model)"

ModelOption = Annotated[
    str | None,
    option(
        "A model's folder, or hub snapshot, or its URI: build for its chat template and tokenizer instead of gpt-oss.",
        metavar="PLACE",
        rich_help_panel=PANEL,
    ),
]
ThinkingOption = Annotated[
    Literal["auto", "on", "off"] | None,
    option(
        "Whether the template is told that the model thinks. Default: auto, as each run is proven.",
        rich_help_panel=PANEL,
    ),
]
InlineThinkOption = Annotated[
    bool,
    option(
        "Write reasoning into the content in <think> tags where the template knows none. Default: refuse it there.",
        "--inline-think",
        rich_help_panel=PANEL,
    ),
]
BoundaryOption = Annotated[
    Literal["served", "refuse"] | None,
    option(
        "Where a token would span the end of the prompt. served: prompt and answer are encoded apart, as servers do. "
        f"Default: {defaults.BOUNDARY[0]}.",
        rich_help_panel=PANEL,
    ),
]
StopsOption = Annotated[
    list[str] | None,
    option(
        "A token that ends the assistant's turn, by its text or id; several times. Default: eos_token_id of "
        "generation_config.json.",
        "--stop",
        metavar="TOKEN",
        rich_help_panel=PANEL,
    ),
]
DateOption = Annotated[
    str | None,
    option("What the template takes for today: 2025-01-31.", metavar="YYYY-MM-DD", rich_help_panel=PANEL),
]
VariablesOption = Annotated[
    list[str] | None,
    option(
        "A variable of the template; the value is JSON, else a text. Several times.",
        "--set",
        metavar="KEY=VALUE",
        rich_help_panel=PANEL,
    ),
]
EmissionOption = Annotated[
    str | None,
    option(
        r"What the model writes behind a prompt that the template does not continue: "
        r"'{reasoning}\n</think>\n\n{content}{eos}'. Declared, not proven.",
        metavar="TEXT",
        rich_help_panel=PANEL,
    ),
]
