"""Token datasets of samples on one machine: a file of both splits → two validated dataset roots.

In: `BuildOptions`. Out: `OUT/harmful` and `OUT/retain`; each gets its manifest only if validation found nothing. An
interrupted run is run again and makes the same files.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.building.disk import Size
from spanloom.building.make import BuildResult, build_dataset, validated_here
from spanloom.building.options import RunOptions
from spanloom.building.shards.files import work_of
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.root.lock import WORK_NAME, BuildRecord, check_apart, data_names
from spanloom.families.toolcalls import dataset as family
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.tables import SPLITS
from spanloom.families.toolcalls.recipe import (
    FAMILY,
    REGISTRIES_NAME,
    TEMPLATE_NAME,
    Ingredients,
    TokenizeRules,
    load_ingredients,
)
from spanloom.families.toolcalls.steps.tokenize_toolcalls import tokenize_toolcalls
from spanloom.report.progress import Mode, Progress
from spanloom.split import SPLITS as BOTH_SPLITS
from spanloom.storage import remove_if_empty, sha256_file


@dataclass(frozen=True, kw_only=True)
class BuildOptions(RunOptions):
    """The inputs and the output folder of a build: the samples in `data` become datasets in `out`."""

    data: Path
    template: Path
    tokenizer: Path
    out: Path
    rules: TokenizeRules = field(default_factory=TokenizeRules)
    max_rejects: str | None = None
    shards: int = 1
    tools_dir: Path | None = None


def build(options: BuildOptions, progress: Progress | None = None) -> Iterator[BuildResult]:
    """Tokenizes and validates each split that has samples. The same inputs and rules give the same bytes.

    Raises ToolCallError if the file has no sample, another SpanloomError if the build fails. Findings do not raise.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    options.check()
    check_apart(options.data, options.out)
    ingredients = load_ingredients(options.template, options.tokenizer, options.rules, options.tools_dir)
    sha256 = sha256_file(options.data)
    made, new = 0, not options.out.exists()
    try:
        for split in SPLITS:
            result = _build(split, options, ingredients, sha256, progress)
            if result is not None:
                made += 1
                yield result
        if not made:
            raise ToolCallError(
                "the file has neither harmful nor retain samples", where=str(options.data), remedy="give a merged file"
            )
    except BaseException:
        if new:
            remove_if_empty(options.out)
        raise


def _build(
    split: Any, options: BuildOptions, ingredients: Ingredients, sha256: str, progress: Progress
) -> BuildResult | None:
    out = options.out / split
    identity = {
        "family": FAMILY,
        "config": ingredients.config(split),
        "source": [sha256],
        "tokenizer": ingredients.tokenizer.sha256,
    }
    arrays = options.rules.layout.arrays
    data = data_names(shards=options.shards, splits=BOTH_SPLITS, arrays=arrays, rejects=options.max_rejects is not None)
    record = BuildRecord(
        identity=identity,
        files=(*data, TOKENIZER_NAME, TEMPLATE_NAME, REGISTRIES_NAME),
        work=work_of(options.shards),
    )

    def make(root: Path) -> Manifest | None:
        return tokenize_toolcalls(
            data=options.data,
            split=split,
            root=root,
            work=out / WORK_NAME,
            ingredients=ingredients,
            template=options.template,
            tools_dir=options.tools_dir,
            shards=options.shards,
            options=options,
            progress=progress,
            environment={"data": str(options.data), "template": str(options.template)},
        )

    return build_dataset(
        out,
        record,
        family,
        options,
        progress,
        make=make,
        bytes_needed=lambda: Size.of_text(options.data.stat().st_size, 0).bytes(arrays),
        validate=validated_here(family, progress, options.reader),
    )
