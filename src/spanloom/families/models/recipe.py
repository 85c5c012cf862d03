"""Conversations for any model: how the rows of a source become documents.

In: a source folder, a model's folder, the rules. Out: a `Recipe` for `spanloom.building`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from spanloom.building.assembly import build_facts
from spanloom.building.recipe import Counts, DatasetForm, Made, OfFolder, Part
from spanloom.building.shards.ids import split_decided
from spanloom.conversations.source.caps import LONGEST, RowCaps
from spanloom.conversations.source.folder import Source, SourceShard, first_rows
from spanloom.conversations.source.format import SourceFormat
from spanloom.dataset.family import Layout
from spanloom.families.models import defaults
from spanloom.families.models.documents.made import ABOUT_SCHEMA, COUNTED
from spanloom.families.models.documents.prover import as_line
from spanloom.families.models.documents.rows import PROOF, made_rows
from spanloom.families.models.documents.rules import Ingredients, ModelRules, load_ingredients
from spanloom.machine import workers_that_fit
from spanloom.provenance import library_versions, sha256_json

FAMILY = "model_chat"
ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8", "span": "uint8"}
SPAN_NAMES = defaults.SPAN_NAMES
SPLIT_COLUMN = "conversation"
LIBRARIES = ("tokenizers", "fastokens", "Jinja2", "numpy", "pyarrow")
"""The libraries that make the tokens and the files of parts."""

WORKER_BYTES = 600 << 20
"""The memory of one process with a tokenizer of 150,000 tokens, its fast encoder and a batch of conversations."""

ROWS_WORTH_LOADING = 2000
"""About as many conversations as one process proves while another one loads the model."""


def useful_workers(rows: int) -> int:
    """The number of processes that CPUs and memory allow, with at least `ROWS_WORTH_LOADING` rows for each."""
    return max(1, min(workers_that_fit(WORKER_BYTES), rows // ROWS_WORTH_LOADING))


def config_of(ingredients: Ingredients, caps: RowCaps) -> dict[str, Any]:
    """The manifest's `config`: together with the source, it decides the bytes."""
    return {**ingredients.config(), "caps": caps.as_dict()}


_loaded: dict[str, Ingredients] = {}


@dataclass(frozen=True, kw_only=True)
class ModelRecipe(OfFolder):
    """A build for the model in the folder `model`. `build`: see `build_facts`; `given`: places as given."""

    model: Path
    rules: ModelRules
    source_format: SourceFormat
    build: Mapping[str, Any]

    code = "models"
    libraries = LIBRARIES

    @property
    def form(self) -> DatasetForm:
        return DatasetForm(
            family=FAMILY,
            layout=Layout(arrays=ARRAY_DTYPES, span_names=SPAN_NAMES),
            about=ABOUT_SCHEMA,
            split_column=SPLIT_COLUMN,
            id_column=self.source_format.id_column,
        )

    def identity(self) -> Mapping[str, Any]:
        # Both proofs make the same bytes; after a wrong one by path, no part of the paths may be kept.
        proof = {} if self.rules.proof == defaults.PATHS else {"proof": self.rules.proof}
        return {name: value for name, value in self.build.items() if name != "source"} | proof

    def parts(self, shard: SourceShard, rows: int) -> Iterator[Part]:
        """A part is a batch of rows, which this process reads: proving takes much longer than reading."""
        for index, batch in enumerate(first_rows(shard, rows)):
            yield Part(index=index, first_row=batch.first_row, rows=len(batch), key=shard.sha256, holds=batch)

    def made(self, shard: SourceShard, part: Part, token_budget: int | None) -> Iterator[Made]:
        eod, longest = self.build["tokenizer"]["eod"], self.build["config"]["caps"].get(LONGEST)
        yield from made_rows(shard, part.holds, self.ingredients(), eod, token_budget, longest)

    def ingredients(self) -> Ingredients:
        """The model under these rules, loaded once per process and build."""
        if self.key not in _loaded:
            _loaded.clear()
            _loaded[self.key] = load_ingredients(self.model, self.rules)
        return _loaded[self.key]

    @cached_property
    def key(self) -> str:
        """A hash of the model and the options."""
        return sha256_json([str(self.model), self.build, self.rules.proof])

    def counted(self, counts: Counts) -> Mapping[str, Any]:
        audited = counts.get("audit", Counter())["audited_rows"]
        return {
            "audit": {"fallback_rows": 0, "audited_rows": audited},
            "cutting": dict.fromkeys(COUNTED, 0) | dict(counts.get("cutting", Counter())),
        }

    def notices(self, counts: Counts) -> Sequence[str]:
        proof = Counter(counts.get(PROOF, {}))
        return (as_line(proof),) if proof else ()


def recipe_of(source: Source, ingredients: Ingredients, caps: RowCaps, given: Mapping[str, Any]) -> ModelRecipe:
    """The recipe for an opened source and a loaded model, which this process keeps."""
    model, encoder = ingredients.model, ingredients.model.encoder
    config = config_of(ingredients, caps)
    encoded_by = "fastokens" if encoder.fast else "tokenizers"
    recipe = ModelRecipe(
        model=ingredients.folder,
        rules=ingredients.rules,
        source_format=source.format,
        build={},
        given=given,
    )
    facts = build_facts(
        recipe.form,
        config=config,
        tokenizer=model.tokenizer.entry(config["eod"]["id"]),
        source=source.origin,
        split=split_decided(SPLIT_COLUMN, config["valid_fraction"]),
        renderer={"name": encoded_by, "version": library_versions(encoded_by)[encoded_by] or "unknown"},
    )
    recipe = replace(recipe, build=facts)
    _loaded.clear()
    _loaded[recipe.key] = ingredients
    return recipe
