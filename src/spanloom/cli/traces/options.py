"""Options of `spanloom traces …` and of its steps, and what is made of them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from spanloom.families.traces import defaults

if TYPE_CHECKING:
    from spanloom.families.traces.build import BuildRequest
    from spanloom.families.traces.export.lines import ExportOptions

Format = Literal["trace", "tunix_sft", "training_example"]
TracesRootOption = Annotated[
    Path | None,
    typer.Option("--root", help=f"Folder of the store and of the datasets. Default: {defaults.ROOT}.", metavar="DIR"),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="SPANLOOM_TRACES_STORE",
        help="The store: sqlite:///PATH or postgresql://USER@HOST/DATABASE. Default: traces.sqlite below the root.",
    ),
]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The dataset: NAME-VERSION.", show_default=False)]
FormatOption = Annotated[Format, typer.Option("--format", help="Which of the three exports.")]
ControlTokensOption = Annotated[
    Literal["verbatim", "reject", "escape"],
    typer.Option(help="Control strings such as <end_of_turn> in content: copy, refuse, or break by U+200B."),
]
SortStepsOption = Annotated[
    bool, typer.Option("--sort-steps", help="Steps by their index; without it in the order of the list.")
]
SystemOption = Annotated[str | None, typer.Option(help="A text put before every prompt.")]
ProtectOption = Annotated[
    bool,
    typer.Option(
        "--protect-metadata/--no-protect-metadata",
        help="created_at and the like are the exporter's; clashing keys of meta move to metadata.meta. Without: meta "
        "wins.",
    ),
]
IdsOption = Annotated[
    Literal["content", "random"],
    typer.Option(help="Ids from the content, so that nothing is stored twice, or new ones."),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="A line that is no trace stops; nothing is stored.")]
CreatedAtOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="ISO 8601: the time of the first trace, each later one a microsecond after."),
]
NameOption = Annotated[str, typer.Option(help="Name of the dataset; the key is NAME-VERSION.")]
VersionOption = Annotated[str, typer.Option(help="Version of the dataset.")]
FilterOption = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="KEY=JSON", help="A key of meta and its value, as JSON; repeatable: all hold."),
]
LimitOption = Annotated[int, typer.Option(help="At most so many traces.", min=1, max=10_000)]
StrategyOption = Annotated[Literal["latest", "random"], typer.Option(help="The newest, or a sample by --seed.")]
SeedOption = Annotated[int | None, typer.Option(help="Of a random sample.")]
ValidFractionOption = Annotated[
    float, typer.Option(help="Share of the traces held out for validation; the id alone decides.", min=0, max=1)
]
EodOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN", help="The token that ends a document. Default: eos_token of the tokenizer_config.json beside."
    ),
]


def build_request(**options: Any) -> "BuildRequest":
    """What the options ask for; what is wrong with them is told before a store is opened."""
    from pydantic import ValidationError

    from spanloom.families.traces.build import BuildRequest, key_of
    from spanloom.families.traces.errors import OptionError

    try:
        request = BuildRequest.model_validate(options)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        name, *inner = map(str, first["loc"])
        option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        raise OptionError(f"{'.'.join([option, *inner])}: {first['msg']}") from None
    key_of(request)
    return request


_OPTIONS = {
    "dataset_name": "--name",
    "dataset_version": "--version",
    "filters": "--filter",
    "selection_strategy": "--strategy",
}
"""Options that are not called as the fields of a request are."""


def key_values(option: str, values: list[str] | None) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for pair in values or ():
        key, equals, text = pair.partition("=")
        if key in pairs:
            raise typer.BadParameter(f"{key!r} is given twice, and has one value alone", param_hint=option)
        try:
            pairs[key] = json.loads(text)
        except (ValueError, RecursionError):
            equals = ""
        if not equals or not key:
            raise typer.BadParameter(
                f"{pair!r} is not KEY=JSON; a text has quotes: '{key}=\"{text}\"'", param_hint=option
            )
    return pairs


def export_options(
    protect_metadata: bool, control_tokens: Any, sort_steps: bool, system: str | None
) -> "ExportOptions":
    from spanloom.families.traces.export.lines import ExportOptions

    return ExportOptions(
        protect_metadata=protect_metadata, control_tokens=control_tokens, sort_steps=sort_steps, system=system or None
    )
