"""`spanloom build --model DIR`: the options of a build for a model."""

from functools import partial
from typing import Annotated, Literal

from spanloom.families.models import defaults
from spanloom.options.option import option

SERVED = "If a token would span the end of the prompt. served: prompt and answer are encoded apart, as servers do."
STOPS = partial(
    option,
    "A token that ends the assistant's turn, by its text or id; repeatable. Default: eos_token_id of "
    "generation_config.json.",
    "--stop",
    metavar="TOKEN",
)
DATE = partial(option, "The current date given to the template, such as 2025-01-31.", metavar="YYYY-MM-DD")
VARIABLES = partial(
    option,
    "A variable of the template; the value is JSON or plain text. Repeatable.",
    "--set",
    metavar="KEY=VALUE",
)
_of_model = partial(option, rich_help_panel="For a model (--model)")

ModelOption = Annotated[
    str | None,
    _of_model(
        "A model's folder, or hub snapshot, or its URI: build for its chat template and tokenizer instead of gpt-oss.",
        metavar="PLACE",
    ),
]
ThinkingOption = Annotated[
    Literal["auto", "on", "off"] | None,
    _of_model("Whether thinking is switched on in the template. Default: auto, as each run is proven."),
]
InlineThinkOption = Annotated[
    bool,
    _of_model(
        "If the template has no place for reasoning, write it into the content in <think> tags. Default: refuse it.",
        "--inline-think",
    ),
]
BoundaryOption = Annotated[Literal["served", "refuse"] | None, _of_model(f"{SERVED} Default: {defaults.BOUNDARY[0]}.")]
StopsOption = Annotated[list[str] | None, STOPS(**_of_model.keywords)]
DateOption = Annotated[str | None, DATE(**_of_model.keywords)]
VariablesOption = Annotated[list[str] | None, VARIABLES(**_of_model.keywords)]
CONTROL_TEXTS = (
    "Control tokens in texts that are not trained, of users, tools, system and tool definitions. as-served: ids as a "
    "server makes them, never the EOD. text: encoded as text."
)
ControlTextsOption = Annotated[
    Literal["refuse", "as-served", "text"] | None, _of_model(f"{CONTROL_TEXTS} Default: {defaults.CONTROL_TEXTS[0]}.")
]
EmissionOption = Annotated[
    str | None,
    _of_model(
        r"What the model writes after a prompt that the template does not continue: "
        r"'{reasoning}\n</think>\n\n{content}{eos}'. Declared, not proven.",
        metavar="TEXT",
    ),
]
