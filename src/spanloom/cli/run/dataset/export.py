"""Commands that bring any dataset to a trainer: export, plan, fetch, blend."""

import json
import sys

from spanloom.api.exporting import exported, planned
from spanloom.cli.app import counted, make_progress, print_json, say
from spanloom.cli.dataset.export import Export, Plan, PrintBlend
from spanloom.dataset.blend import blend, per_split
from spanloom.families import content_of
from spanloom.report.plan_summary import plan_lines, plan_warnings
from spanloom.storage import write_atomically
from spanloom.text import visible_json
from spanloom.training.shard import read_content


def export(given: Export) -> None:
    out, written = exported(given.root, given.out, given.options, make_progress(given.quiet, False))
    if given.as_json:
        print_json(written)
        return
    if given.options.to == "messages":
        say(f"{written['conversations']:,} conversations for {written['for']} under {out}")
        for name in ("refused", "left_out"):
            say(f"{name.replace('_', ' ')}: {counted(written[name])}")
        return
    documents = sum(counts["sequences"] for counts in written["splits"].values())
    packed = written.get("packed", {}).values()
    dropped = sum(counts["dropped_documents"] for counts in packed)
    rows = f", packed into {sum(counts['rows'] for counts in packed):,} rows," if packed else ""
    say(f"{documents - dropped:,} documents{rows} in {len(written['files']):,} files under {out}")
    if dropped:
        tokens = sum(counts["dropped_tokens"] for counts in packed)
        longest = written["sequence_length"]
        say(f"left out: {dropped:,} documents of more than {longest:,} tokens, {tokens:,} tokens in all")


def plan(given: Plan) -> None:
    made = planned(given.root, given.sequence_length, given.out, given.options, make_progress(given.quiet, False))
    for warning in plan_warnings(made.content):
        say(f"warning: {warning}", file=sys.stderr)
    if given.as_json:
        print_json({"plan": str(made.folder), **made.content.model_dump(mode="json")})
        return
    for line in plan_lines(made.content):
        say(line)
    say(str(made.folder))


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
    if given.out is not None:
        say(f"--per-split-data-args-path {given.out}")
    else:
        if "train" in blends:
            say(f"--data-path {' '.join(blends['train'].flat())} --split 100,0,0")
        say("or, to evaluate on valid too:", file=sys.stderr)
        for split, each in blends.items():
            say(f"--{split}-data-path {' '.join(each.flat())}")
