"""Checks a tool-call token dataset against the file of samples that it was made from.

In: the dataset, the file, the number of samples to convert again. Out: findings. Every row is compared with its sample,
and the text of every document with the one that the template writes. Where that leaves a doubt, the sample is encoded
again. For a sample without a document, the reason is determined again.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.family import SourceCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.root.layout import tokenizer_at
from spanloom.dataset.rows.places import rows_of_file
from spanloom.dataset.validate.content import rows_to_read
from spanloom.dataset.validate.json_tokenizer import CheckedEncoder, own_tokenizer
from spanloom.dataset.validate.placed_documents import PlacedDocument, documents_by_row, drawn_rows, with_documents
from spanloom.dataset.validate.source import carried, check_against_source, is_same_files
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.source import one_file, read_samples
from spanloom.families.toolcalls.recipe import NO_ID, REGISTRIES_NAME, TEMPLATE_NAME, about_schema
from spanloom.families.toolcalls.rules import Rules, check_sample
from spanloom.families.toolcalls.tokens import masks
from spanloom.families.toolcalls.tokens.tokenizer import EXTRA
from spanloom.families.toolcalls.verify import documents as verify
from spanloom.families.toolcalls.verify.frames import parts_of
from spanloom.findings import Finding, Report
from spanloom.records.scalars import is_integer
from spanloom.supervision import shift_to_tokens
from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError
from spanloom.tokenizers.token_texts import TokenTexts, token_texts


def check_source(report: Report, check: SourceCheck) -> None:
    """Checks that the file is the one in the manifest and its samples match the rows; renders `deep` samples again."""
    content, path = check.whole.content, check.source
    again = drawn_rows(content.totals.rows_read, check.deep)

    def opened(own: Report) -> "_Remake | None":
        if not is_same_files(own, check, [path]):
            return None
        if not all((check.whole.root / name).is_file() for name in (TEMPLATE_NAME, REGISTRIES_NAME)):
            return None  # in the report already; reading a pipe might never end
        return carried(own, lambda: _Remake(check))

    def check_shard(own: Report, shard: ShardEntry, remake: "_Remake") -> None:
        own_rows = rows_of_file(content, shard, content.totals.rows_read)
        documents = documents_by_row(check.whole, shard, about_schema(content.config))
        samples = _Samples(path, content.config["split"])
        left_out: Counter[str] = Counter()
        compared = 0
        try:
            for row, sample, place in with_documents(own, samples, documents):
                compared += row in own_rows
                if place is None:
                    if row in own_rows:
                        left_out[remake.reason(sample) or ""] += 1
                    continue
                own.add(place.finding("source", message) for message in _wrong_row(place.row, sample))
                if row in again or remake.doubts(place, sample):
                    own.ran("samples rendered again", 1)
                    own.add(remake.check(place, sample))
        except ToolCallError as broken:
            own.wrong("source", broken.what, file=broken.where)
            return
        own.ran("source rows", compared)
        rows, stated = sum(file.rows for file in content.input.shards), content.totals.rows_read
        if shard.shard == 0 and (rows_to_read(content, samples.of_split), samples.read) != (stated, rows):
            message = f"{samples.of_split} of the file's {samples.read} samples are in the split, the manifest says"
            own.wrong("source", f"{message} {stated} of {rows}", file=str(path))
        if not check.whole.is_readable(shard):
            return
        if missing := left_out.pop("", 0):
            own.wrong("source", f"{missing} samples have neither a document nor a reason", file=str(path))
        if dict(left_out) != shard.rejected:
            message = f"samples are left out for {dict(left_out)}, the manifest says {shard.rejected}"
            own.wrong("source", message, file=str(path))

    check_against_source(report, check, opened, check_shard)


@dataclass
class _Samples:
    """The samples of a split, in the order of the file. Counts the samples of the file, and those of the split."""

    path: Path
    split: str
    read: int = 0
    of_split: int = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for file in one_file(self.path):
            for _, sample in read_samples(file):
                self.read += 1
                labels = sample.get("labels")
                if isinstance(labels, dict) and labels.get("split") == self.split:
                    self.of_split += 1
                    yield sample


_RULES = Rules()


def _wrong_row(row: Mapping[str, Any], sample: Mapping[str, Any]) -> Iterator[str]:
    """Yields the values of a row that differ from its sample. Subtype and weight are computed by `rules`."""
    checked = check_sample(sample, _RULES)
    training, metadata = sample.get("training"), sample.get("metadata")
    repeat = training.get("repeat") if isinstance(training, dict) else None
    times = repeat if is_integer(repeat) and repeat > 0 else 1
    source = metadata.get("source") if isinstance(metadata, dict) else None
    wanted = {
        "sample_id": sample.get("id"),
        "subtype": checked.subtype,
        "source": source if isinstance(source, str) and source else None,
        "weight": checked.weight * times,
        "calls": "<|python_tag|>" in str(sample.get("assistant_raw")),
    }
    for name, value in wanted.items():
        if row[name] != value:
            yield f"{name} is {row[name]!r}, but the sample gives {value!r}"


class _Remake:
    """Converts samples into documents again, with the template, tools and tokenizer in the dataset root."""

    def __init__(self, check: SourceCheck) -> None:
        self._root, self._content = check.whole.root, check.whole.content
        config = self._content.config
        self._template = ChatTemplate(
            (self._root / TEMPLATE_NAME).read_text("utf-8"), special_tokens=config["special_tokens"]
        )
        self._registries = json.loads((self._root / REGISTRIES_NAME).read_bytes())
        place = own_tokenizer(self._content, tokenizer_at(self._root, check.tokenizer))
        self._tokenizer = CheckedEncoder(place, extra=EXTRA)
        self._texts = token_texts(place)

    def reason(self, sample: Mapping[str, Any]) -> str | None:
        """Why a sample has no document, one of `content.REASONS`; None if it should have one."""
        made = self._expected(sample)
        if isinstance(made, str):
            return made
        name, longest = sample.get("id"), self._content.config.get("longest")
        if not isinstance(name, str) or not name:
            return NO_ID
        return "too_long" if longest is not None and len(made.tokens) > longest else None

    def check(self, place: PlacedDocument, sample: Mapping[str, Any]) -> Iterator[Finding]:
        """Checks that the document on disk equals the one made from the sample."""
        expected = self._expected(sample, "as-served")  # as earlier releases made documents of such samples
        if isinstance(expected, str):
            yield place.finding("source", f"this sample should have no document: {expected}")
            return
        if place.row.get("control_tokens", expected.controls) != expected.controls:
            stated = place.row["control_tokens"]
            yield place.finding("source", f"control_tokens is {stated}, the sample has {expected.controls}")
        if place.row["straddling"] != expected.straddling:
            yield place.finding("source", f"straddling is {place.row['straddling']}, not {expected.straddling}")
        labels = {"lossmask": [expected.mask], "span": [expected.parts]}
        stored = {name: ways for name, ways in labels.items() if name in self._content.arrays}
        yield from place.differences(self._root, "the sample", expected.tokens, **stored)

    def doubts(self, place: PlacedDocument, sample: Mapping[str, Any]) -> bool:
        """Whether text, mask or spans of the document on disk may be others than the sample's."""
        names = ("tokens", *(name for name in ("lossmask", "span") if name in self._content.arrays))
        arrays = None if self._texts is None else place.read(self._root, names)
        if self._texts is None or arrays is None:
            return True
        try:
            expected = verify.expected_text(
                sample, self._template.render, self._tools(sample), self._controls("as-served")
            )
        except ChatTemplateError:
            return True
        if isinstance(expected, str) or expected.refused is not None:
            return True
        if place.row.get("control_tokens", len(expected.held)) != len(expected.held):
            return True
        tokens = arrays.pop("tokens").astype(np.int32)
        lengths = np.array([tokens.size], np.int32)
        labels = {name: shift_to_tokens(label.astype(np.uint8), lengths)[:-1] for name, label in arrays.items()}
        return _differs(
            tokens[:-1],
            labels,
            expected,
            self._texts,
            straddling=place.row["straddling"],
            cut=self._content.config["max_length"] == tokens.size - 1,
        )

    def _tools(self, sample: Mapping[str, Any]) -> Any:
        named = sample.get("tools")
        return self._registries.get(named) if isinstance(named, str) else named if isinstance(named, list) else None

    def _controls(self, how: str) -> verify.Controls:
        """`how`: `control_texts` of a config without it."""
        config = self._content.config
        return verify.Controls(
            how=config.get("control_texts", how), eod=config["eod"]["text"], special=self._tokenizer.special
        )

    def _expected(self, sample: Mapping[str, Any], how: str = "refuse") -> verify.ExpectedDocument | str:
        """The document of a sample, or why it has none. `how`: `control_texts` of a config without it."""
        eod, max_length = self._content.tokenizer.eod, self._content.config["max_length"]
        tools, controls = self._tools(sample), self._controls(how)
        try:
            return verify.expected_document(
                sample, self._template.render, tools, self._tokenizer.encode, eod, max_length, controls
            )
        except ChatTemplateError:
            return masks.NOT_RENDERED


