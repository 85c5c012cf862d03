"""The dataset card: `README.md` at the root, in the form that Hugging Face reads.

In: the manifest's `content`, the family's description, counts over the rows. Out: Markdown with YAML front matter. No
time, no path: the same `content` gives the same card. Text from the source is quoted and cannot add keys or markup.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from spanloom.dataset.export.parquet import Exported
from spanloom.dataset.family import Description
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import ROWS_GLOB, array_prefix, hub_split
from spanloom.dataset.statistics import Counts
from spanloom.findings import Report
from spanloom.megatron.readers import IN_WORDS
from spanloom.provenance import sha256_json
from spanloom.text import visible_line

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
"""Names that the hub knows; any other licence becomes `other`, with its own name beside it."""

LANGUAGES_NAMED = 100

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
_SEAL = re.compile(rb"\n<!-- spanloom card ([0-9a-f]{64}) -->\n$")


def dataset_card(
    content: Content, description: Description, by_language: Mapping[str, Counts], report: Report | None = None
) -> bytes:
    """The card of a dataset. `by_language`: counts by the language of the rows; empty if they have none.
    `report`: that of its validation; None if there is none.
    """
    filled = [split for split, counts in content.totals.splits.items() if counts.sequences]
    configs = _configs("rows", {split: f"{split}/{ROWS_GLOB}" for split in filled}, content.sha256)
    body = _body(content, description, by_language, report or Report())
    lines = [*_front_matter(content, description, by_language, configs), "", *body, ""]
    text = "\n".join(lines).encode()
    return text + f"\n<!-- spanloom card {hashlib.sha256(text).hexdigest()} -->\n".encode()


def export_card(description: Description, by_language: Mapping[str, Counts], exported: Exported) -> bytes:
    """The card of an export. It gives `datasets` the files of each split, and users the meaning of the columns."""
    content = exported.content
    filled = list(dict.fromkeys(file["split"] for file in exported.said["files"]))
    digest = sha256_json(exported.said["files"])
    form = exported.form
    # `datasets` takes no files of a folder of `save_to_disk` by a pattern.
    configs = (
        [] if form.is_disk_folder else _configs("default", {split: f"{split}/*.parquet" for split in filled}, digest)
    )
    aligned = "position t is about token t"
    if form.sequence_length is not None:
        aligned = "position t of `loss_mask` is about token t + 1"
    dropped = sum(packed["dropped_documents"] for packed in exported.said.get("packed", {}).values())
    body = [
        f"# {_plain(_title(content))}, {'for LLaMA-Factory' if form.is_disk_folder else 'as Parquet'}",
        "",
        f"Exported by Spanloom in the form `{form.name}`: {aligned}.",
        *([f"{dropped:,} documents longer than a row were left out."] if dropped else []),
        "",
        "| column | |",
        "|---|---|",
        *(f"| `{name}` | {form.meanings[name]} |" for name in form.schema.names),
        "",
        *_counted(content, by_language),
        "",
        *_making(content, description),
        "",
        "## How to load it",
        "",
        *_loading_export(exported, filled),
    ]
    return "\n".join([*_front_matter(content, description, by_language, configs), "", *body, ""]).encode()


def _loading_export(exported: Exported, filled: list[str]) -> list[str]:
    lines = []
    if (length := exported.form.sequence_length) is not None:
        lines = [
            f"With Megatron-Bridge: `packed_sequence_size={length}`; the folders of the splits are"
            " `packed_train_data_path` and `packed_val_data_path`, `packed_metadata.json` is `packed_metadata_path`."
            " `answer_only_loss` must be on: without it Bridge does not look at `loss_mask`.",
            "",
        ]
    split = hub_split(filled[0]) if filled else "train"
    if exported.form.is_disk_folder:
        return [
            "With LLaMA-Factory: `tokenized_path`, the path of this folder. In Python:",
            "",
            "```python",
            "from datasets import load_from_disk",
            "",
            f'dataset = load_from_disk(".")["{split}"]',
            "```",
        ]
    if exported.form.name == "axolotl":
        lines = [
            "With Axolotl, a tokenized dataset has no type of its own:",
            "",
            "```yaml",
            "datasets: [{path: FOLDER, split: train, type: completion}]",
            "test_datasets: [{path: FOLDER, split: validation, type: completion}]",
            "```",
            "",
        ]
    return [
        *lines,
        "```python",
        "from datasets import load_dataset",
        "",
        f'dataset = load_dataset(".", split="{split}", streaming=True)',
        "```",
    ]


def is_unchanged_card(data: bytes) -> bool:
    """Whether a `README.md` is an unedited card of ours; only these may be replaced or removed."""
    seal = _SEAL.search(data)
    return seal is not None and hashlib.sha256(data[: seal.start()]).hexdigest().encode() == seal[1]


def size_category(documents: int) -> str:
    """The hub's name for a number of documents."""
    return next((name for limit, name in SIZE_CATEGORIES if documents < limit), "n>1T")


