"""Commands that look at a dataset, or hand it to others."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from spanloom.cli.app import app, make_progress, manifest_app, print_json
from spanloom.cli.options import JsonOption, LocalRootArgument, QuietOption, TokenizerOption
from spanloom.errors import SpanloomError


@app.command()
def inspect(
    root: LocalRootArgument,
    document: Annotated[
        list[str] | None,
        typer.Argument(help="Documents by place: SPLIT/SHARD/SEQUENCE, such as `train/0/17`.", show_default=False),
    ] = None,
    synth_id: Annotated[list[str] | None, typer.Option("--id", help="A document by its synth_id; repeatable.")] = None,
    pick: Annotated[
        Literal["random", "first", "longest", "shortest"], typer.Option(help="Which, when none is named.")
    ] = "random",
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="How many. Default: 1, or 20 with --html.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other documents.", min=0)] = 0,
    split: Annotated[str | None, typer.Option(help="Only of this split.")] = None,
    shard: Annotated[int | None, typer.Option(help="Only of this shard.", min=0)] = None,
    language: Annotated[str | None, typer.Option(help="Only in this language.")] = None,
    exercise: Annotated[str | None, typer.Option(help="Only of this exercise.")] = None,
    no_reasoning: Annotated[bool, typer.Option("--no-reasoning", help="Only documents without reasoning.")] = False,
    special_text: Annotated[
        bool, typer.Option("--special-text", help="Only documents whose text holds the likes of <|end|>.")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show where tokens end.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Show token ids.")] = False,
    labels: Annotated[bool, typer.Option("--labels", help="Show which label each position learns.")] = False,
    max_tokens: Annotated[
        int, typer.Option(help="Show at most so many tokens of a document, first and last; 0: all.", min=0)
    ] = 2000,
    html: Annotated[Path | None, typer.Option(help="Write one page that stands alone.")] = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Look at documents: what is read, what is learned as reasoning and what as answer, token by token.

    Context is dimmed, special tokens are visible, and a mark at the margin says the span without colours too.
    What is in the text is shown, never obeyed: escapes, bidi controls, HTML.

    Example: `spanloom inspect data/megatron/synth_kd_v1 --language de --labels`
    """
    from spanloom import manifest
    from spanloom.harmony.tokenizer import SPECIAL_NAMES
    from spanloom.inspection import Selection, pick_documents
    from spanloom.o200k.asset import locate_asset
    from spanloom.o200k.vocabulary import load_vocabulary
    from spanloom.report.documents_page import documents_page
    from spanloom.report.terminal import Shown, print_documents
    from spanloom.storage import write_atomically

    chosen = {
        **{"--pick": pick != "random", "--count": count is not None, "--split": split, "--shard": shard is not None},
        **{"--language": language, "--exercise": exercise, "--no-reasoning": no_reasoning},
        "--special-text": special_text,
    }
    if (document or synth_id) and any(chosen.values()):
        given = ", ".join(name for name, value in chosen.items() if value)
        raise typer.BadParameter(f"documents are named, so there is nothing to choose: leave out {given}")
    content = manifest.read_any(root)["content"]
    selection = Selection(
        addresses=tuple(document or ()),
        synth_ids=tuple(synth_id or ()),
        pick=pick,
        count=count or (1 if html is None else 20),
        seed=seed,
        split=split,
        shard=shard,
        language=language,
        exercise=exercise,
        without="analysis" if no_reasoning else None,
        special_text=special_text,
    )
    documents = pick_documents(root, content, selection, load_vocabulary(locate_asset(tokenizer), SPECIAL_NAMES))
    if not documents:
        raise SpanloomError("no document passes these filters", where=str(root))
    shown = Shown(tokens=tokens, ids=ids, labels=labels, most=max_tokens)
    if html is None:
        print_documents(Console(highlight=False), documents, shown)
    else:
        there = sum(counts["sequences"] for counts in content["totals"]["splits"].values())
        write_atomically(html, documents_page(root.resolve().name, documents, sequences=there, shown=shown).encode())
        print(html)


@app.command()
def stats(
    root: LocalRootArgument,
    by: Annotated[
        str, typer.Option(help="Group by any of split, shard, language, exercise, with commas; empty: all in one.")
    ] = "split",
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV on stdout.")] = False,
) -> None:
    """Count documents and tokens by split, shard, language, exercise.

    Example: `spanloom stats data/megatron/synth_kd_v1 --by split,language`
    """
    from spanloom import manifest
    from spanloom.report.stats import stats_csv, stats_lines, stats_table
    from spanloom.report.terminal import print_whole
    from spanloom.statistics import collect

    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv: one of them")
    names = tuple(name.strip() for name in by.split(",") if name.strip())
    groups = collect(root, manifest.read(root)["content"], [names])[names]
    if as_json:
        print_json(stats_lines(names, groups))
    elif as_csv:
        print(stats_csv(stats_lines(names, groups)), end="")
    else:
        print_whole(Console(highlight=False), stats_table(names, groups))


