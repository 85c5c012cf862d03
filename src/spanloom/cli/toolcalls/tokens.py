"""`spanloom toolcalls audit`, `mask`, `export`, `tokenize`: samples → rendered and masked → training data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spanloom.cli import options
from spanloom.cli.app import Printed, print_json, say, toolcalls_app
from spanloom.cli.outputs import file_option, folder_option
from spanloom.cli.toolcalls import options as toolcalls_options
from spanloom.cli.toolcalls.options import Rendering, TokenizeOptions, one_target, sample_files
from spanloom.families.toolcalls import defaults
from spanloom.options.option import option
from spanloom.options.shared import DealtOptions


@toolcalls_app.command("audit")
def audit(
    *,
    data: Annotated[str | None, option(f"One file of samples. Default: {defaults.MERGED}.", metavar="FILE")] = None,
    data_dir: Annotated[str | None, option("All *.jsonl below it.", metavar="DIR")] = None,
    rendering: Rendering,
    tokenizer: Annotated[
        Path | None, option("A tokenizer.json or its folder: masks are counted in tokens too.")
    ] = None,
    limit: Annotated[int, option("Check only the first N samples; 0 for all.", min=0)] = defaults.AUDIT_LIMIT,
    strict: Annotated[bool, option("Exit with 4 when there are errors.", "--strict")] = False,
    report: Annotated[Path | None, file_option("Write the result to a file too (JSON).")] = None,
    as_json: options.Json = False,
) -> None:
    """Render samples with a chat template, and find what would spoil a loss mask.

    Exits with 0 unless --strict is given and there are errors (4).
    """
    import json
    from collections import Counter
    from itertools import islice

    from spanloom.families.toolcalls.audit import audit_samples, text_lines
    from spanloom.families.toolcalls.format.source import read_samples
    from spanloom.families.toolcalls.tokens.masks import Masked, masked_samples
    from spanloom.families.toolcalls.tokens.tokenizer import load_tokenizer
    from spanloom.storage import write_atomically

    target = defaults.MERGED if data is data_dir is None else one_target(data, data_dir)
    render, registries = rendering.render(), rendering.registries()
    files = sample_files(target, folder=data_dir is not None)
    located = ((file.name, line, sample) for file in files for line, sample in read_samples(file))
    looked_at = list(islice(located, limit or None))
    audited = audit_samples(looked_at, render, registries)
    result = audited.as_dict()
    if tokenizer is not None:
        made = list(masked_samples((sample[2] for sample in looked_at), render, load_tokenizer(tokenizer), registries))
        masked = [outcome for outcome in made if isinstance(outcome, Masked)]
        reasons = Counter(outcome.reason for outcome in made if not isinstance(outcome, Masked))
        result["tokens"] = {
            "masked": len(masked),
            "straddling": sum(outcome.straddling for outcome in masked),
            "without_mask": dict(sorted(reasons.items())),
        }
    text = json.dumps(result, ensure_ascii=False, indent=2) + "\n"
    if report is not None:
        write_atomically(report, text.encode())
    if as_json:
        print_json(result)
    else:
        say("\n".join(text_lines(audited, target, strict=strict)))
        if "tokens" in result:
            say(f"Tokens: {json.dumps(result['tokens'])}")
    if code := audited.exit_code(strict=strict):
        raise typer.Exit(code)


@toolcalls_app.command("mask")
def mask(
    *,
    output: Annotated[Path, file_option("File for the same samples with their masks (JSON Lines).")],
    tokenizer: toolcalls_options.TokenizerFile,
    data: Annotated[Path, option("File of samples.")] = Path(defaults.MERGED),
    rendering: Rendering,
    max_length: toolcalls_options.MaxLength = None,
    control_texts: toolcalls_options.ControlTexts = defaults.CONTROL_TEXTS,
) -> None:
    """Write loss_mask_start and loss_mask_end into each sample; null where the answer cannot be located.

    Prints what became of the samples as JSON: how many have a mask, which had another one, why others have none.
    """
    from collections import Counter

    from spanloom.families.toolcalls.format.source import one_file, read_samples
    from spanloom.families.toolcalls.merge.merged import lines_of_samples
    from spanloom.families.toolcalls.tokens.masks import CUT, Masked, masked_samples, with_mask
    from spanloom.families.toolcalls.tokens.tokenizer import load_tokenizer
    from spanloom.storage import written_atomically

    render, registries = rendering.render(), rendering.registries()
    loaded = load_tokenizer(tokenizer)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    samples = (sample for file in one_file(data) for _, sample in read_samples(file))
    with written_atomically(output) as stream:
        made = masked_samples(samples, render, loaded, registries, max_length=max_length, control_texts=control_texts)
        for outcome in made:
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


@toolcalls_app.command("export")
def export(
    *,
    output: Annotated[Path, file_option("File for the rows: .jsonl or .parquet.")],
    tokenizer: toolcalls_options.TokenizerFile,
    data: Annotated[Path, option("File of merged samples.")] = Path(defaults.MERGED),
    rendering: Rendering,
    max_length: toolcalls_options.MaxLength = None,
    control_texts: toolcalls_options.ControlTexts = defaults.CONTROL_TEXTS,
    batched: Annotated[
        bool, option("Rows of batches, with batch_id and role, as `batches` pairs them.", "--batched")
    ] = False,
    benign_per_harmful: Annotated[int, option("Of a batch.", min=1)] = defaults.BENIGN_PER_HARMFUL,
    seed: Annotated[int, option("Of the batches.")] = defaults.SEED,
    require_tool_calls_harmful: toolcalls_options.RequireToolCalls = False,
    max_harmful: Annotated[int | None, option("At most.", min=0)] = None,
) -> None:
    """Write training files: samples rendered, tokenized and masked. Those without a mask are counted and left out."""
    from collections import Counter

    from spanloom.families.toolcalls.format.source import one_file, read_samples
    from spanloom.families.toolcalls.tokens import training_files
    from spanloom.families.toolcalls.tokens.masks import Masked, masked_samples
    from spanloom.families.toolcalls.tokens.tokenizer import load_tokenizer

    render, registries = rendering.render(), rendering.registries()
    reasons: Counter[str] = Counter()

    def masked() -> Iterator[Masked]:
        samples = (sample for file in one_file(data) for _, sample in read_samples(file))
        loaded = load_tokenizer(tokenizer)
        made = masked_samples(samples, render, loaded, registries, max_length=max_length, control_texts=control_texts)
        for outcome in made:
            if isinstance(outcome, Masked):
                yield outcome
            else:
                reasons[outcome.reason] += 1

    if batched:
        pairing = {"benign_per_harmful": benign_per_harmful, "seed": seed, "max_harmful": max_harmful}
        rows = training_files.batched_rows(list(masked()), **pairing, require_tool_calls=require_tool_calls_harmful)
        written = training_files.write_rows(output, rows, training_files.BATCHED_SCHEMA)
    else:
        rows = map(training_files.flat_row, masked())
        written = training_files.write_rows(output, rows, training_files.FLAT_SCHEMA)
    print_json({"rows": written, "left_out": dict(sorted(reasons.items()))})


@toolcalls_app.command("tokenize")
def tokenize(
    *,
    tokenizer: Annotated[Path, option("A tokenizer.json, or its folder; it is copied into the roots.")],
    template: Annotated[
        Path, option("Chat template: a .jinja file, a tokenizer_config.json, or a tokenizer's folder.")
    ],
    out: Annotated[Path, folder_option("Folder for the roots DIR/harmful and DIR/retain.", metavar="DIR")],
    data: Annotated[Path, option("File of merged samples.")] = Path(defaults.MERGED),
    rules: TokenizeOptions,
    bos_token: toolcalls_options.BosToken = None,
    max_length: toolcalls_options.MaxLength = None,
    tools_dir: toolcalls_options.ToolsDir = None,
    running: DealtOptions,
    printed: Printed,
) -> None:
    """Make validated token datasets: one root of harmful samples, one of those to retain; never both in one.

    Exits with 4 when validation finds anything. Trainers open the harmful root with `allow_harmful=True` alone.
    """
    from spanloom.families.toolcalls import dataset as family
    from spanloom.families.toolcalls.build import BuildOptions, build
    from spanloom.families.toolcalls.steps.tokenize_toolcalls import TokenizeRules
    from spanloom.report.summary import result_json, show_result

    options = BuildOptions(
        data=data,
        template=template,
        tokenizer=tokenizer,
        out=out,
        rules=TokenizeRules(bos_token=bos_token, max_length=max_length, **vars(rules)),
        tools_dir=tools_dir,
        **vars(running),
    )
    results = list(build(options, printed.progress()))
    if printed.as_json:
        print_json({result.root.name: result_json(result.root, result.manifest, result.report) for result in results})
    else:
        for result in results:
            show_result(
                Console(), result.root, result.manifest, family.describe(result.manifest.content), result.report
            )
    if code := max(result.report.exit_code for result in results):
        raise typer.Exit(code)
