"""Step tokenize-toolcalls: samples of one split → a token dataset with a loss mask, not validated yet.

In: a file of samples, the split, a chat template, a tokenizer. Out: the files under the dataset root, including
tokenizer, template and registries, and `manifest.pending.json`. Each sample with a mask becomes one document that ends
with a masked EOD; the others are counted by reason. A sample's id decides whether it goes to train or valid.

Harmful and retain samples are two datasets, never one: the retain loss applied to harmful samples would teach the
attack. The harmful root has `config.harmful`, and trainers open such a root only with `allow_harmful`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from spanloom.dataset.family import Layout
from spanloom.dataset.manifest import Input, InputShard, ListedFile, Manifest, ShardEntry
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.root.made import published, write_pending
from spanloom.dataset.root.places import made_at
from spanloom.dataset.split_writer import SplitWriter, by_split, split_writers
from spanloom.errors import DuplicateIdError
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.rendering import load_template
from spanloom.families.toolcalls.format.source import one_file, read_samples
from spanloom.families.toolcalls.format.tables import HARMFUL, source_of, split_of, subtype_of, weight_of
from spanloom.families.toolcalls.format.tools import Registries, load_registries
from spanloom.families.toolcalls.merge.merged import repeats
from spanloom.families.toolcalls.tokens import parts
from spanloom.families.toolcalls.tokens.masks import Masked, masked_samples
from spanloom.families.toolcalls.tokens.tokenizer import eod_id, load_tokenizer
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import library_versions, readable_json, require_git_sha, sha256_json
from spanloom.split import SPLITS, id_digests
from spanloom.storage import sha256_file
from spanloom.storage.scratch import scratch_for
from spanloom.supervision import Flags
from spanloom.tokenizers.chat_template import ChatTemplate
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.workers import OnProgress

FAMILY = "tool_calls"
INPUT_SCHEMA = "spanloom_toolcall_samples_v1"
LAYOUTS = {
    "answer": Layout(arrays={"tokens": "int32", "lossmask": "uint8"}, span_names=("context", "answer")),
    "parts": Layout(arrays={"tokens": "int32", "lossmask": "uint8", "span": "uint8"}, span_names=parts.SPAN_NAMES),
}
"""`TokenizeRules.spans` → the arrays of a root and the names of its spans."""
TEMPLATE_NAME, REGISTRIES_NAME = "chat_template.jinja", "tool_registries.json"
SHARD = 0
Spans = Literal["answer", "parts"]
ABOUT_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("subtype", pa.string(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("calls", pa.bool_(), nullable=False),
        pa.field("straddling", pa.bool_(), nullable=False),
    ]
)
"""`row`: the number among the samples of the split, from 0. `calls`: whether the answer has a `<|python_tag|>`."""

CONTROLS = pa.field("control_tokens", pa.int64(), nullable=False)
"""A further column if the options keep control tokens in texts or encode them as text: how many there are."""


def about_schema(config: Mapping[str, Any]) -> pa.Schema:
    """The columns of the row table of a dataset with this config."""
    return ABOUT_SCHEMA.append(CONTROLS) if "control_texts" in config else ABOUT_SCHEMA


_BATCH = 256
NO_ID = "no id"


@dataclass(frozen=True, kw_only=True)
class TokenizeRules:
    """The options that determine the bytes, besides samples, template, registries and tokenizer.

    eod         the token that ends a document, by name
    max_length  truncates longer samples, or leaves them out if the answer would be cut; None: no limit
    control_texts   control tokens in texts of users, tools, system and tool definitions: "refuse" leaves such samples
                out; "as-served" keeps their ids, never the EOD; "text" encodes them as text
    spans       "answer": a mask and no span array; "parts": the same mask and spans for prose, calls and arguments
    """

    eod: str = defaults.EOD
    bos_token: str | None = None
    max_length: int | None = None
    valid_fraction: float = defaults.VALID_FRACTION
    spans: Spans = defaults.SPANS
    control_texts: str = defaults.CONTROL_TEXTS

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.spans]


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """The loaded template, tokenizer and registries, and the rules."""

    template: ChatTemplate
    tokenizer: JsonTokenizer
    registries: Registries
    rules: TokenizeRules

    def config(self, split: str) -> dict[str, Any]:
        """The manifest's `config`. Raises TokenizerError if the tokenizer has no token `rules.eod`."""
        return {
            "split": split,
            "harmful": split == HARMFUL,
            "special_tokens": dict(sorted(self.template.special_tokens.items())),
            "eod": {"text": self.rules.eod, "id": eod_id(self.tokenizer, self.rules.eod)},
            "max_length": self.rules.max_length,
            "valid_fraction": self.rules.valid_fraction,
            "template_sha256": sha256_json(self.template.text),
            "registries_sha256": sha256_json(self.registries.listed),
            **({} if self.rules.spans == "answer" else {"spans": self.rules.spans}),
            # Absent by default, so that the config of an earlier dataset is the same.
            **({} if self.rules.control_texts == "refuse" else {"control_texts": self.rules.control_texts}),
        }


