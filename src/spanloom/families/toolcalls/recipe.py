"""Tool-call samples: how the samples of one split of a file become documents.

In: a file of samples, a chat template, a tokenizer, the rules. Out: a `Recipe` for `spanloom.building`. Each sample
with a mask becomes one document that ends with a masked EOD; the others are refused, and counted by reason. Sample
number i of the split goes to shard i mod the number of shards.

Harmful and retain samples are two datasets, never one: the retain loss applied to harmful samples would teach the
attack. The harmful root has `config.harmful`, and trainers open such a root only with `allow_harmful`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from spanloom.building.assembly import build_facts
from spanloom.building.kept import KeptRows
from spanloom.building.recipe import DatasetForm, FileShard, Made, OfFile, Part
from spanloom.building.shards.ids import split_decided
from spanloom.dataset.family import Layout
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.rendering import load_template
from spanloom.families.toolcalls.format.source import one_file, read_samples
from spanloom.families.toolcalls.format.tables import HARMFUL, source_of, split_of, subtype_of, weight_of
from spanloom.families.toolcalls.format.tools import Registries, load_registries
from spanloom.families.toolcalls.merge.merged import repeats
from spanloom.families.toolcalls.options import TokenizeOptions
from spanloom.families.toolcalls.tokens import parts
from spanloom.families.toolcalls.tokens.masks import Masked, masked_samples
from spanloom.families.toolcalls.tokens.tokenizer import eod_id, load_tokenizer
from spanloom.machine import workers_that_fit
from spanloom.provenance import sha256_json
from spanloom.storage import sha256_file
from spanloom.storage.unchanged import FileState, check_loaded, check_unchanged, file_state
from spanloom.supervision import Flags, closed_documents
from spanloom.tokenizers.chat_template import ChatTemplate
from spanloom.tokenizers.encoding import JsonTokenizer

FAMILY = "tool_calls"
INPUT_SCHEMA = "spanloom_toolcall_samples_v1"
LAYOUTS = {
    "answer": Layout(arrays={"tokens": "int32", "lossmask": "uint8"}, span_names=("context", "answer")),
    "parts": Layout(arrays={"tokens": "int32", "lossmask": "uint8", "span": "uint8"}, span_names=parts.SPAN_NAMES),
}
"""`TokenizeRules.spans` → the arrays of a root and the names of its spans."""
TEMPLATE_NAME, REGISTRIES_NAME = "chat_template.jinja", "tool_registries.json"
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


BATCH = 256
"""Samples of a part."""
NO_ID = "no id"


@dataclass(frozen=True, kw_only=True)
class TokenizeRules(TokenizeOptions):
    """The options that determine the bytes, besides samples, template, registries and tokenizer.

    eod         the token that ends a document, by name
    max_length  truncates longer samples, or leaves them out if the answer would be cut; None: no limit
    control_texts   control tokens in texts of users, tools, system and tool definitions: "refuse" leaves such samples
                out; "as-served" keeps their ids, never the EOD; "text" encodes them as text
    max_rows    how many samples of a split are read; None: all
    longest     leaves out samples with more tokens, EOD included; None: no limit
    spans       "answer": a mask and no span array; "parts": the same mask and spans for prose, calls and arguments
    """

    bos_token: str | None = None
    max_length: int | None = None
    max_rows: int | None = None
    longest: int | None = None

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.spans]


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """The loaded template, tokenizer and registries, and the rules. `template_file`, `tools_dir`: what they were loaded
    from, for workers."""

    template_file: Path
    tools_dir: Path | None
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
            **({} if self.rules.max_rows is None else {"max_rows": self.rules.max_rows}),
            **({} if self.rules.longest is None else {"longest": self.rules.longest}),
            # Absent by default, so that the config of an earlier dataset is the same.
            **({} if self.rules.control_texts == "refuse" else {"control_texts": self.rules.control_texts}),
        }


def load_ingredients(
    template: Path, tokenizer: Path, rules: TokenizeRules, tools_dir: Path | None = None
) -> Ingredients:
    """Loads template, tokenizer and registries. Raises a SpanloomError if one is missing or invalid."""
    loaded = Ingredients(
        template_file=template,
        tools_dir=tools_dir,
        template=load_template(template, rules.bos_token),
        tokenizer=load_tokenizer(tokenizer),
        registries=load_registries(tools_dir),
        rules=rules,
    )
    eod_id(loaded.tokenizer, rules.eod)
    return loaded


WORKER_BYTES = 500 << 20
"""The memory of one process with a tokenizer of 150,000 tokens, a template and a batch of samples."""

SAMPLES_WORTH_LOADING = 5000
"""About as many samples as one process masks while another one loads the tokenizer."""

LIBRARIES = ("tokenizers", "Jinja2", "numpy", "pyarrow")
"""The libraries that make the tokens and the files of parts."""


def useful_workers(samples: int) -> int:
    """The number of processes that CPUs and memory allow, with at least `SAMPLES_WORTH_LOADING` samples for each."""
    return max(1, min(workers_that_fit(WORKER_BYTES), samples // SAMPLES_WORTH_LOADING))


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """A file of samples. `state`: before it was hashed; `samples`: how many each split has; None: those of no split."""

    path: Path
    state: FileState
    sha256: str
    samples: Counter[str | None]


def read_file(path: Path) -> SampleFile:
    """Counts the samples of a file. Raises SourceError, ToolCallError for a line that is no sample."""
    state, sha256 = file_state(path), sha256_file(path)
    samples = Counter(split_of(sample) for file in one_file(path) for _, sample in read_samples(file))
    check_unchanged(path, state, sha256=sha256)
    return SampleFile(path=path, state=state, sha256=sha256, samples=samples)


@dataclass(frozen=True, kw_only=True)
class ToolCallRecipe(OfFile):
    """A build of one split. The template and the tokenizer are files, which workers load; `given`: places as given."""

    file: SampleFile
    split: str
    shards: tuple[FileShard, ...]
    template: Path
    tokenizer: Path
    tools_dir: Path | None
    rules: TokenizeRules

    code = "toolcalls"
    libraries = LIBRARIES

    @classmethod
    def of(
        cls, file: SampleFile, split: str, ingredients: Ingredients, *, shards: int, given: Mapping[str, Any]
    ) -> "ToolCallRecipe":
        """The recipe for one split of a file, with loaded ingredients, which this process keeps."""
        config, form = ingredients.config(split), form_of(ingredients.rules)
        facts = build_facts(
            form,
            config=config,
            tokenizer=ingredients.tokenizer.entry(config["eod"]["id"]),
            source={"schema_version": INPUT_SCHEMA},
            split=split_decided(form.split_column, ingredients.rules.valid_fraction),
        )
        _loaded[sha256_json(facts)] = ingredients
        return cls(
            file=file,
            split=split,
            shards=FileShard.of(file.path, file.samples[split], shards),
            template=ingredients.template_file,
            tokenizer=ingredients.tokenizer.path,
            tools_dir=ingredients.tools_dir,
            rules=ingredients.rules,
            build=facts,
            given=given,
        )

    @property
    def form(self) -> DatasetForm:
        return form_of(self.rules)

    def identity(self) -> Mapping[str, Any]:
        return {"build": self.build, "input": self.file.sha256, "shards": len(self.shards)}

    def check_unchanged(self, shard: FileShard) -> None:  # noqa: ARG002  # all shards are made of one file
        check_unchanged(self.file.path, self.file.state, sha256=self.file.sha256)

    def parts(self, shard: FileShard, rows: int) -> Iterator[Part]:
        numbered = (
            (number, sample)
            for number, sample in enumerate(_samples(self.file.path, self.split))
            if number % len(self.shards) == shard.index
        )
        own, index = islice(numbered, rows), 0
        while batch := list(islice(own, BATCH)):
            yield Part(index=index, first_row=batch[0][0], rows=len(batch), key="", holds=batch)
            index += 1

    def made(self, shard: FileShard, part: Part, token_budget: int | None) -> Iterator[Made]:
        numbers, samples = zip(*part.holds, strict=True)
        ingredients = self.ingredients()
        outcomes = masked_samples(
            samples,
            ingredients.template.render,
            ingredients.tokenizer,
            ingredients.registries,
            max_length=self.rules.max_length,
            control_texts=self.rules.control_texts,
            eod=self.rules.eod,
        )
        rows: KeptRows[Masked] = KeptRows(
            shard.index, self.form.id_column, longest=self.rules.longest, budget=token_budget
        )
        for number, outcome in zip(numbers, outcomes, strict=True):
            name = found if isinstance(found := outcome.sample.get("id"), str) else None
            if not isinstance(outcome, Masked):
                rows.refuse(number, name, outcome.reason)
            elif not name:
                rows.refuse(number, name, NO_ID)
            elif not rows.keep(number, name, outcome, outcome.ids.size + 1):
                break
        kept = [masked for _, masked in rows.documents]
        spans = [_spans(masked, with_parts="span" in self.form.layout.arrays) for masked in kept]
        yield Made(
            rows_read=rows.read,
            documents=closed_documents(
                [masked.ids for masked in kept],
                [(span > 0).astype(np.uint8) for span in spans],
                spans,
                self.build["tokenizer"]["eod"],
            ),
            about=_about(rows.documents, self.form.about),
            refused=rows.refused,
            whole=rows.read == len(numbers),
        )

    def ingredients(self) -> "Ingredients":
        """The template, the tokenizer and the registries, loaded once per process. Raises SourceError if they changed
        since the build began."""
        key = sha256_json(self.build)
        if key not in _loaded:
            loaded = load_ingredients(self.template, self.tokenizer, self.rules, self.tools_dir)
            same = loaded.config(self.split) == self.build["config"]
            check_loaded(same, "the template or the tokenizer", f"{self.template}, {self.tokenizer}")
            _loaded.clear()
            _loaded[key] = loaded
        return _loaded[key]

    def input_of(self, shard: FileShard) -> Mapping[str, Any]:  # noqa: ARG002  # all shards are made of one file
        file = self.file
        rows = file.samples.total()
        return {"path": file.path.name, "rows": rows, "bytes": file.state.bytes, "sha256": file.sha256}


_loaded: dict[str, Ingredients] = {}


def form_of(rules: TokenizeRules) -> DatasetForm:
    """The form of the documents under these rules."""
    return DatasetForm(
        family=FAMILY,
        layout=rules.layout,
        about=about_schema({} if rules.control_texts == defaults.CONTROL_TEXTS else {"control_texts": ""}),
        split_column="sample_id",
        id_column="id",
    )


def _samples(data: Path, split: str) -> Iterator[dict[str, Any]]:
    """The samples of a split, in order."""
    for file in one_file(data):
        for _, sample in read_samples(file):
            if split_of(sample) == split:
                yield sample


def _about(documents: Sequence[tuple[int, Masked]], schema: pa.Schema) -> pa.RecordBatch:
    samples = [document.sample for _, document in documents]
    return pa.RecordBatch.from_arrays(
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


def _spans(document: Masked, *, with_parts: bool) -> Flags:
    """The span of each token, uint8 [T]: 0 outside the answer; inside it the part's id, or 1 without parts."""
    spans = np.zeros(document.ids.size, dtype=np.uint8)
    learned = slice(document.start, document.end)
    answer, begin = document.sample["assistant_raw"], document.span.start
    spans[learned] = parts.spans_of_tokens(answer, begin, document.offsets[learned]) if with_parts else 1
    return spans
