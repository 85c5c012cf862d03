"""Commands that bring any dataset to a trainer: export, plan, fetch, blend."""

import json
import sys

import typer

from spanloom.cli.app import already_there, make_progress, print_json, say
from spanloom.cli.dataset.export import Export, Plan, PrintBlend
from spanloom.cli.run.dataset.look import content_of
from spanloom.dataset.blend import blend, per_split
from spanloom.dataset.export.form import export_form
from spanloom.dataset.export.parquet import export_dataset
from spanloom.dataset.plan.format import PlanOptions
from spanloom.dataset.plan.writer import make_plan
from spanloom.families import dataset_family
from spanloom.report.export_views import export_views
from spanloom.report.plan_summary import plan_lines, plan_warnings
from spanloom.storage import write_atomically
from spanloom.text import visible_json
from spanloom.training.shard import read_content


def export(given: Export) -> None:
    root, to = given.root, given.to
    content = content_of(root, "export")
    if to != "megatron-bridge" and (given.sequence_length is not None or given.too_long is not None):
        raise typer.BadParameter(f"rows are packed by --to megatron-bridge, not by --to {to}: leave out their options")
    family = dataset_family(content.family)
    out = given.out or root.resolve().with_name(f"{root.resolve().name}_{to.replace('-', '_')}")
    form = export_form(
        to,
        content,
        family.export_columns(content),
        sequence_length=given.sequence_length,
        drop_too_long=given.too_long == "drop",
    )
    progress = make_progress(given.quiet, False)
    with progress.counting("export", "documents") as on_progress:
        exported = export_dataset(
            root,
            content,
            form,
            out,
            beside=export_views(root, content, family, form, croissant=given.croissant),
            tokens_per_file=given.tokens_per_file,
            overwrite=given.overwrite,
            on_progress=on_progress,
            on_same=lambda: progress.say(already_there(out)),
        )
    if given.as_json:
        print_json(exported)
        return
    documents = sum(counts["sequences"] for counts in exported["splits"].values())
    packed = exported.get("packed", {}).values()
    dropped = sum(counts["dropped_documents"] for counts in packed)
    rows = f", packed into {sum(counts['rows'] for counts in packed):,} rows," if packed else ""
    say(f"{documents - dropped:,} documents{rows} in {len(exported['files']):,} files under {out}")
    if dropped:
        tokens = sum(counts["dropped_tokens"] for counts in packed)
        say(f"left out: {dropped:,} documents of more than {form.sequence_length:,} tokens, {tokens:,} tokens in all")


def plan(given: Plan) -> None:
    content = content_of(given.root, "plan")
    rules = PlanOptions(
        sequence_length=given.sequence_length,
        strategy=given.strategy,
        seed=given.seed,
        long=given.long,
        question_tokens=given.question_tokens or given.sequence_length // 2,
        multiple_of=given.multiple_of,
    )
    out = given.out or given.root.resolve().with_name(f"{given.root.resolve().name}_plan_{given.sequence_length}")
    progress = make_progress(given.quiet, False)
    with progress.counting("plan", "documents") as on_progress:
        made = make_plan(
            given.root,
            content,
            out,
            rules,
            overwrite=given.overwrite,
            on_progress=on_progress,
            on_same=lambda: progress.say(already_there(out)),
        )
    for warning in plan_warnings(made.content):
        say(f"warning: {warning}", file=sys.stderr)
    if given.as_json:
        print_json({"plan": str(out), **made.content.model_dump(mode="json")})
        return
    for line in plan_lines(made.content):
        say(line)
    say(str(out))


def print_blend(given: PrintBlend) -> None:
    content_of(given.root, "blend")
    content = read_content(given.root, allow_harmful=True)  # the trainer must be given this option, not the plan
    base = given.mount or given.root.resolve()
    splits = [split for split, counts in content.totals.splits.items() if counts.tokens]
    blends = {split: blend(content, base, split, sequence_length=given.sequence_length) for split in splits}
    for left_out in (prefix for each in blends.values() for prefix in each.left_out):
        say(f"left out, too short for a sample: {left_out}", file=sys.stderr)
    text = json.dumps(per_split(blends), indent=2) + "\n"
    if given.out is not None:
        write_atomically(given.out, text.encode())
    if given.as_json:
        say(visible_json(text), end="")
        return
    if "train" in blends:
        say(f"--data-path {' '.join(blends['train'].flat())} --split 100,0,0")
    if given.out is not None:
        say(f"--per-split-data-args-path {given.out}")
    else:
        say("or, to evaluate on valid too:", file=sys.stderr)
        for split, each in blends.items():
            say(f"--{split}-data-path {' '.join(each.flat())}")