def _front_matter(
    content: Content, description: Description, by_language: Mapping[str, Counts], configs: list[str]
) -> list[str]:
    """YAML with JSON strings, so that no value can end its line (nor `no` become a boolean)."""
    lines = ["---", f"pretty_name: {_quoted(_title(content))}"]
    if languages := [name for name in sorted(by_language) if _LANGUAGE.fullmatch(name)][:LANGUAGES_NAMED]:
        lines += ["language:", *(f"- {_quoted(name)}" for name in languages)]
    licence = content.input.license
    if licence and licence.lower() in _LICENCES.split():
        lines.append(f"license: {_quoted(licence.lower())}")
    elif licence:
        lines += ["license: other", f"license_name: {_quoted(licence)}"]
    lines += ["size_categories:", f"- {_quoted(size_category(content.totals.sequences))}"]
    lines += ["task_categories:", "- text-generation"]
    lines += ["tags:", *(f"- {tag}" for tag in ("spanloom", "megatron", *description.tags, "tokenized"))]
    return [*lines, *configs, "---"]


def _configs(name: str, files: Mapping[str, str], digest: str) -> list[str]:
    """The files of each split; empty if there are none. `digest`: of the content.

    `datasets` keeps what it read in a cache under the folder's name and a hash of `configs`, patterns of files included
    and bytes not. The digest, in a field that has no other use, makes it read other content again.
    """
    if not files:
        return []
    lines = ["configs:", f"- config_name: {name}", f"  description: sha256 {digest}", "  data_files:"]
    for split, pattern in files.items():
        lines += [f"  - split: {hub_split(split)}", f"    path: {_quoted(pattern)}"]
    return lines


def _quoted(text: str) -> str:
    return json.dumps(visible_line(text, 200), ensure_ascii=False)


def _title(content: Content) -> str:
    origin = content.input.dataset
    return f"{origin}, tokenised with spans" if origin else f"{content.family} token dataset"


def code(text: str) -> str:
    """Foreign text as Markdown code that it cannot close."""
    return "`" + visible_line(text, 200).replace("`", "'") + "`"


def _body(content: Content, description: Description, by_language: Mapping[str, Counts], report: Report) -> list[str]:
    described = "Loss mask and span describe" if "span" in content.arrays else "The loss mask describes"
    return [
        f"# {_plain(_title(content))}",
        "",
        description.introduction,
        "",
        *_counted(content, by_language),
        *duplicate_lines(report.duplicate_documents, content.totals.sequences),
        "",
        description.files,
        f"{described} labels: position *t* says what holds for the token that position *t* predicts,"
        " `tokens[t + 1]`. `manifest.json` lists every file with its sha256; without it this is no dataset.",
        "",
        *_making(content, description),
        *([] if report.reader is None else [f"- validated through {IN_WORDS[report.reader]}"]),
        *_loading(content),
    ]


def duplicate_lines(duplicates: int | None, documents: int) -> list[str]:
    """A paragraph: the number of documents with the same tokens as an earlier one; empty if it was not counted."""
    if duplicates is None or not documents:
        return []
    if not duplicates:
        return ["", "No two documents have the same tokens."]
    have = "has" if duplicates == 1 else "have"
    return ["", f"{duplicates:,} of {documents:,} documents {have} the same tokens as an earlier document."]


def _counted(content: Content, by_language: Mapping[str, Counts]) -> list[str]:
    spans = content.span_names
    lines = [
        "## What it holds",
        "",
        "| split | documents | tokens | " + " | ".join(spans) + " | longest |",
        "|---|" + "--:|" * (len(spans) + 3),
    ]
    for name, counts in content.totals.splits.items():
        numbers = [counts.sequences, counts.tokens, *counts.span_tokens.values(), counts.longest]
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    if by_language:
        named = ", ".join(
            f"{code(name)} {counts.sequences:,} documents, {counts.tokens:,} tokens"
            for name, counts in sorted(by_language.items())[:LANGUAGES_NAMED]
        )
        more = f", and {len(by_language) - LANGUAGES_NAMED:,} more" if len(by_language) > LANGUAGES_NAMED else ""
        lines += ["", f"Languages: {named}{more}."]
    return lines


def _making(content: Content, description: Description) -> list[str]:
    source, totals = content.input, content.totals
    vouched = "files by sha256" if source.manifest_sha256 is None else f"manifest sha256 `{source.manifest_sha256}`"
    return [
        "## How it was made",
        "",
        f"- source: {code(source.schema_version)}, {vouched};"
        f" {totals.rows_read:,} rows read, {sum(totals.rejected.values()):,} rejected",
        f"- licence: {code(source.license) if source.license else 'not stated by the source'}",
        *(f"- {line}" for line in description.making),
        f"- code: git {content.git_sha}; config sha256 `{content.config_sha256}`",
    ]


def _loading(content: Content) -> list[str]:
    """Code for the first files of the dataset; empty if it has no documents."""
    filled = (
        array_prefix(Path(), split, shard.shard, "").as_posix()
        for shard in content.shards
        for split, counts in shard.splits.items()
        if counts.sequences
    )
    if (prefix := next(filled, None)) is None:
        return []
    names, quoted = ", ".join(content.arrays), ", ".join(f'"{name}"' for name in content.arrays)
    return [
        "",
        "## How to load it",
        "",
        "With Megatron Core, from this folder:",
        "",
        "```python",
        "from megatron.core.datasets.indexed_dataset import IndexedDataset",
        "",
        f'prefix = "{prefix}"',
        f"{names} = (IndexedDataset(prefix + name) for name in ({quoted}))",
        "document = tokens[0]  # int32; position t predicts document[t + 1], trained where lossmask[0][t] is 1",
        "```",
        "",
        "`spanloom inspect .` shows documents with their spans; `spanloom export . --to parquet` writes Parquet for"
        " Hugging Face `datasets` and TRL.",
    ]


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", visible_line(text, 200))
