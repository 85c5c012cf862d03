"""A teacher's log-probabilities beside a dataset: teacher score, carry, rank, validate."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from spanloom.api.scoring import carried, checked, grouped, imported, ranked, scored, size_of, summary_of
from spanloom.cli.app import counted, exit_by, make_progress, print_json, say
from spanloom.cli.models.teacher import Carry, ImportCapture, Rank, Score, Stats, Validate
from spanloom.cli.outputs import write_page
from spanloom.dataset.statistics import Key
from spanloom.options.option import names_in
from spanloom.provenance import readable_json
from spanloom.report.pages.html import percent
from spanloom.report.pages.texts import TextSection, texts_page
from spanloom.report.stats import group_table
from spanloom.report.summary import findings_text
from spanloom.report.terminal import print_whole
from spanloom.storage import write_atomically
from spanloom.storage.folders.repeated import already_there
from spanloom.storage.uri import is_uri
from spanloom.teacher.format import TeacherContent
from spanloom.teacher.looking.statistics import GroupScores


def score(given: Score) -> None:
    if given.dry_run:
        size = size_of(given.root, given.options, given.scratch)
        hours = None if given.rate is None else size.labels / given.rate / 3600
        if given.as_json:
            print_json({**size.as_dict(), "hours": hours})
            return
        say(f"{size.labels:,} labels of {size.documents:,} documents; the teacher reads {size.read:,} tokens")
        say(f"{size.bytes / 1e9:,.3f} GB of signals at k = {given.options.top_k}")
        if hours is not None:
            say(f"{hours:,.1f} hours at {given.rate:,} labels a second")
        return
    out = _out(given.out, given.root)
    content, same = scored(given.root, out, given.options, make_progress(given.quiet, False), given.scratch)
    if given.as_json:
        print_json({"signals": out, **summary_of(content)})
        return
    _say_written(content, out, same)


def import_capture(given: ImportCapture) -> None:
    out, progress = _out(given.out, given.dataset), make_progress(given.quiet, False)
    content, same, lowered = imported(
        given.capture, given.dataset, out, given.compression, given.spans, progress, given.scratch
    )
    if given.as_json:
        print_json({"signals": out, "lowered": lowered, **summary_of(content)})
        return
    _say_written(content, out, same)
    if lowered:
        say(f"approximated values exceeded 1 together, and were lowered, at {lowered:,} labels")


def carry(given: Carry) -> None:
    out = _out(given.out, given.dataset)
    progress = make_progress(given.quiet, False)
    content, environment, same = carried(
        given.signals, given.old_dataset, given.dataset, out, given.options, given.missing, progress, given.scratch
    )
    taken = environment.get("carried", {}).get("labels", 0)
    if given.as_json:
        print_json({"signals": out, "carried": taken, **summary_of(content)})
        return
    _say_written(content, out, same)
    say(f"{taken:,} of these labels were scored before")


def _out(out: str | None, root: str) -> str:
    if out is not None:
        return out
    if is_uri(root):
        return f"{root.rstrip('/')}_teacher"
    return str(Path(root).resolve().with_name(f"{Path(root).resolve().name}_teacher"))


def _say_written(content: TeacherContent, out: str, same: bool) -> None:
    if same:
        say(already_there(out))
    labels = sum(split.positions for split in content.splits.values())
    documents = sum(split.documents - split.without for split in content.splits.values())
    say(f"{labels:,} labels of {documents:,} documents scored, {content.k} tokens each, under {out}")
    if content.without:
        say(f"documents without signals: {counted(content.without)}; listed in {out}/without.jsonl")
    if content.padded:
        say(f"ids above the tokenizer's left out: {content.padded:,}")


def rank(given: Rank) -> None:
    progress = make_progress(given.quiet, False)
    documents = ranked(given.signals, given.dataset, given.count, given.at_least, progress, given.scratch)
    if given.as_json:
        print_json([vars(each) for each in documents])
        return
    for each in documents:
        place = f"{each.split}/{each.shard}/{each.sequence}"
        say(f"{place}: mean {each.mean:.3f} of {each.labels:,} labels, lowest {each.lowest:.2f} at label {each.at:,}")


COLUMNS = ("labels", "log-prob", "entropy", "first choice")


def stats(given: Stats) -> None:
    names = tuple(names_in(given.by))
    progress = make_progress(given.quiet, False)
    if given.html is not None:
        found = grouped(given.signals, given.dataset, None, progress, given.scratch)
        write_page(given.html, _page(found, given))
        return
    groups = grouped(given.signals, given.dataset, [names], progress, given.scratch)[names]
    if given.as_json:
        print_json([{**dict(zip(names, key, strict=True)), **vars(each)} for key, each in groups.items()])
        return
    print_whole(Console(highlight=False), group_table(names, COLUMNS, _rows(groups)))


def _rows(groups: Mapping[Key, GroupScores]) -> dict[Key, tuple[str, ...]]:
    return {
        key: (
            f"{each.labels:,}",
            "–" if each.mean is None else f"{each.mean:.3f}",
            f"{each.entropy:.3f}",
            percent(each.agreement),
        )
        for key, each in groups.items()
    }


def _page(found: Mapping[tuple[str, ...], Mapping[Key, GroupScores]], given: Stats) -> str:
    """All labels in large type, and a table for each grouping that tells any apart."""
    sections = [
        TextSection(
            heading=f"By {names[0]}",
            columns=(names[0], *COLUMNS),
            rows=[[(text, None) for text in (key[0] or "(none)", *row)] for key, row in _rows(groups).items()],
        )
        for names, groups in found.items()
        if names and {key[0] for key in groups} - {None}
    ]
    (whole,) = _rows(found[()]).values() or (("0", "–", "–", "–"),)
    return texts_page(
        f"What the teacher expects of {Path(given.dataset).name}",
        path=[("teacher", None), (given.signals, None)],
        sections=sections,
        figures=list(zip(COLUMNS, whole, strict=True)),
    )


def validate(given: Validate) -> None:
    progress = make_progress(given.quiet, False)
    report = checked(given.signals, given.dataset, given.options, given.deep, given.reader, progress, given.scratch)
    if given.report_file is not None:
        write_atomically(given.report_file, readable_json(report.as_dict()))
    with exit_by(report):
        if given.as_json:
            print_json(report.as_dict())
        else:
            Console().print(findings_text(report), soft_wrap=True, highlight=False)
