"""`spanloom build --model DIR`: the options of a build for a model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from spanloom.cli.app import finish_build, make_progress
from spanloom.cli.options import made_of, option
from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults as harmony
from spanloom.families.models import defaults

if TYPE_CHECKING:
    from spanloom.families.models.documents.rules import ModelRules

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
        "Whether the template's variable for thinking is on. Default: auto, as each run is proven.",
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

OF_MODELS = ("thinking", "inline_think", "boundary", "stop", "date", "variables", "emission")
"""Options of a build that need `--model`."""

OF_HARMONY = {
    "history": None,
    "turns": None,
    "call_format": None,
    "mask_generation_prompt": False,
    "max_tokens": None,
    "no_disk_check": False,
    "renderer": harmony.RENDERER,
    "audit_fraction": harmony.AUDIT_FRACTION,
    "tokenizer": None,
}
"""Options of a build that are not for `--model`, and their values where they are not given."""


def check_options(arguments: Mapping[str, Any]) -> None:
    """Raises SpanloomError for options of a model without `--model`, and for options of Harmony with it."""
    if arguments["model"] is None:
        wrong = [name for name in OF_MODELS if arguments[name]]
        remedy = "give --model DIR, or leave them away"
    else:
        wrong = [name for name, absent in OF_HARMONY.items() if arguments[name] != absent]
        remedy = "leave them away: they are for gpt-oss, without --model"
    if wrong:
        names = {"variables": "set"}
        given = ", ".join(f"--{names.get(name, name).replace('_', '-')}" for name in wrong)
        raise SpanloomError(f"{given} cannot be combined with what is built", remedy=remedy)


def build_for_model(arguments: Mapping[str, Any]) -> None:
    """`spanloom build` with `--model`. `arguments`: those of the command, by name."""
    from spanloom.cli.models.commands import variables_of
    from spanloom.conversations.source.caps import RowCaps
    from spanloom.families import dataset_family
    from spanloom.families.models.build import BuildOptions, build
    from spanloom.families.models.places import local_model
    from spanloom.families.models.source.formats import local_source
    from spanloom.text import visible_line

    progress = make_progress(arguments["quiet"], arguments["verbose"])
    progress.say(f"checking {visible_line(arguments['source'])} …")
    scratch = arguments["scratch"]
    with local_source(arguments["source"], scratch) as folder, local_model(arguments["model"], scratch) as model:
        options = made_of(
            BuildOptions,
            arguments,
            source=folder,
            source_as_given=arguments["source"],
            model=model,
            model_as_given=arguments["model"],
            rules=rules_of({**arguments, "variables": variables_of(arguments["variables"] or [])}),
            caps=made_of(RowCaps, arguments),
        )
        progress.detail(f"{options}")
        result = build(options, progress)
    family = dataset_family(result.manifest.content.family)
    finish_build(family, result.root, result.manifest, result.report, as_json=arguments["as_json"])


def rules_of(arguments: Mapping[str, Any]) -> "ModelRules":
    """The rules of options by name; `variables` are values, `stop` texts or ids.

    Raises typer.BadParameter or ModelError for a value that is none.
    """
    from spanloom.cli.models.commands import date_of
    from spanloom.families.models.documents.rules import ModelRules, parsed_train

    date_of(arguments["date"])  # raises for a text that is no day
    emission = arguments["emission"]
    return ModelRules(
        thinking=arguments["thinking"] or defaults.THINKING[0],
        inline_think=arguments["inline_think"],
        boundary=arguments["boundary"] or defaults.BOUNDARY[0],
        stops=tuple(map(str, arguments["stop"] or ())),
        date=arguments["date"],
        variables=arguments["variables"],
        train=defaults.SPAN_NAMES[1:] if arguments["train"] is None else parsed_train(arguments["train"]),
        # A shell hands a line feed on as two characters.
        emission=None if emission is None else emission.replace("\\n", "\n"),
        valid_fraction=arguments["valid_fraction"],
    )