def load_ingredients(
    template: Path, tokenizer: Path, rules: TokenizeRules, tools_dir: Path | None = None
) -> Ingredients:
    """Loads template, tokenizer and registries. Raises a SpanloomError if one is missing or invalid."""
    return Ingredients(
        template=load_template(template, rules.bos_token),
        tokenizer=load_tokenizer(tokenizer),
        registries=load_registries(tools_dir),
        rules=rules,
    )


def tokenize_toolcalls(
    *,
    data: Path,
    split: Literal["harmful", "retain"],
    root: Path,
    ingredients: Ingredients,
    allow_unknown_sha: bool = False,
    environment: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Manifest | None:
    """Writes the token dataset of one split at `root` and returns its pending manifest.

    Returns None and writes nothing if the file has no sample of the split. Files are created, never overwritten.
    Raises DuplicateIdError for a duplicate id, ToolCallError if no sample of the split has a mask.
    """
    made_by = require_git_sha(allow_unknown=allow_unknown_sha)
    config = ingredients.config(split)
    counts, layout, about = _Counts(), ingredients.rules.layout, about_schema(config)
    with split_writers(root, SHARD, arrays=layout.arrays, span_names=layout.span_names, about=about) as writers:
        masked = _masked(data, split, ingredients, counts)
        while batch := list(islice(masked, _BATCH)):
            digests = id_digests(str(document.sample["id"]) for _, document in batch)
            for part, chosen in by_split(digests, ingredients.rules.valid_fraction):
                _append(writers[part], [batch[at] for at in chosen], int(config["eod"]["id"]), layout, about)
            counts.written += len(batch)
            if on_progress:
                on_progress(counts.rows, counts.rows)  # the total is known only at the end
        if not counts.rows:
            return None
        if not counts.written:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.rejected.items()))
            raise ToolCallError(
                f"no {split} sample can be masked: {reasons}",
                where=str(data),
                remedy="`spanloom toolcalls audit` says what is wrong with template or samples",
            )
        entry = ShardEntry(
            shard=SHARD,
            rows_read=counts.rows,
            rejected=dict(sorted(counts.rejected.items())),
            rejects_file=None,
            splits={name: writers[name].publish() for name in SPLITS},
        )
    source = InputShard(path=data.name, rows=counts.read, bytes=data.stat().st_size, sha256=sha256_file(data))
    return write_pending(
        root,
        entry,
        family=FAMILY,
        git_sha=made_by,
        config=config,
        tokenizer=ingredients.tokenizer,
        input=Input(schema_version=INPUT_SCHEMA, shards=(source,)),
        id_column="sample_id",
        arrays=dict(layout.arrays),
        span_names=layout.span_names,
        files=_publish_files(root, ingredients),
        environment={"libraries": library_versions("tokenizers", "Jinja2"), **(environment or {})},
    )


@dataclass(kw_only=True)
class _Counts:
    """`read`: samples of the file; `rows`: samples of the split."""

    read: int = 0
    rows: int = 0
    written: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