def _differs(
    tokens: npt.NDArray[np.int32],
    labels: Mapping[str, npt.NDArray[np.uint8]],
    expected: verify.ExpectedText,
    texts: TokenTexts,
    *,
    straddling: bool,
    cut: bool,
) -> bool:
    """Whether the text of tokens, int32 [T] without the EOD, is another, or a label, uint8 [T], is not that of the
    text. `cut`: the document may be the beginning of the text."""
    whole, wanted = texts.read(tokens), texts.as_read(expected.text)
    text = whole.between(0, tokens.size)
    if len(wanted) != len(expected.text) or not (wanted.startswith(text) if cut else wanted == text):
        return True
    begins, ends = whole.offsets(0, tokens.size)
    inside = np.flatnonzero((expected.begin <= begins) & (begins < expected.end) & (begins < ends))
    if not inside.size or straddling != bool(((begins < expected.begin) & (expected.begin < ends)).any()):
        return True
    first, last = int(inside[0]), int(inside[-1])
    mask = np.zeros(tokens.size, np.uint8)
    mask[first : last + 1] = 1
    parts = parts_of((begins, ends), expected.begin, first, last, expected.answer)
    ways = {"lossmask": mask, "span": parts}
    return not all(np.array_equal(label, ways[name]) for name, label in labels.items())
