"""Token datasets of samples on one machine: a file of both splits → two validated dataset roots.

In: `BuildOptions`. Out: `OUT/harmful` and `OUT/retain`; each gets its manifest only if validation found nothing. An
interrupted run is run again and makes the same files.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from spanloom.building.make import BuildResult
from spanloom.building.options import RunOptions
from spanloom.building.request import build_requested
from spanloom.dataset.manifest import MANIFEST_NAME
from spanloom.dataset.root.lock import check_apart
from spanloom.dataset.root.made import another_dataset
from spanloom.families.toolcalls import dataset as family
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.tables import SPLITS
from spanloom.families.toolcalls.recipe import TokenizeRules, load_ingredients, read_file
from spanloom.families.toolcalls.steps.tokenize_toolcalls import request_of
from spanloom.options.shared import DealtOptions
from spanloom.report.progress import Mode, Progress
from spanloom.storage import remove_if_empty


@dataclass(frozen=True, kw_only=True)
class BuildOptions(DealtOptions, RunOptions):
    """The inputs and the output folder of a build: the samples in `data` become datasets in `out`."""

    data: Path
    template: Path
    tokenizer: Path
    out: Path
    rules: TokenizeRules = field(default_factory=TokenizeRules)
    tools_dir: Path | None = None


def build(options: BuildOptions, progress: Progress | None = None) -> Iterator[BuildResult]:
    """Tokenizes and validates each split that has samples. The same inputs and rules give the same bytes.

    Raises ToolCallError if the file has no sample, another SpanloomError if the build fails. Findings do not raise.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    options.check()
    check_apart(options.data, options.out)
    rules = replace(options.rules, max_rows=options.max_rows, longest=options.longest)
    ingredients = load_ingredients(options.template, options.tokenizer, rules, options.tools_dir)
    file = read_file(options.data)
    if not any(file.samples[split] for split in SPLITS):
        raise ToolCallError(
            "the file has neither harmful nor retain samples", where=str(options.data), remedy="give a merged file"
        )
    new = not options.out.exists()
    given = {"data": str(options.data), "template": str(options.template)}
    try:
        for split in SPLITS:
            root = options.out / split
            if not file.samples[split]:
                if (root / MANIFEST_NAME).exists():
                    raise another_dataset(root, f"the file has no {split} sample")
                continue
            request = request_of(file, split, ingredients, shards=options.shards, given=given)
            yield build_requested(root, request, family, options, progress)
    except BaseException:
        if new:
            remove_if_empty(options.out)
        raise
