"""Options of `spanloom traces …` and of its steps, and objects made from them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from spanloom.families.traces import defaults
from spanloom.options.option import option

if TYPE_CHECKING:
    from spanloom.families.traces.build import BuildRequest


def _or_before(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """The value of an option, which may also come before the command: `spanloom traces --root DIR list`."""
    return value or (context.obj or {}).get(parameter.name)


Format = Literal["trace", "tunix_sft", "training_example", "messages"]
Root = Annotated[
    Path | None,
    option(
        f"Folder of the store and of the datasets. Default: {defaults.ROOT}.",
        "--root",
        metavar="DIR",
        callback=_or_before,
    ),
]
Store = Annotated[
    str | None,
    option(
        "The store: sqlite:///PATH or postgresql://USER@HOST/DATABASE. Default: traces.sqlite below the root.",
        "--store",
        metavar="URL",
        callback=_or_before,
        envvar="SPANLOOM_TRACES_STORE",
    ),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The dataset: NAME-VERSION.")]
FormatOption = Annotated[Format, option("Which of the exports.", "--format")]
TokenizeFormat = Annotated[
    Literal["tunix_sft", "training_example"], option("Which export the tokens are of.", "--format")
]
ControlTokens = Annotated[
    Literal["verbatim", "reject", "escape"],
    option("Control strings such as <end_of_turn> in content: copy, refuse, or break by U+200B."),
]
TokenizeControls = Annotated[
    Literal["reject", "refuse", "verbatim", "as-served", "escape", "text"],
    option(
        "Control tokens in content: refuse (reject), copy as servers do (verbatim, as-served) but never the EOD, break "
        "by U+200B (escape), or encode as text.",
        "--control-tokens",
        "--control-texts",
    ),
]
SAME_CONTROLS = {"refuse": "reject", "as-served": "verbatim"}
"""Names of `build --control-texts` → those of the formats of traces."""

SortSteps = Annotated[bool, option("Sort steps by their index. Default: the order of the list.", "--sort-steps")]
System = Annotated[str | None, option("A text put before every prompt.")]
Ids = Annotated[
    Literal["content", "random"], option("Ids from the content, so that nothing is stored twice, or new ones.")
]
CreatedAt = Annotated[
    str | None, option("ISO 8601: the time of the first trace, each later one a microsecond after.", metavar="TIME")
]
MaxStepCharacters = Annotated[
    int | None,
    option(
        "How long a step may be, up to 1,000,000 characters; the store remembers it. Default: what the store "
        "remembers, else 20,000.",
        min=1,
        max=1_000_000,
    ),
]
Name = Annotated[str, option("Name of the dataset; the key is NAME-VERSION.")]
Version = Annotated[str, option("Version of the dataset.")]
Limit = Annotated[int, option("At most this many traces.", min=1, max=10_000)]
Strategy = Annotated[Literal["latest", "random"], option("The newest, or a sample by --seed.")]
ValidFraction = Annotated[
    float, option("Share of the traces held out for validation; the id alone decides.", min=0, max=1)
]
Eod = Annotated[
    str | None,
    option("The token that ends a document. Default: eos_token of the tokenizer_config.json beside.", metavar="TOKEN"),
]


def build_request(options: Mapping[str, Any], /, **others: Any) -> "BuildRequest":
    """The request from the options; `others` take precedence. Raises before a store is opened."""
    from pydantic import ValidationError

    from spanloom.errors import OptionError
    from spanloom.families.traces.build import BuildRequest, key_of

    fields = {field: _OPTIONS.get(field, field).removeprefix("--") for field in BuildRequest.model_fields}
    named = {field: options[name] for field, name in fields.items() if name in options}
    try:
        request = BuildRequest.model_validate({**named, **others})
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
"""Options whose names differ from the fields of a request."""


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
