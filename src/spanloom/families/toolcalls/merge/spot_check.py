"""A few samples of each source, for manual review.

In: files of samples. Out: lines of text, or an HTML page. Control characters in samples are made visible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.families.toolcalls.format.source import SampleFile, read_samples
from spanloom.families.toolcalls.format.tables import source_of, split_of, subtype_of, weight_of
from spanloom.families.toolcalls.samples.sampling import of_each_source
from spanloom.report.pages.texts import TextSection, texts_page
from spanloom.text import visible, visible_line


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One sample, and its place: file name and line."""

    where: str
    source: str
    sample: dict[str, Any]

    @property
    def heading(self) -> str:
        """Id, split, subtype and weight, on one line."""
        split = split_of(self.sample) or "no split"
        subtype = subtype_of(self.sample)
        name = visible_line(str(self.sample.get("id")), 80)
        return f"{name} · {split} · {subtype} · weight {weight_of(self.sample, subtype):g}"

    def turns(self) -> Iterator[tuple[str, str]]:
        """Yields role and text of each message, then of the last turn."""
        messages = self.sample.get("messages")
        for message in messages if isinstance(messages, list) else []:
            message = message if isinstance(message, dict) else {}
            content = message.get("content")
            yield str(message.get("role")), content if isinstance(content, str) else repr(content)
        yield "assistant", str(self.sample.get("assistant_raw"))


def spot_check(files: Sequence[SampleFile], count: int, seed: int) -> list[Shown]:
    """Draws `count` samples of each source. Memory holds the source of every sample, and the drawn samples."""
    sources = [source_of(sample) for file in files for _, sample in read_samples(file)]
    wanted = {position for positions in of_each_source(sources, count, seed).values() for position in positions}
    shown = []
    position = 0
    for file in files:
        for line, sample in read_samples(file):
            if position in wanted:
                shown.append(Shown(where=f"{file.name}:{line}", source=sources[position], sample=sample))
            position += 1
    return sorted(shown, key=lambda entry: entry.source)


def text_lines(shown: Sequence[Shown]) -> Iterator[str]:
    """Yields the lines of the samples as text, grouped by source."""
    source = None
    for entry in shown:
        if entry.source != source:
            source = entry.source
            yield f"== {visible_line(source or 'no source', 80)}"
        yield f"-- {entry.heading}  ({entry.where})"
        for role, text in entry.turns():
            yield f"[{visible_line(role, 40)}]"
            yield visible(text)
        yield ""


def page(shown: Sequence[Shown], title: str) -> str:
    """The samples as an HTML page, grouped by source."""
    sections = [
        TextSection(
            heading=f"{visible_line(entry.source or 'no source', 80)} · {entry.heading}",
            texts=list(entry.turns()),
            after=entry.where,
        )
        for entry in shown
    ]
    return texts_page(title, path=[("Spanloom · tool calls", None)], sections=sections)
