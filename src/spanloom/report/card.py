"""The dataset card: `README.md` at the root, in the form that Hugging Face reads.

In: the manifest's `content` and counts over the rows. Out: Markdown with YAML front matter. No time, no path: the same
`content` gives the same card. What the source says of itself is quoted and cannot add keys or markup.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from spanloom.report.text import visible_line
from spanloom.statistics import Counts, collect

CARD_NAME = "README.md"

SIZE_CATEGORIES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"), (10**12, "100B<n<1T"),
)  # fmt: skip

_LICENCES = """
apache-2.0 mit bsd bsd-2-clause bsd-3-clause cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0
cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 odc-by odbl pddl gfdl
gpl gpl-2.0 gpl-3.0 lgpl lgpl-3.0 agpl-3.0 mpl-2.0 wtfpl unlicense unknown other
"""
"""Names that the hub knows; any other licence is passed through as `other` with its own name."""

LANGUAGES_NAMED = 100

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
_SEAL = re.compile(rb"\n<!-- spanloom card ([0-9a-f]{64}) -->\n$")


def dataset_card(root: Path, content: dict[str, Any]) -> bytes:
    """The card of the dataset at `root`. Raises ArtifactError when its rows cannot be read."""
    by_language = collect(root, content, [("language",)])[("language",)]
    named = sorted((str(key[0]), counts) for key, counts in by_language.items() if key[0] is not None)
    languages = [name for name, _ in named if _LANGUAGE.fullmatch(name)][:LANGUAGES_NAMED]
    text = "\n".join([*_front_matter(content, languages), "", *_body(content, named), ""]).encode()
    return text + f"\n<!-- spanloom card {hashlib.sha256(text).hexdigest()} -->\n".encode()


def is_unchanged_card(data: bytes) -> bool:
    """Whether a `README.md` is a card of ours that nobody has edited: only such a one may be replaced or removed."""
    seal = _SEAL.search(data)
    return seal is not None and hashlib.sha256(data[: seal.start()]).hexdigest().encode() == seal[1]


def size_category(documents: int) -> str:
    """The hub's name for a number of documents."""
    return next((name for limit, name in SIZE_CATEGORIES if documents < limit), "n>1T")


def _front_matter(content: dict[str, Any], languages: list[str]) -> list[str]:
    """YAML whose strings are JSON strings, so that no value can end its line (nor `no` become a boolean)."""
    documents = sum(counts["sequences"] for counts in content["totals"]["splits"].values())
    lines = ["---", f"pretty_name: {_quoted(_title(content))}"]
    if languages:
        lines += ["language:", *(f"- {_quoted(name)}" for name in languages)]
    licence = content["input"].get("license")
    if licence and licence.lower() in _LICENCES.split():
        lines.append(f"license: {_quoted(licence.lower())}")
    elif licence:
        lines += ["license: other", f"license_name: {_quoted(licence)}"]
    lines += ["size_categories:", f"- {_quoted(size_category(documents))}"]
    lines += ["task_categories:", "- text-generation"]
    form = "packed-chat" if "packing" in content["totals"] else "harmony"
    lines += ["tags:", *(f"- {tag}" for tag in ("spanloom", "megatron", form, "tokenized"))]
    filled = [split for split, counts in content["totals"]["splits"].items() if counts["sequences"]]
    if filled:
        lines += ["configs:", "- config_name: rows", "  data_files:"]
        for split in filled:
            lines += [f"  - split: {hub_split(split)}", f"    path: {_quoted(f'{split}/shard_*_rows.parquet')}"]
    return [*lines, "---"]


def hub_split(split: str) -> str:
    """Our name of a split → Hugging Face's."""
    return {"valid": "validation"}.get(split, split)


def _quoted(text: str) -> str:
    return json.dumps(visible_line(text, 200), ensure_ascii=False)


def _title(content: dict[str, Any]) -> str:
    origin = content["input"].get("dataset")
    return f"{origin}, tokenised with spans" if origin else f"{content['family']} token dataset"


def _code(text: str) -> str:
    """Text of others, as Markdown code that it cannot leave."""
    return "`" + visible_line(text, 200).replace("`", "'") + "`"


def _body(content: dict[str, Any], languages: list[tuple[str, Counts]]) -> list[str]:
    origin = content["input"].get("dataset")
    whence = f"from {_code(origin)} " if origin else ""
    return [
        f"# {_plain(_title(content))}",
        "",
        _packed_said(content, whence)
        if "packing" in content["totals"]
        else f"Conversations {whence}as Harmony token documents for Megatron."
        " Every token has a loss mask and a span id: which part of the answer it belongs to, reasoning or final."
        " Made by Spanloom.",
        "",
        *_holdings(content, languages),
        "",
        *_making(content),
        *_loading(content),
    ]


def _packed_said(content: dict[str, Any], whence: str) -> str:
    config = content["config"]
    loss = "Loss lies on the assistant's spans alone" if config["post_training"] else "Every token counts"
    return (
        f"Chat transcripts {whence}packed into blocks of {config['block_size']:,} tokens for Megatron. {loss}."
        " One document is one block: read them with `sequence_length` "
        f"{config['block_size']} and `add_extra_token_to_sequence` off, so that samples stay on the borders of blocks."
        " Made by Spanloom."
    )


