"""Options of `spanloom traces …` and of its steps, and objects made from them."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from spanloom.cli.app import traces_app
from spanloom.errors import OptionError
from spanloom.families.traces import defaults
from spanloom.options.option import option
from spanloom.options.shared import DealtOptions, OnDuplicate

if TYPE_CHECKING:
    from spanloom.families.traces.build import BuildRequest
    from spanloom.families.traces.store.database import Store as TraceStore


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


@traces_app.callback()
def traces(context: typer.Context, root: Root = None, store: Store = None) -> None:
    """Reasoning traces: a store, reproducible datasets of it, exports, token datasets."""
    context.obj = {"root": root, "store": store}


@dataclass(frozen=True, kw_only=True)
class Places:
    """The folder of the datasets, and the store of traces."""

    root: Root = None
    store: Store = None

    @property
    def folder(self) -> Path:
        return self.root or Path(defaults.ROOT)

    @contextmanager
    def opened(self, *, create: bool = False) -> "Iterator[TraceStore]":
        from spanloom.families.traces.store.opening import default_url, open_store

        url = self.store or default_url(self.folder)
        with closing(open_store(url, create=create)) as store:
            yield store


Key = Annotated[str, typer.Argument(metavar="KEY", help="The dataset: NAME-VERSION.")]
FormatOption = Annotated[Format, option("Which of the exports.", "--format")]
TokenizeFormat = Annotated[
    Literal["tunix_sft", "training_example"], option("Which export the tokens are of.", "--format")
]
ControlTokens = Annotated[
    Literal["verbatim", "reject", "escape"],
    option("Control strings such as <end_of_turn> in content: copy, refuse, or break by U+200B."),
]
SAME_CONTROLS: dict[str, str] = {"refuse": "reject", "as-served": "verbatim"}
"""Names of `build --control-texts` → those of the formats of traces."""

TokenizeControls = Annotated[
    Literal["verbatim", "reject", "escape", "text"],
    option(
        "Control tokens in content: refuse (reject), copy as servers do (verbatim, as-served) but never the EOD, break "
        "by U+200B (escape), or encode as text.",
        "--control-tokens",
        "--control-texts",
        takes=Literal["reject", "refuse", "verbatim", "as-served", "escape", "text"],
        given=defaults.TOKENIZE_CONTROL_TOKENS,
        read=lambda name: SAME_CONTROLS.get(name, name),
    ),
]


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """What the lines of an export hold."""

    sort_steps: Annotated[
        bool, option("Sort steps by their index. Default: the order of the list.", "--sort-steps")
    ] = False
    system: Annotated[str | None, option("A text put before every prompt.")] = None


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


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """Which traces are a dataset, but for conditions."""

    name: Annotated[str, option("Name of the dataset; the key is NAME-VERSION.")]
    version: Annotated[str, option("Version of the dataset.")]
    limit: Annotated[int, option("At most this many traces.", min=1, max=10_000)] = defaults.LIMIT
    strategy: Annotated[Literal["latest", "random"], option("The newest, or a sample by --seed.")] = defaults.STRATEGY


@dataclass(frozen=True, kw_only=True)
class TokenizeRunning(DealtOptions):
    """How a token dataset is made; traces of other sources may have the same id."""

    on_duplicate: OnDuplicate = "keep"


ValidFraction = Annotated[
    float, option("Share of the traces held out for validation; the id alone decides.", min=0, max=1)
]
Eod = Annotated[
    str | None,
    option("The token that ends a document. Default: eos_token of the tokenizer_config.json beside.", metavar="TOKEN"),
]


def build_request(selection: SelectionOptions, **others: Any) -> "BuildRequest":
    """The request from the options. Raises OptionError before a store is opened."""
    from pydantic import ValidationError

    from spanloom.families.traces.build import BuildRequest, key_of

    named = {_FIELDS.get(name, name): value for name, value in vars(selection).items()}
    try:
        request = BuildRequest.model_validate({**named, **others})
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        name, *inner = map(str, first["loc"])
        option = {field: f"--{option}" for option, field in _FIELDS.items()}.get(name, f"--{name.replace('_', '-')}")
        raise OptionError(f"{'.'.join([option, *inner])}: {first['msg']}") from None
    key_of(request)
    return request


_FIELDS = {
    "name": "dataset_name",
    "version": "dataset_version",
    "filter": "filters",
    "strategy": "selection_strategy",
}
"""Options whose names differ from the fields of a request."""


def key_values(values: list[str]) -> dict[str, Any]:
    """`["a=1"]` → `{"a": 1}`. Raises ValueError for a key that is given twice, and for what is not KEY=JSON."""
    pairs: dict[str, Any] = {}
    for pair in values:
        key, equals, text = pair.partition("=")
        if key in pairs:
            raise ValueError(f"{key!r} is given twice, and has one value alone")
        try:
            pairs[key] = json.loads(text)
        except (ValueError, RecursionError):
            equals = ""
        if not equals or not key:
            raise ValueError(f"{pair!r} is not KEY=JSON; a text has quotes: '{key}=\"{text}\"'")
    return pairs