def _masked(data: Path, split: str, ingredients: Ingredients, counts: _Counts) -> Iterator[tuple[int, Masked]]:
    """Yields number and mask of each sample of the split that has a mask and an id."""
    seen: set[str] = set()

    def ours() -> Iterator[dict[str, Any]]:
        for file in one_file(data):
            for line, sample in read_samples(file):
                counts.read += 1
                if split_of(sample) != split:
                    continue
                name = sample.get("id")
                if isinstance(name, str) and name in seen:
                    raise DuplicateIdError(
                        f"the id {name!r} is a duplicate",
                        where=f"{data}, line {line}",
                        remedy="`spanloom toolcalls merge` makes a file without duplicates",
                    )
                seen.add(str(name))
                yield sample

    made = masked_samples(
        ours(),
        ingredients.template.render,
        ingredients.tokenizer,
        ingredients.registries,
        max_length=ingredients.rules.max_length,
        control_texts=ingredients.rules.control_texts,
        eod=ingredients.rules.eod,
    )
    for number, outcome in enumerate(made):
        counts.rows = number + 1
        if not isinstance(outcome, Masked):
            counts.rejected[outcome.reason] += 1
        elif not isinstance(outcome.sample.get("id"), str) or not outcome.sample["id"]:
            counts.rejected[NO_ID] += 1
        else:
            yield number, outcome


def _append(
    writer: SplitWriter, documents: list[tuple[int, Masked]], eod: int, layout: Layout, schema: pa.Schema
) -> None:
    samples = [document.sample for _, document in documents]
    about = pa.RecordBatch.from_arrays(
        [
            pa.array([row for row, _ in documents], pa.int64()),
            pa.array([sample["id"] for sample in samples], pa.string()),
            pa.array([subtype_of(sample) for sample in samples], pa.string()),
            pa.array([source_of(sample) or None for sample in samples], pa.string()),
            # A repeated sample is one document with a multiple of the weight.
            pa.array([weight_of(sample) * repeats(sample) for sample in samples], pa.float64()),
            pa.array([PYTHON_TAG in sample["assistant_raw"] for sample in samples], pa.bool_()),
            pa.array([document.straddling for _, document in documents], pa.bool_()),
            *(
                [pa.array([document.controls for _, document in documents], pa.int64())]
                if CONTROLS.name in schema.names
                else []
            ),
        ],
        schema=schema,
    )
    spans = [_spans(document, with_parts="span" in layout.arrays) for _, document in documents]
    writer.append_documents(about, [document.ids for _, document in documents], spans, eod)


def _spans(document: Masked, *, with_parts: bool) -> Flags:
    """The span of each token, uint8 [T]: 0 outside the answer; inside it the part's id, or 1 without parts."""
    spans = np.zeros(document.ids.size, dtype=np.uint8)
    learned = slice(document.start, document.end)
    answer, begin = document.sample["assistant_raw"], document.span.start
    spans[learned] = parts.spans_of_tokens(answer, begin, document.offsets[learned]) if with_parts else 1
    return spans


def _publish_files(root: Path, ingredients: Ingredients) -> tuple[ListedFile, ...]:
    """Publishes tokenizer, template and registries in the root, so that it can be read and checked on its own."""
    held = {
        TOKENIZER_NAME: ingredients.tokenizer.path.read_bytes(),
        TEMPLATE_NAME: ingredients.template.text.encode(),
        REGISTRIES_NAME: readable_json(dict(ingredients.registries.listed)),
    }
    return tuple(published(root, name, data) for name, data in held.items())


def run(
    *,
    data: str,
    split: Literal["harmful", "retain"],
    root: str,
    template: str,
    tokenizer: str,
    rules: TokenizeRules,
    tokenizer_out: str | None = None,
    allow_unknown_sha: bool = False,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step on paths or URIs. A remote root is claimed first. Raises ToolCallError if the split has no sample.

    `tokenizer_out`: the place to copy the tokenizer to, for later steps.
    """
    with scratch_for("tokenize-toolcalls", [data, root, template, tokenizer], scratch) as staging:
        samples = staging.file(data)
        loaded = load_ingredients(staging.file(template), staging.file(tokenizer), rules)
        if tokenizer_out is not None:
            staging.bring_home(loaded.tokenizer.path, tokenizer_out)

        def make(folder: Path) -> Manifest:
            made = tokenize_toolcalls(
                data=samples,
                split=split,
                root=folder,
                ingredients=loaded,
                allow_unknown_sha=allow_unknown_sha,
                environment={"data": data, "root": root},
            )
            if made is None:
                raise ToolCallError(f"there is no {split} sample", where=data, remedy="give a file of both splits")
            return made

        identity = {
            "config": loaded.config(split),
            "inputs": [sha256_file(samples)],
            "tokenizer_sha256": loaded.tokenizer.sha256,
        }
        return made_at(root, staging, lambda: identity, make)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dataset_artifacts(result, tokenizer=("sha256",), harmful=result["content"]["config"]["harmful"])
