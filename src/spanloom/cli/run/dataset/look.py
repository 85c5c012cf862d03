"""Commands that look at any dataset: validate and inspect."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from spanloom.api.looking import local_places, shown_documents
from spanloom.api.validating import validated
from spanloom.cli.app import exit_by, print_json, say
from spanloom.cli.dataset.look import Inspect, Validate
from spanloom.cli.outputs import write_page
from spanloom.dataset import manifest
from spanloom.dataset.inspect import Selection
from spanloom.errors import SpanloomError
from spanloom.families import data_folder, dataset_family
from spanloom.report.pages.documents import documents_page
from spanloom.report.summary import findings_text
from spanloom.report.terminal import Shown, paged, print_documents
from spanloom.text import visible


def validate(given: Validate) -> None:
    findings, result = validated(
        given.root,
        sources=given.source or [],
        deep=given.deep,
        tokenizer=given.tokenizer,
        reader=given.reader,
        report=given.report_file,
        html=given.html,
        workers=given.workers,
        scratch=given.scratch,
        progress=given.printed.progress(),
    )
    with exit_by(findings):
        if given.printed.as_json:
            print_json(result)
        else:
            Console().print(findings_text(findings), soft_wrap=True, highlight=False)
            if findings.clean and result.get("manifest", True) is None:
                say("but it is not finished, so not a dataset yet: run the build again, which promotes its manifest")


def _refuse(why: str, options: dict[str, object]) -> None:
    """Raises BadParameter for options that do not apply to this data."""
    if named := ", ".join(name for name, value in options.items() if value):
        raise typer.BadParameter(f"these data are {why}: leave out {named}")


def differing(options: Any, without: Sequence[str] = ()) -> dict[str, object]:
    """The options of a dataclass that differ from their defaults: `{"--no-reasoning": True}`."""
    return {
        f"--{field.name.replace('_', '-')}": getattr(options, field.name)
        for field in fields(options)
        if field.name not in without and getattr(options, field.name) != field.default
    }


def inspect(given: Inspect) -> None:
    with local_places(given.root, given.teacher, given.scratch) as (root, teacher):
        _inspect(given, root, teacher)


def _inspect(given: Inspect, root: Path, teacher: Path | None) -> None:
    document, chosen, html = given.document, given.chosen, given.html
    if kind := data_folder(str(root)):
        own = {
            "DOCUMENT": document,
            "--id": given.ids_wanted,
            "--tokenizer": given.tokenizer,
            "--teacher": given.teacher,
            "--json": given.as_json,
        }
        others = differing(chosen, without=("count", "split", "seed")) | differing(given.shown, without=("most",))
        _refuse("no documents", {**own, **others})
        drawn = chosen.split or "train"
        if html is None:
            for line in kind.sample_lines(root, count=chosen.count or 1, seed=chosen.seed, split=drawn):
                Console().print(Text(visible(line)), soft_wrap=True)
        else:
            title = f"Samples of {root.resolve().name}"
            page = kind.sample_page(root, title, count=chosen.count or 1, seed=chosen.seed, split=drawn)
            write_page(html, page)
        return
    if (document or given.ids_wanted) and (choices := differing(chosen, without=("seed",))):
        named = ", ".join(choices)
        raise typer.BadParameter(f"documents are named, so there is nothing to choose: leave out {named}")
    if given.as_json and (
        views := [name for name, view in (("--html", html), ("--labels", given.shown.labels)) if view]
    ):
        raise typer.BadParameter(f"--json cannot be combined with another view: leave out {', '.join(views)}")
    if chosen.no_reasoning and chosen.without:
        raise typer.BadParameter("--no-reasoning is --without the span of reasoning: one of them")
    content = manifest.read_any(root).content
    family = dataset_family(content.family)
    if chosen.no_reasoning and family.RATIO is None:
        spans = ", ".join(content.span_names)
        raise SpanloomError("there is no span of reasoning", where=str(root), remedy=f"--without one of {spans}")
    selection = Selection(
        pick=chosen.pick,
        seed=chosen.seed,
        split=chosen.split,
        shard=chosen.shard,
        special_text=chosen.special_text,
        addresses=tuple(document or ()),
        ids=tuple(given.ids_wanted or ()),
        count=chosen.count or (1 if html is None else 20),
        groups={
            name: value
            for name, value in (("language", chosen.language), ("exercise", chosen.exercise))
            if value is not None
        },
        without=family.RATIO[0] if chosen.no_reasoning and family.RATIO else chosen.without,
    )
    documents = shown_documents(root, content, selection, given.tokenizer, teacher)
    if not documents:
        raise SpanloomError("no document passes these filters", where=str(root))
    view = Shown(**vars(given.shown))
    if given.as_json:
        print_json([document.as_dict() for document in documents])
    elif html is None:
        console = Console(highlight=False)
        with paged(console):
            print_documents(console, documents, view)
    else:
        sequences = content.totals.sequences
        write_page(html, documents_page(root.resolve().name, documents, sequences=sequences, shown=view))
