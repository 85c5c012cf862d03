"""`spanloom toolcalls audit`, `mask`, `export`, `tokenize`: samples → rendered and masked → training data."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import typer

from spanloom.cli.app import print_json, say
from spanloom.cli.run.toolcalls.samples import sample_files, say_same
from spanloom.cli.toolcalls.tokens import Audit, Export, Mask
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.audit import audit_samples, text_lines
from spanloom.families.toolcalls.format.rendering import Render, load_template, rendered_by_transformers
from spanloom.families.toolcalls.format.source import one_file, read_samples
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.merge.merged import lines_of_samples
from spanloom.families.toolcalls.options import Rendering
from spanloom.families.toolcalls.tokens import training_files
from spanloom.families.toolcalls.tokens.masks import CUT, Left, Masked, masked_samples, with_mask
from spanloom.families.toolcalls.tokens.tokenizer import load_tokenizer
from spanloom.storage import write_atomically
from spanloom.storage.folders.repeated_files import written_once


def rendered(rendering: Rendering) -> Render:
    """Renders a sample. Raises BadParameter for both of a template and a tokenizer, and for none."""
    if rendering.template is not None and rendering.hf_tokenizer is None:
        return load_template(rendering.template, rendering.bos_token).render
    if rendering.hf_tokenizer is not None and rendering.template is None:
        return rendered_by_transformers(rendering.hf_tokenizer)
    raise typer.BadParameter("give either --template or --hf-tokenizer")


def audit(given: Audit) -> None:
    data = defaults.MERGED if given.data is given.data_dir is None else given.data
    target, files = sample_files(data, given.data_dir)
    render, registries = rendered(given.rendering), load_registries(given.rendering.tools_dir)
    located = ((file.name, line, sample) for file in files for line, sample in read_samples(file))
    looked_at = list(islice(located, given.limit or None))
    audited = audit_samples(looked_at, render, registries)
    result = audited.as_dict()
    if given.tokenizer is not None:
        samples = (sample for _, _, sample in looked_at)
        made = list(masked_samples(samples, render, load_tokenizer(given.tokenizer), registries))
        masked = [outcome for outcome in made if isinstance(outcome, Masked)]
        reasons = Counter(outcome.reason for outcome in made if not isinstance(outcome, Masked))
        result["tokens"] = {
            "masked": len(masked),
            "straddling": sum(outcome.straddling for outcome in masked),
            "without_mask": dict(sorted(reasons.items())),
        }
    text = json.dumps(result, ensure_ascii=False, indent=2) + "\n"
    if given.report is not None:
        write_atomically(given.report, text.encode())
    if given.as_json:
        print_json(result)
    else:
        say("\n".join(text_lines(audited, target, strict=given.strict)))
        if "tokens" in result:
            say(f"Tokens: {json.dumps(result['tokens'])}")
    if code := audited.exit_code(strict=given.strict):
        raise typer.Exit(code)


def _outcomes(given: Mask | Export) -> Iterator[Masked | Left]:
    """What becomes of the samples of a file."""
    render, registries = rendered(given.rendering), load_registries(given.rendering.tools_dir)
    samples = (sample for file in one_file(given.data) for _, sample in read_samples(file))
    loaded = load_tokenizer(given.tokenizer)
    return masked_samples(
        samples, render, loaded, registries, max_length=given.max_length, control_texts=given.control_texts
    )


def mask(given: Mask) -> None:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    outcomes = _outcomes(given)
    with written_once(given.output, overwrite=given.overwrite, on_same=lambda: say_same(given.output)) as stream:
        for outcome in outcomes:
            counts["samples"] += 1
            if isinstance(outcome, Masked):
                counts["masked"] += 1
                counts["straddling"] += outcome.straddling
                sample, replaced = with_mask(outcome.sample, outcome.start, outcome.end)
            else:
                reasons[outcome.reason] += 1
                sample, replaced = with_mask(outcome.sample, None, None)
            counts["replaced"] += replaced
            if isinstance(outcome, Masked) or outcome.reason != CUT:
                stream.write(lines_of_samples([sample]))
    print_json(
        {
            **{name: counts[name] for name in ("samples", "masked", "straddling", "replaced")},
            "without_mask": dict(sorted(reasons.items())),
        }
    )


def export(given: Export) -> None:
    reasons: Counter[str] = Counter()
    outcomes = _outcomes(given)

    def masked() -> Iterator[Masked]:
        for outcome in outcomes:
            if isinstance(outcome, Masked):
                yield outcome
            else:
                reasons[outcome.reason] += 1

    if given.batched:
        pairing = {"benign_per_harmful": given.benign_per_harmful, "seed": given.seed, "max_harmful": given.max_harmful}
        rows = training_files.batched_rows(
            list(masked()), **pairing, require_tool_calls=given.require_tool_calls_harmful
        )
        schema = training_files.BATCHED_SCHEMA
    else:
        rows = map(training_files.flat_row, masked())
        schema = training_files.FLAT_SCHEMA
    written = training_files.write_rows(
        given.output,
        rows,
        schema,
        overwrite=given.overwrite,
        on_same=lambda: say_same(given.output),
    )
    print_json({"rows": written, "left_out": dict(sorted(reasons.items()))})