def _holdings(content: dict[str, Any], languages: list[tuple[str, Counts]]) -> list[str]:
    spans = content["span_names"]
    lines = [
        "## What it holds",
        "",
        "| split | documents | tokens | " + " | ".join(spans) + " | longest |",
        "|---|" + "--:|" * (len(spans) + 3),
    ]
    for name, counts in content["totals"]["splits"].items():
        numbers = [counts["sequences"], counts["tokens"], *counts["span_tokens"].values(), counts["longest"]]
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    if languages:
        said = ", ".join(
            f"{_code(name)} {counts.sequences:,} documents, {counts.tokens:,} tokens"
            for name, counts in languages[:LANGUAGES_NAMED]
        )
        more = f", and {len(languages) - LANGUAGES_NAMED:,} more" if len(languages) > LANGUAGES_NAMED else ""
        lines += ["", f"Languages: {said}{more}."]
    files = (
        "Each shard of a split is two Megatron IndexedDatasets of equal shape, `shard_NN_tokens` (int32) and"
        " `shard_NN_lossmask` (uint8, 1 = trained), and `shard_NN_rows.parquet` with the counts of each block:"
        " labels that are context and assistant, tokens that are copies or padding, conversations that end in it."
        if "span" not in content["arrays"]
        else "Each shard of a split is three Megatron IndexedDatasets of equal shape, `shard_NN_tokens` (int32),"
        " `shard_NN_lossmask` (uint8, 1 = trained) and `shard_NN_span` (uint8: "
        + ", ".join(f"{number} {name}" for number, name in enumerate(spans))
        + "), and `shard_NN_rows.parquet` with the id, language, exercise and token counts of each document."
    )
    described = "Loss mask and span describe" if "span" in content["arrays"] else "The loss mask describes"
    return [
        *lines,
        "",
        files,
        f"{described} labels: position *t* says what holds for the token that position *t* predicts,"
        " `tokens[t + 1]`. `manifest.json` lists every file with its sha256; without it this is no dataset.",
    ]


def _making(content: dict[str, Any]) -> list[str]:
    source, totals = content["input"], content["totals"]
    vouched = f"manifest sha256 `{source['manifest_sha256']}`" if "manifest_sha256" in source else "files by sha256"
    return [
        "## How it was made",
        "",
        f"- source: {_code(source['schema_version'])}, {vouched};"
        f" {totals['rows_read']:,} rows read, {sum(totals['rejected'].values()):,} rejected",
        f"- licence: {_code(source['license']) if source.get('license') else 'not stated by the source'}",
        f"- tokenizer: {_code(content['tokenizer']['name'])}, sha256 `{content['tokenizer']['sha256']}`"
        if "packing" in totals
        else f"- tokenizer: {content['tokenizer']['name']}, sha256 `{content['tokenizer']['sha256']}`",
        *(_packed_by(content) if "packing" in totals else _rendered_by(content)),
        f"- code: git {content['git_sha']}; config sha256 `{content['config_sha256']}`",
    ]


def _rendered_by(content: dict[str, Any]) -> list[str]:
    split = content["split"]
    return [
        f"- rendered by {content['renderer']['version']}, all reasoning kept; one `<|endoftext|>` after each",
        f"- split: `{split['rule']}`, asked {split['valid_fraction']}, realised {split['realised_valid_fraction']:.6f}",
    ]


def _packed_by(content: dict[str, Any]) -> list[str]:
    config, packing = content["config"], content["totals"]["packing"]
    markers = ", ".join(f"{_code(said['text'])} {said['id']}" for said in config["markers"].values())
    return [
        f"- markers: {markers}",
        f"- packed from {packing['tokens_in']:,} tokens; {packing['injected_tokens']:,} copied in where a user span was"
        f" cut, {packing['tokens_given_up']:,} given up after user spans longer than a block,"
        f" {packing['tail_tokens']:,} in the last, shorter blocks left out; {packing['lossless_blocks']:,} blocks carry"
        f" no loss{'' if config['keep_lossless'] else ' and were dropped'}",
    ]


def _loading(content: dict[str, Any]) -> list[str]:
    """Code for the first files that are there; none where the dataset is empty."""
    filled = (
        f"{split}/shard_{shard['shard']:02d}"
        for shard in content["shards"]
        for split, counts in shard["splits"].items()
        if counts["sequences"]
    )
    if (prefix := next(filled, None)) is None:
        return []
    names, quoted = ", ".join(content["arrays"]), ", ".join(f'"{name}"' for name in content["arrays"])
    return [
        "",
        "## How to load it",
        "",
        "With Megatron Core, from this folder:",
        "",
        "```python",
        "from megatron.core.datasets.indexed_dataset import IndexedDataset",
        "",
        f'prefix = "{prefix}_"',
        f"{names} = (IndexedDataset(prefix + name) for name in ({quoted}))",
        "document = tokens[0]  # int32; position t predicts document[t + 1], trained where lossmask[0][t] is 1",
        "```",
        "",
        "`spanloom inspect .` shows documents with their spans; `spanloom export . --to parquet` writes Parquet for"
        " Hugging Face `datasets` and TRL.",
    ]


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", visible_line(text, 200))
