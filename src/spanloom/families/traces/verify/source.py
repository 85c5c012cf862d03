"""Checks a token dataset of traces against the export of the same traces.

In: the dataset, the export, how many of its lines are encoded again. Out: findings. Each line is compared with the row
and the text of its document. Where that leaves a doubt, it is encoded again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.dataset.family import SourceCheck
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.root.layout import TOKENIZER_NAME, tokenizer_at
from spanloom.dataset.rows.table import weighed
from spanloom.dataset.validate.json_tokenizer import CheckedEncoder, own_tokenizer
from spanloom.dataset.validate.placed_documents import PlacedDocument, documents_by_row, drawn_rows, with_documents
from spanloom.dataset.validate.source import carried, check_against_source, is_same_files
from spanloom.errors import SpanloomError
from spanloom.families.traces.recipe import ABOUT_SCHEMA
from spanloom.families.traces.verify import documents as verify
from spanloom.families.traces.verify.texts import is_readable, line_faults
from spanloom.findings import Finding, Report
from spanloom.records.json_lines import lines
from spanloom.supervision import shift_to_tokens
from spanloom.tokenizers.json_file import tokenizer_faults
from spanloom.tokenizers.token_texts import token_texts

Encode = Callable[..., tuple[list[int], list[tuple[int, int]]]]
"""A text, whether special tokens are added, and the only characters that are control tokens → ids and offsets."""


def check_source(report: Report, check: SourceCheck) -> None:
    """Checks that the export matches the manifest and its lines match the rows; encodes `deep` of the lines again."""
    content, path = check.whole.content, check.source
    columns = weighed(ABOUT_SCHEMA, content.config)
    rows = sum(file.rows for file in content.input.shards)
    again = drawn_rows(rows, check.deep)

    def opened(own: Report) -> "_Again | None":
        if not is_same_files(own, check, [path]):
            return None
        prepared = _Again(check)
        return carried(own, prepared.loaded) if again else prepared

    def check_shard(own: Report, shard: ShardEntry, opened: "_Again") -> None:
        exported = (raw for _, raw in lines(path))
        count = compared = 0
        for row, raw, place in with_documents(own, exported, documents_by_row(check.whole, shard, columns)):
            count = row + 1
            left_out = place is None and "longest" in content.config and row % len(content.shards) == shard.shard
            if place is None and not (left_out and row in again):
                continue
            line = verify.exported_line(raw, content.config["format"])
            if place is None:
                if not isinstance(line, str) and (message := opened.wrongly_left_out(line)):
                    own.wrong("source", message, file=str(path), line=count)
                continue
            compared += 1
            if isinstance(line, str):
                own.wrong("source", line, file=str(path), line=count)
                continue
            origin = {name: place.row[name] for name in ("trace_id", "source", "weight") if name in place.row}
            own.add(place.finding("source", message) for message in verify.wrong_line(line, content.config, origin))
            if row in again or opened.doubts(place, line):
                own.ran("rows encoded again", 1)
                own.add(opened.check(place, line))
        own.ran("source rows", compared)
        if count != rows and shard.shard == 0:
            own.wrong("source", f"{count} rows, the manifest says {rows}", file=str(path))

    check_against_source(report, check, opened, check_shard)


class _Again:
    """Compares lines with documents: by the text of the tokens, and where that is not enough by encoding them."""

    def __init__(self, check: SourceCheck) -> None:
        self._check, self._content = check, check.whole.content
        self._texts = token_texts(check.whole.root / TOKENIZER_NAME)
        if self._texts is not None and not is_readable(self._texts, self._content.config["format"]):
            self._texts = None
        self._encode: Encode | None = None
        self._fault: SpanloomError | None = None

    def loaded(self) -> "_Again":
        """This, with a tokenizer. Raises TokenizerError if there is none."""
        if self._encode is None:
            self._encode = _encoding(self._content, self._check)
        return self

    def doubts(self, place: PlacedDocument, line: Mapping[str, Any]) -> bool:
        """Whether the text of a document may be another than that of its line. Without a tokenizer there is no doubt:
        who gives no `deep` need not have the package."""
        arrays = None if self._texts is None else place.read(self._check.whole.root, ("tokens", "span"))
        if self._texts is not None and arrays is not None:
            tokens, label = arrays["tokens"].astype(np.int32), arrays["span"].astype(np.uint8)
            spans = shift_to_tokens(label, np.array([label.size], dtype=np.int32))
            form, start = self._content.config["format"], int(place.row["response_start"])
            if not line_faults(line, form, start, tokens, spans, self._texts):
                return False
        if self._encode is None and self._fault is None:
            try:
                self.loaded()
            except SpanloomError as fault:
                self._fault = fault
        return self._encode is not None

    def wrongly_left_out(self, line: Mapping[str, Any]) -> str | None:
        """What contradicts that a line makes a document of more tokens than `config.longest`; the line is encoded."""
        encode, config = self.loaded()._encode, self._content.config
        assert encode is not None, "it is loaded"
        as_text = config["control_tokens"] == "text"
        most = 0
        for start in verify.response_starts(line, config["format"]):
            expected = verify.expected_document(
                line, config["format"], start, encode, self._content.tokenizer.eod, as_text=as_text
            )
            if isinstance(expected, str):
                return expected
            most = max(most, len(expected.tokens))
        return None if most > config["longest"] else f"has no document, and {most} tokens; longest allows them"

    def check(self, place: PlacedDocument, line: Mapping[str, Any]) -> Iterator[Finding]:
        """Encodes a line again and compares its document."""
        content, encode = self._content, self.loaded()._encode
        assert encode is not None, "it is loaded"
        start, as_text = int(place.row["response_start"]), content.config["control_tokens"] == "text"
        expected = verify.expected_document(
            line, content.config["format"], start, encode, content.tokenizer.eod, as_text=as_text
        )
        if isinstance(expected, str):
            yield place.finding("source", expected)
            return
        controls = verify.controls_of(line, content.config)
        for name, number in {"boundary_tokens": expected.straddling, "control_strings": controls}.items():
            if place.row[name] != number:
                yield place.finding("source", f"{name} is {place.row[name]}, the export's text has {number}")
        root = self._check.whole.root
        yield from place.differences(root, "the export's text", expected.tokens, span=expected.spans)


def _encoding(content: Content, check: SourceCheck) -> Encode:
    place = own_tokenizer(content, tokenizer_at(check.whole.root, check.tokenizer))
    tokenizer = CheckedEncoder(place, extra="traces")

    def encode(
        text: str, special: bool, controls: Sequence[tuple[int, int]] | None = None
    ) -> tuple[list[int], list[tuple[int, int]]]:
        ids, offsets = tokenizer.encode(text, controls)
        if not special:
            return ids, offsets
        with tokenizer_faults(place):  # what the post-processor adds, it adds to a text of one letter too
            added, alone = (tokenizer.loaded.encode("x", add_special_tokens=each).ids for each in (True, False))
        begin = next(at for at in range(len(added)) if added[at : at + len(alone)] == alone)
        behind = len(added) - begin - len(alone)
        around = [(0, 0)] * begin, [(0, 0)] * behind
        return (
            [*added[:begin], *ids, *added[len(added) - behind :]],
            [*around[0], *offsets, *around[1]],
        )

    return encode
