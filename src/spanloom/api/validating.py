"""Checks a dataset: `spanloom.validate` and `spanloom validate`.

In: the root of a dataset, or of prepared games of chess. Out: a `Report`. Writes nothing to the dataset.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from spanloom.dataset import defaults, manifest
from spanloom.dataset.facts import dataset_facts
from spanloom.dataset.root.places import local_root, staged_root
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import OptionError
from spanloom.families import data_folder, dataset_family
from spanloom.findings import Report
from spanloom.megatron.readers import chosen_reader
from spanloom.options.keywords import check_given_places
from spanloom.options.overwriting import check_outputs
from spanloom.options.shared import OnStage
from spanloom.provenance import readable_json
from spanloom.report.progress import Progress
from spanloom.report.summary import result_json
from spanloom.report.views import write_report
from spanloom.storage import write_atomically
from spanloom.storage.scratch import scratch_for

Place = str | os.PathLike[str]


def validate(
    root: Place,
    *,
    source: Place | Sequence[Place] = (),
    deep: int | Literal["all"] | None = None,
    tokenizer: Place | None = None,
    reader: Literal["auto", "megatron", "independent"] = "auto",
    report: Place | None = None,
    html: Place | None = None,
    workers: int | None = None,
    scratch: Place | None = None,
    progress: bool | OnStage = False,
) -> Report:
    """Checks every file, token and label of the dataset at `root`, a folder or a URI. Prints nothing.

    source        the source of the dataset: samples of it are built again and compared token by token
    deep          number of source rows to build again, or `all`; None: 64 if there is a source
    tokenizer     the tokenizer of the dataset, if the dataset does not contain it
    reader        megatron: Megatron's own reader; independent: one in numpy; auto: Megatron's if it is installed
    report, html  files to write the report to, as JSON and as a page
    workers       the most processes; None: as many as CPUs and memory allow
    progress      True prints to stderr; a function is called with the name of the work, the amount done and the total

    Returns a `Report`: `clean`, `findings`, the counts `checked`, and the `reader`. Raises SpanloomError if there is
    no manifest to check the files against.
    """

    check_given_places({"root": root, "source": source, "tokenizer": tokenizer, "report": report, "html": html})

    def path(place: Place | None) -> Path | None:
        return None if place is None else Path(place)

    sources = [os.fspath(place) for place in ([source] if isinstance(source, str | os.PathLike) else source)]
    read = {"root": os.fspath(root), "source": sources, "tokenizer": path(tokenizer)}
    try:
        check_outputs({**read, "report": path(report), "html": path(html)}, ["report", "html"])
    except ValueError as fault:
        raise OptionError(str(fault)) from None
    findings, _ = validated(
        os.fspath(root),
        sources=sources,
        deep=defaults.ALL_ROWS if deep == "all" else deep,
        tokenizer=path(tokenizer),
        reader=reader,
        report=path(report),
        html=path(html),
        workers=workers,
        scratch=path(scratch),
        progress=Progress.given(progress),
    )
    return findings


def validated(
    root: str,
    *,
    sources: Sequence[str],
    deep: int | None,
    tokenizer: Path | None,
    reader: Literal["auto", "megatron", "independent"],
    report: Path | None,
    html: Path | None,
    workers: int | None,
    scratch: Path | None,
    progress: Progress,
) -> tuple[Report, dict[str, Any]]:
    """The report, and its JSON. For a token dataset that has `manifest`, which is None if it is not finished."""
    if deep and not sources:
        raise OptionError("--deep needs --source: the rows to render again come from there")
    if kind := data_folder(root):
        if tokenizer is not None:
            raise OptionError("these data are without a tokenizer: leave out --tokenizer")
        with scratch_for("root", [root, *sources], scratch) as staging:
            folder = staged_root(staging, root, kind.check)
            findings = kind.validate(folder, [kind.stage_source(staging, place) for place in sources], deep)
            if report is not None:
                write_atomically(report, readable_json(findings.as_dict()))
            if html is not None:
                write_atomically(html, kind.report_page(folder, findings, root).encode())
        return findings, {"root": root, **findings.as_dict()}
    if len(sources) > 1:
        raise OptionError("--source: a token dataset is built from one place; give it once")
    if tokenizer is not None and not sources:
        raise OptionError("--tokenizer needs --source: it renders rows of the source again; or leave out --tokenizer")
    with ExitStack() as places:
        folder = places.enter_context(local_root(root, scratch))
        written = manifest.read_any(folder)
        family = dataset_family(written.content.family)
        source_folder = None
        if sources:
            scratch_source = places.enter_context(scratch_for("source", sources, scratch))
            source_folder = family.stage_source(scratch_source, sources[0])
        chosen = chosen_reader(reader)
        if deep is not None and deep >= (rows := written.content.totals.rows_read):
            tokens = sum(split.tokens for split in written.content.totals.splits.values())
            progress.say(f"all {rows:,} rows are rendered again, for documents of {tokens:,} tokens: see --deep")
        with progress.stage("validate"), progress.counting("validate", "documents") as on_progress:
            findings = validate_dataset(
                folder,
                family,
                source=source_folder,
                deep=defaults.DEEP if deep is None and sources else deep or 0,
                tokenizer=tokenizer,
                workers=workers,
                reader=chosen,
                on_progress=on_progress,
            )
        result = result_json(folder, written, findings)
        if report is not None or html is not None:
            facts = dataset_facts(folder, written, family, findings, timings=progress.timings)
            write_report(facts, written.content, family, json_file=report, html_file=html)
    finished = result["manifest"] is not None
    return findings, {**result, "root": root, "manifest": f"{root.rstrip('/')}/manifest.json" if finished else None}