@app.command()
def export(
    root: LocalRootArgument,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the export, empty or new. Default: ROOT_parquet, beside ROOT."),
    ] = None,
    to: Annotated[Literal["parquet"], typer.Option(help="Form of the export.")] = "parquet",
    tokens_per_file: Annotated[int, typer.Option(help="Begin a new file after so many tokens.", min=1)] = 64 << 20,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the dataset as Parquet for Hugging Face `datasets` and TRL, streaming.

    Columns, all token-aligned: input_ids, labels (-100 where nothing is trained), loss_mask, assistant_masks, span_id,
    synth_id.

    Example: `spanloom export data/megatron/synth_kd_v1 --to parquet --out data/synth_kd_parquet`
    """
    from spanloom import manifest
    from spanloom.export import export_parquet

    content = manifest.read(root)["content"]
    out = out or root.resolve().with_name(f"{root.resolve().name}_{to}")
    with make_progress(quiet, False).counting("export", "documents") as on_progress:
        exported = export_parquet(root, content, out, tokens_per_file=tokens_per_file, on_progress=on_progress)
    if as_json:
        print_json(exported)
        return
    documents = sum(counts["sequences"] for counts in exported["splits"].values())
    print(f"{documents:,} documents in {len(exported['files']):,} files under {out}")


@app.command("blend")
def print_blend(
    root: Annotated[Path, typer.Argument(help="Root of a dataset.", show_default=False)],
    mount: Annotated[
        str | None, typer.Option(help="Where the trainer sees the dataset. Default: ROOT, as an absolute path.")
    ] = None,
    sequence_length: Annotated[
        int, typer.Option(help="Tokens in a sample: shards that give none are left out.", min=2)
    ] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Write the file for Megatron's `--per-split-data-args-path` here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what Megatron's data flags take: the shards of train and valid, weighted by their tokens.

    Several prefixes without weights would stop after one epoch. `--data-path` takes one distribution for all splits,
    so it gets train alone; `--per-split-data-args-path` takes both.

    Example: `spanloom blend data/megatron/synth_kd_v1 --sequence-length 4096 --out blend.json`
    """
    from spanloom.megatron.blend import blend, per_split
    from spanloom.megatron.shard import read_content
    from spanloom.storage import write_atomically

    content = read_content(root)
    there = mount or root.resolve()
    splits = [split for split, counts in content["totals"]["splits"].items() if counts["tokens"]]
    blends = {split: blend(content, there, split, sequence_length=sequence_length) for split in splits}
    for left_out in (prefix for each in blends.values() for prefix in each.left_out):
        print(f"left out, too short for a sample: {left_out}", file=sys.stderr)
    text = json.dumps(per_split(blends), indent=2) + "\n"
    if out is not None:
        write_atomically(out, text.encode())
    if as_json:
        print(text, end="")
        return
    if "train" in blends:
        print(f"--data-path {' '.join(blends['train'].flat())} --split 100,0,0")
    if out is not None:
        print(f"--per-split-data-args-path {out}")
    else:
        for split, each in blends.items():
            print(f"--{split}-data-path {' '.join(each.flat())}")


@manifest_app.command("show")
def manifest_show(
    place: Annotated[str, typer.Argument(help="A dataset root or a manifest file, or a URI of either.")],
    as_json: JsonOption = False,
) -> None:
    """Show what a dataset is made of."""
    from spanloom.places import read_manifest
    from spanloom.report.summary import show_manifest

    written = read_manifest(place)
    if as_json:
        print_json(written)
    else:
        show_manifest(Console(), written)


@manifest_app.command("diff")
def manifest_diff(
    a: Annotated[str, typer.Argument(help="A dataset root or a manifest file, or a URI of either.")],
    b: Annotated[str, typer.Argument(help="Another.")],
    as_json: JsonOption = False,
) -> None:
    """Show where the `content` of two manifests differs. Exits with 1 when it does, like diff."""
    from spanloom import manifest
    from spanloom.places import read_manifest

    differences = list(manifest.diff(read_manifest(a)["content"], read_manifest(b)["content"]))
    if as_json:
        print_json([{"path": path, "a": before, "b": after} for path, before, after in differences])
    else:
        for path, before, after in differences:
            print(f"{path}\n  - {json.dumps(before, ensure_ascii=False)}\n  + {json.dumps(after, ensure_ascii=False)}")
        if not differences:
            print("same content")
    raise typer.Exit(1 if differences else 0)
