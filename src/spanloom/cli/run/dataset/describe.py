"""Commands that say what is in a dataset: stats, manifest."""

import typer
from rich.console import Console

from spanloom.cli.app import print_json, say
from spanloom.cli.dataset.describe import ManifestShow, Stats
from spanloom.dataset import manifest
from spanloom.dataset.statistics import collect
from spanloom.families import FOLDERS, check_manifest, content_of, dataset_family
from spanloom.options.option import names_in
from spanloom.report.stats import stats_csv, stats_lines, stats_table
from spanloom.report.summary import show_lines, show_manifest
from spanloom.report.terminal import print_whole


def stats(given: Stats) -> None:
    if given.as_json and given.as_csv:
        raise typer.BadParameter("--json and --csv: one of them")
    names = tuple(names_in(given.by))
    content = content_of(given.root, "stats")
    family = dataset_family(content.family)
    groups = collect(given.root, content, [names], columns=family.GROUP_COLUMNS, ratio=family.RATIO)[names]
    if given.as_json:
        print_json(stats_lines(names, groups))
    elif given.as_csv:
        say(stats_csv(stats_lines(names, groups)), end="")
    else:
        print_whole(Console(highlight=False), stats_table(names, groups))


def manifest_show(given: ManifestShow) -> None:
    data = manifest.read_place_as(given.place, check_manifest)
    if given.as_json:
        print_json(data)
    elif data["schema_version"] in FOLDERS:
        summary = FOLDERS[data["schema_version"]]().summary(data["content"])
        show_lines(Console(), {"schema": data["schema_version"], **summary, "built": data["environment"]["created_at"]})
    else:
        written = manifest.Manifest.model_validate(data)
        show_manifest(Console(), written, dataset_family(written.content.family).describe(written.content))
