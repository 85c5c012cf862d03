"""`spanloom step …-toolcalls`: the steps of the pipeline of tool calls."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from spanloom.cli import options
from spanloom.cli.options import DealtTask
from spanloom.cli.steps import step
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls import options as toolcalls_options
from spanloom.options.option import option, place


@step("convert-toolcalls", "families.toolcalls.steps.convert_toolcalls", own=("system", "turns"))
def step_convert_toolcalls(
    source: toolcalls_options.Source,
    out: Annotated[str, place("Folder or URI for harmful/, retain/ and rejects/.")],
    place: Annotated[str | None, place("File, folder or URI; without it nothing is made.", "--input")] = None,
    completions: Annotated[str | None, place("File of assistant turns for sources without.")] = None,
    system: Annotated[str | None, option("System message of records without one.")] = None,
    turns: toolcalls_options.Turns = "last",
    goals: Annotated[
        str | None, option("JSON file of goals of AgentDojo's injection tasks, see toolcalls convert.", metavar="PLACE")
    ] = None,
    report: options.Report = None,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Tool calls, step 1, once a source: its files → samples, and what was left out."""
    from spanloom.families.toolcalls.convert.drafts import Options

    return {"options": Options(system=system, turns=turns)}


@step("validate-toolcalls", "families.toolcalls.steps.validate_toolcalls")
def step_validate_toolcalls(
    data_dir: Annotated[str, place("Folder of samples, or its URI.")],
    report: options.Report = None,
    html: Annotated[str | None, place("File or URI for the report (a page); replaces an existing one.")] = None,
    scratch: options.Scratch = None,
) -> None:
    """Tool calls, step 2: all samples checked against all rules. Exits with 4 on errors."""


@step("merge-toolcalls", "families.toolcalls.steps.merge_toolcalls", own=("min_ratio", "min_adversarial_safe"))
def step_merge_toolcalls(
    *,
    harmful_dir: Annotated[str, place("Folder of harmful samples.")],
    retain_dir: Annotated[str, place("Folder of samples to retain.")],
    output: Annotated[str, place("File or URI for the samples to train on.")],
    eval_output: Annotated[str | None, place("For those held out.")] = None,
    mix: toolcalls_options.MixOptions,
    min_ratio: Annotated[float, option("Stop below this ratio.", min=0)] = defaults.MIN_RATIO,
    min_adversarial_safe: Annotated[int, option("Stop below this number.", min=0)] = defaults.MIN_ADVERSARIAL_SAFE,
    stats: Annotated[str | None, place("File or URI for the numbers (JSON).")] = None,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Tool calls, step 3: both splits → one file without duplicates, in a seeded order, behind the gates."""
    from spanloom.families.toolcalls.merge.merged import MergeOptions

    gates = MergeOptions(min_ratio=min_ratio, min_adversarial_safe=min_adversarial_safe, validate=True)
    return {"options": replace(gates, **vars(mix))}


@step("audit-toolcalls", "families.toolcalls.steps.audit_toolcalls")
def step_audit_toolcalls(
    data: Annotated[str, place("File of merged samples, or its URI.")],
    template: Annotated[str, place("A .jinja file or tokenizer_config.json, or a URI.")],
    limit: Annotated[int, option("How many samples; 0 for all.", min=0)] = defaults.AUDIT_LIMIT,
    report: options.Report = None,
    scratch: options.Scratch = None,
) -> None:
    """Tool calls, step 4: samples rendered with the template. Exits with 4 if that would spoil a mask."""


@step("tokenize-toolcalls", "families.toolcalls.steps.tokenize_toolcalls", own=("max_length",))
def step_tokenize_toolcalls(
    *,
    data: Annotated[str, place("File of merged samples, or its URI.")],
    split: Annotated[Literal["harmful", "retain"], option("Which samples: they are a root each.")],
    template: Annotated[str, place("A .jinja file or tokenizer_config.json, or a URI.")],
    tokenizer: Annotated[str, place("A tokenizer.json, a file or a URI.")],
    root: options.Root,
    rules: toolcalls_options.TokenizeOptions,
    max_length: Annotated[int, option("Truncate samples to this many tokens; 0 for never.", min=0)] = 0,
    tokenizer_out: Annotated[str | None, place("File for the tokenizer, for later steps.")] = None,
    task: DealtTask,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Tool calls: samples of one split → tokens and loss mask; no dataset before validate-alignment has passed."""
    from spanloom.families.toolcalls.steps.tokenize_toolcalls import TokenizeRules

    tokenize_rules = TokenizeRules(
        max_length=max_length or None, max_rows=task.max_rows, longest=task.longest, **vars(rules)
    )
    return {"task": task.as_task(), "shards": task.shards, "rules": tokenize_rules}
