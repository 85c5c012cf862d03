"""`spanloom step tokenize-conversations`: the step of the pipeline for any model."""

import json
from typing import Annotated, Any, Literal

import typer

from spanloom.cli import options
from spanloom.cli.app import make_progress
from spanloom.cli.declared import Switch
from spanloom.cli.models.build import CONTROL_TEXTS
from spanloom.cli.options import made_of
from spanloom.cli.steps import step
from spanloom.families.models import defaults
from spanloom.options.option import option, place


@step("tokenize-conversations", "models.steps.tokenize_conversations")
def step_tokenize(
    source: Annotated[
        str,
        place(
            "Folder of `conversations_v1`, `harmony_conversations_v1` or `synth_harmony_v1`, or its URI.", "--source"
        ),
    ],
    model: Annotated[str, place("The model's folder, or its URI; the weights are not read.", "--model")],
    root: options.Root,
    asset: Annotated[str | None, place("For a copy of the model's tokenizer.json.")] = None,
    thinking: Annotated[
        Literal["auto", "on", "off"], option("Whether the template's variable for thinking is on.")
    ] = "auto",
    inline_think: Annotated[
        Switch, option("1: reasoning goes into the content if the template has no place for it.")
    ] = "0",
    boundary: Annotated[
        Literal["served", "refuse"],
        option("If a token would span the end of the prompt: encode apart as servers do, or refuse."),
    ] = "served",
    stops: Annotated[
        str, option("Stop tokens as a JSON list; empty: those of generation_config.json.", metavar="JSON")
    ] = "[]",
    date: Annotated[str | None, option("The current date given to the template.", metavar="YYYY-MM-DD")] = None,
    variables: Annotated[str, option("Variables of the template, a JSON object.", metavar="JSON")] = "{}",
    train: Annotated[str, option("The spans that are trained, with commas.", metavar="SPANS")] = defaults.TRAIN,
    emission: Annotated[
        str | None, option("What the model writes after a prompt that the template does not continue.", metavar="TEXT")
    ] = None,
    control_texts: Annotated[Literal["refuse", "as-served", "text"], option(CONTROL_TEXTS)] = "refuse",
    valid_fraction: Annotated[
        float, option("Share of the conversations held out; the id alone decides.", min=0, max=1)
    ] = defaults.VALID_FRACTION,
    max_rows: Annotated[int | None, option("Read at most this many rows, divided over the shards.", min=0)] = None,
    max_rows_per_shard: Annotated[int | None, option("Read at most this many rows of each shard.", min=0)] = None,
    shards: Annotated[int | None, option("How many shards the source must have.", min=1)] = None,
    max_rejects: Annotated[
        str, option("Conversations that each shard may set aside: a number, or a share.", metavar="N|P%")
    ] = defaults.MAX_REJECTS,
    on_duplicate: Annotated[
        Literal["error", "keep"], option("If two rows have the same id: stop, or keep both and count them.")
    ] = "error",
    workers: options.Workers = None,
    allow_unknown_sha: options.AllowUnknownSha = False,
    scratch: options.Scratch = None,
    quiet: options.Quiet = False,
) -> dict[str, Any]:
    """Any model: conversations → proven tokens, loss mask, spans; no dataset before validate-alignment has passed.

    Every file is created, never overwritten. A root at a URI is claimed for this dataset first (claim.json).
    """
    arguments = locals()
    from spanloom.api.building import model_rules
    from spanloom.conversations.source.caps import RowCaps

    parsed = {"stop": _json_of("--stops", stops, list), "variables": _json_of("--variables", variables, dict)}
    return {
        "rules": model_rules({**arguments, **parsed, "inline_think": inline_think == "1"}),
        "caps": made_of(RowCaps, arguments),
        "progress": make_progress(quiet, False),
    }


def _json_of(name: str, text: str, kind: type) -> Any:
    """The JSON of an option. Raises typer.BadParameter if it is not of this kind."""
    try:
        value = json.loads(text or "null")
    except ValueError as fault:
        raise typer.BadParameter(f"this is not JSON: {fault}", param_hint=name) from None
    value = kind() if value is None else value
    if not isinstance(value, kind):
        raise typer.BadParameter(f"give a JSON {'list' if kind is list else 'object'}", param_hint=name)
    return value
