"""A dataset and its validation as a short table for the terminal, or as JSON for machines.

In: a manifest, a validation report. Out: text.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from spanloom.findings import Report
from spanloom.inventory import listed_files
from spanloom.manifest import MANIFEST_NAME

FINDINGS_SHOWN = 20


def result_json(root: Path, manifest: dict[str, Any], report: Report) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "root": str(root),
        "manifest": str(root / MANIFEST_NAME) if (root / MANIFEST_NAME).is_file() else None,
        "clean": report.clean,
        "config_sha256": manifest["content"]["config_sha256"],
        "totals": manifest["content"]["totals"],
        "files": sum(1 for _ in listed_files(manifest["content"])),
        "validation": report.as_dict(),
        "timings": manifest["environment"].get("timings"),
    }


def dataset_table(manifest: dict[str, Any]) -> Table:
    """A column a split: sequences, tokens, tokens per span, and what share of documents fits a training sequence."""
    content = manifest["content"]
    splits = content["totals"]["splits"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for split in splits:
        table.add_column(split, justify="right")

    def line(name: str, cells: Callable[[dict[str, Any]], str]) -> None:
        table.add_row(name, *(cells(counts) for counts in splits.values()))

    line("sequences", lambda counts: f"{counts['sequences']:,}")
    line("tokens", lambda counts: f"{counts['tokens']:,}")
    for span in content["span_names"]:
        line(f"  {span}", lambda counts, span=span: f"{counts['span_tokens'][span]:,}")  # type: ignore[misc]
    line("longest document", lambda counts: f"{counts['longest']:,}")
    for limit in {} if "packing" in content["totals"] else next(iter(splits.values()))["fitting"]:
        line(
            f"  fit {int(limit):,} whole",
            lambda counts, limit=limit: (  # type: ignore[misc]
                f"{counts['fitting'][limit] / counts['sequences']:.1%}" if counts["sequences"] else "–"
            ),
        )
    return table


def findings_text(report: Report) -> Text:
    """The verdict, then the first findings."""
    if report.clean:
        checked = report.checked
        seen = ", ".join(f"{checked[name]:,} {name}" for name in ("documents", "tokens") if name in checked)
        again = [name for name in ("rows rendered again", "blocks packed again") if checked.get(name)]
        return Text(f"clean: {seen} checked" + "".join(f", {checked[name]:,} {name}" for name in again), style="green")
    total = sum(report.found.values())
    text = Text(f"{total:,} finding{'s' if total > 1 else ''}\n", style="bold red")
    for finding in report.findings[:FINDINGS_SHOWN]:
        text.append(f"  {finding}\n", style="default")
    if total > FINDINGS_SHOWN:
        text.append(f"  … and {total - FINDINGS_SHOWN:,} more", style="default")
    return text


def show_result(console: Console, root: Path, manifest: dict[str, Any], report: Report) -> None:
    """The end of a build: the table, the files, the manifest, the verdict."""
    content = manifest["content"]
    totals = content["totals"]
    rejected = sum(totals["rejected"].values())
    packing = _packing_lines(content) if "packing" in totals else {}
    lines = [
        f"rows       {totals['rows_read']:,} read, {rejected:,} rejected"
        + "".join(f"\n             {count:,} {reason}" for reason, count in totals["rejected"].items()),
        *(f"{name:<10} {said}" for name, said in packing.items()),
        f"files      {sum(1 for _ in listed_files(content)):,} under {root}",
        f"manifest   {root / MANIFEST_NAME if report.clean else 'not written: the dataset did not validate'}",
    ]
    verdict = Text("validation ")
    verdict.append_text(findings_text(report))
    console.print(Group(dataset_table(manifest), Text("\n".join(lines)), verdict), soft_wrap=True, highlight=False)


def _rendering_lines(content: dict[str, Any]) -> dict[str, str]:
    """How conversations became documents, and which of them are held out."""
    split = content["split"]
    return {
        "renderer": f"{content['renderer']['name']} ({content['renderer']['version']})",
        "split": f"valid_fraction {split['valid_fraction']}, realised {split['realised_valid_fraction']:.6f}",
    }


def _packing_lines(content: dict[str, Any]) -> dict[str, str]:
    """How a stream became blocks, and what became of its tokens."""
    config, packing = content["config"], content["totals"]["packing"]
    loss = "on assistant spans" if config["post_training"] else "on every token (post-training is off)"
    tail = f"tail of {packing['tail_tokens']:,} dropped"
    if config["pad_tail"] is not None:
        tail = f"tail padded by {packing['padding_tokens']:,}"
    return {
        "blocks": f"of {config['block_size']:,} tokens; loss {loss}{', strict' if config['strict_user'] else ''}; "
        f"{packing['lossless_blocks']:,} without loss{'' if config['keep_lossless'] else ', dropped'}",
        "stream": f"{packing['tokens_in']:,} tokens in, {packing['injected_tokens']:,} injected, "
        f"{packing['tokens_given_up']:,} given up, {tail}",
    }


def show_manifest(console: Console, manifest: dict[str, Any]) -> None:
    """What a dataset is made of, for `spanloom manifest show`."""
    content, environment = manifest["content"], manifest["environment"]
    source = content["input"]
    vouched = f"shards, {source['manifest_sha256'][:12]}…" if "manifest_sha256" in source else "files"
    lines = {
        "family": content["family"],
        "config": content["config_sha256"],
        "code": content["git_sha"],
        "input": f"{source['schema_version']}, {len(source['shards'])} {vouched}",
        "tokenizer": f"{content['tokenizer']['name']}, sha256 {content['tokenizer']['sha256'][:12]}…",
        **(_packing_lines(content) if "packing" in content["totals"] else _rendering_lines(content)),
        "alignment": content["alignment"],
        "rows": f"{content['totals']['rows_read']:,} read, {sum(content['totals']['rejected'].values()):,} rejected",
        "built": environment["created_at"],
    }
    console.print("\n".join(f"{name:<10} {value}" for name, value in lines.items()), highlight=False, soft_wrap=True)
    console.print(dataset_table(manifest))
