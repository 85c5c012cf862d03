"""Checks all samples of a run: each against the rules, and all against each other.

In: files of samples. Out: `Validation`: findings with file and line, and the numbers of the report. It takes one pass.
Memory grows only with ids and content hashes, at most about 130 bytes a sample, and with the findings.

A line with the lists `harmful` and `benign` is a batch: each of its members is checked as a sample, under the path
`harmful[0].…`. Batches reuse retain samples, so an identical member in several batches is no finding.
"""

import hashlib
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from spanloom.families.toolcalls.format.findings import RULES, SEVERITY, Finding, by_code, finding
from spanloom.families.toolcalls.format.source import (
    UNREADABLE,
    SampleFile,
    holds_long_number,
    lines_of,
    parse_exactly,
    parse_line,
)
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN
from spanloom.families.toolcalls.rules import Rules, check_sample

BATCH_LISTS = {"harmful": HARMFUL, "benign": RETAIN}
"""The lists of a batch, and the split that their members must have."""

_CONTENT_BYTES = 16

_ID_SHOWN = 200
"""Ids in findings are cut to this many characters if `most_findings` is set: an id may fill the whole request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A finding with its place. `id`: the sample's id; None if it is missing or not a string."""

    file: str
    line: int
    id: str | None
    finding: Finding

    def as_dict(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "id": self.id, **self.finding.as_dict()}


@dataclass(kw_only=True)
class FileCount:
    """The counts of one file in the report."""

    path: str
    samples: int = 0
    errors: int = 0
    warnings: int = 0


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The result of a run.

    findings  sorted by file, line and code; `more` others are only counted, see `Rules.most_findings`
    rules     rule → samples that violate it
    splits    harmful, retain → samples; the rest of `samples` is in neither split
    subtypes  split → subtype → samples and the sum of their weights
    """

    files: Sequence[FileCount]
    findings: Sequence[Located]
    more: int
    samples: int
    tool_samples: int
    invalid_lines: int
    rules: dict[str, int]
    splits: dict[str, int]
    subtypes: dict[str, dict[str, tuple[int, float]]]
    by_code: dict[str, int]
    severities: dict[str, str]

    @property
    def errors(self) -> int:
        return sum(file.errors for file in self.files)

    @property
    def warnings(self) -> int:
        return sum(file.warnings for file in self.files)


@dataclass
class _Seen:
    """Ids and contents of all samples so far, as flat arrays: 33 to 60 bytes a sample.

    names     the ids end to end, UTF-8; `ends` holds the end of each
    hashes    Python's hash of each id: only ids with equal hashes are compared as text
    contents  16 bytes of sha256 of each content, end to end; zeros for a sample without content
    places    file, line and member of a batch, in 16, 32 and 16 bits
    """

    names: bytearray = field(default_factory=bytearray)
    ends: "array[int]" = field(default_factory=lambda: array("Q"))
    hashes: "array[int]" = field(default_factory=lambda: array("q"))
    contents: bytearray = field(default_factory=bytearray)
    places: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, name: str | None, content: bytes, place: int) -> None:
        if name:
            self.names += name.encode()
            self.hashes.append(hash(name))
        else:
            self.hashes.append(0)
        self.ends.append(len(self.names))
        self.contents += content
        self.places.append(place)

    def name(self, number: int) -> str:
        start = self.ends[number - 1] if number else 0
        return self.names[start : self.ends[number]].decode()


NO_CONTENT = bytes(_CONTENT_BYTES)


def content_key(sample: dict[str, Any]) -> bytes:
    """16 bytes of a hash of messages and assistant_raw; zeros if either is missing."""
    messages, raw = sample.get("messages"), sample.get("assistant_raw")
    if messages is None or raw is None:
        return NO_CONTENT
    try:
        text = orjson.dumps([messages, raw], option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, in a sample that was parsed exactly
        text = json.dumps([messages, raw], sort_keys=True).encode()
    return hashlib.sha256(text).digest()[:_CONTENT_BYTES]


def validate_files(files: Sequence[SampleFile], rules: Rules) -> Validation:
    """Checks all samples of the files, in the given order."""
    run = _Run(rules, [file.name for file in files])
    for number, file in enumerate(files):
        with file.path.open("rb") as stream:
            run.file(number, stream)
    return run.finish()


def validate_stream(stream: Iterable[bytes], rules: Rules, name: str = "-") -> Validation:
    """Like `validate_files` for the lines of a stream, reported as one file called `name`."""
    run = _Run(rules, [name])
    run.file(0, stream)
    return run.finish()


class _Run:
    def __init__(self, rules: Rules, names: Sequence[str]) -> None:
        self.rules, self.files = rules, [FileCount(path=name) for name in names]
        self.seen = _Seen()
        # (file, line, order within the line, order of the code) → the finding
        self.found: list[tuple[tuple[int, int, int, int], Located]] = []
        self.by_code: Counter[str] = Counter()
        self.severities: dict[str, str] = {}
        self.tool_samples = self.invalid = 0
        self.failed: Counter[str] = Counter()
        self.splits = {HARMFUL: 0, RETAIN: 0}
        self.weights: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])

    def file(self, number: int, stream: Iterable[bytes]) -> None:
        for line_number, line in lines_of(stream):
            value = parse_line(line)
            if type(value) is not dict:
                code = "J1" if value is UNREADABLE else "J2"
                self.invalid += 1
                self._find(number, line_number, 0, None, finding(code, ""))
            elif "benign" in value and all(isinstance(value.get(name), list) for name in BATCH_LISTS):
                self._batch(number, line_number, line, value)
            else:
                self._sample(number, line_number, line, value)

    def _batch(self, number: int, line_number: int, line: bytes, batch: dict[str, Any]) -> None:
        if holds_long_number(line):
            batch = parse_exactly(line)
        for name, split in BATCH_LISTS.items():
            for index, member in enumerate(batch[name]):
                path, order = f"{name}[{index}]", _member(name, index)
                if not isinstance(member, dict):
                    self.invalid += 1
                    self._find(number, line_number, order, None, finding("J2", path))
                    continue
                self._sample(number, line_number, b"", member, order, path, split)

    def _sample(
        self,
        number: int,
        line_number: int,
        line: bytes,
        sample: dict[str, Any],
        order: int = 0,
        path: str = "",
        split: str | None = None,
    ) -> None:
        checked = check_sample(sample, self.rules)
        if checked.findings and holds_long_number(line):
            checked = check_sample(parse_exactly(line), self.rules)
        findings: list[Finding] = checked.findings
        beyond = checked.findings.beyond
        name = sample.get("id")
        if type(name) is not str:
            name = None
        if path:
            # The list of a batch decides the split of its members, not --split.
            findings = [_below(path, each) for each in findings if each.code != "L6"]
            beyond.pop(("L6", SEVERITY["L6"]), None)
            if checked.split is not None and checked.split != split:
                findings.append(finding("L6", f"{path}.labels.split"))
        if findings:
            self.failed.update({each.code for each in findings} | {code for code, _ in beyond})
            for each in findings:
                self._find(number, line_number, order, name, each)
            for (code, severity), times in beyond.items():
                self._count(number, code, severity, times)
        content = content_key(sample)
        if name or content != NO_CONTENT:  # a sample without both cannot be a duplicate
            self.seen.add(name, content, number << 48 | line_number << 16 | order)
        self.files[number].samples += 1
        self.tool_samples += checked.tool_sample
        if checked.split is not None:
            self.splits[checked.split] += 1
            sums = self.weights[checked.split, checked.subtype]
            sums[0] += 1
            sums[1] += checked.weight

    def _find(self, number: int, line_number: int, order: int, name: str | None, finding: Finding) -> None:
        self._count(number, finding.code, finding.severity, 1)
        if self.rules.most_findings is not None:
            if len(self.found) >= self.rules.most_findings:
                return
            name = name and name[:_ID_SHOWN]
        located = Located(file=self.files[number].path, line=line_number, id=name, finding=finding)
        self.found.append(((number, line_number, order, by_code(finding)), located))

    def _count(self, number: int, code: str, severity: str, times: int) -> None:
        if severity == "ERROR":
            self.files[number].errors += times
        else:
            self.files[number].warnings += times
        self.by_code[code] += times
        self.severities[code] = severity

    def finish(self) -> Validation:
        for sample, first, code, path in _repeated(self.seen):
            number, line_number, member = _place(self.seen.places[sample])
            first_file, first_line, _ = _place(self.seen.places[first])
            name = self.seen.name(sample) or None
            repeated = finding(code, path, first=f"{self.files[first_file].path}:{first_line}")
            if member:
                repeated = _below(_member_path(member), repeated)
            self._find(number, line_number, member, name, repeated)
            self.failed[code] += 1
        self.found.sort(key=itemgetter(0))
        subtypes: dict[str, dict[str, tuple[int, float]]] = {}
        for (split, subtype), (samples, weight) in sorted(self.weights.items()):
            # Rounded, so that the order of the additions does not matter: ten weights of 0.8 are 8.
            subtypes.setdefault(split, {})[subtype] = (int(samples), round(weight, 6))
        return Validation(
            files=self.files,
            findings=[located for _, located in self.found],
            more=self.by_code.total() - len(self.found),
            samples=sum(file.samples for file in self.files),
            tool_samples=self.tool_samples,
            invalid_lines=self.invalid,
            rules={code: self.failed[code] for code in RULES},
            splits=self.splits,
            subtypes=subtypes,
            by_code=dict(sorted(self.by_code.items())),
            severities=self.severities,
        )


def _below(path: str, finding: Finding) -> Finding:
    below = f"{path}.{finding.path}" if finding.path else path
    return Finding(code=finding.code, path=below, severity=finding.severity, more=finding.more)


def _member(name: str, index: int) -> int:
    """A member of a batch in 16 bits, harmful ones first; 0 means that the line itself is the sample."""
    return 1 + (list(BATCH_LISTS).index(name) << 14 | min(index, (1 << 14) - 2))


def _member_path(member: int) -> str:
    return f"{list(BATCH_LISTS)[(member - 1) >> 14]}[{(member - 1) & ((1 << 14) - 1)}]"


def _place(packed: int) -> tuple[int, int, int]:
    """Unpacks file, line and member of a batch."""
    return packed >> 48, packed >> 16 & 0xFFFF_FFFF, packed & 0xFFFF


def _repeated(seen: _Seen) -> Iterator[tuple[int, int, str, str]]:
    """Yields samples with a duplicate id or content: number, number of the first one, code, path.

    Members of batches are compared only with members. A member with the same id and content is no duplicate.
    """
    if not seen.places:
        return
    member = (np.frombuffer(seen.places, np.uint64) & np.uint64(0xFFFF)) > 0
    contents = np.frombuffer(bytes(seen.contents), np.dtype((np.void, _CONTENT_BYTES)))
    same_content = np.frombuffer(bytes(seen.contents), np.uint64).reshape(-1, 2)
    for group in _groups(np.frombuffer(seen.hashes, np.int64)):
        firsts: dict[tuple[str, int], int] = {}
        for number in group.tolist():
            key = (seen.name(number), int(member[number]))
            if not key[0]:
                continue
            first = firsts.setdefault(key, number)
            if first != number and not (key[1] and contents[first] == contents[number]):
                yield number, first, "I3", "id"
    for group in _groups(same_content[:, 0] ^ same_content[:, 1]):
        firsts_of: dict[tuple[bytes, int], int] = {}
        for number in group.tolist():
            content = contents[number].tobytes()
            if content == NO_CONTENT:
                continue
            first = firsts_of.setdefault((content, int(member[number])), number)
            if first != number and seen.name(first) != seen.name(number):
                yield number, first, "I4", ""


def _groups(keys: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.int64]]:
    """Yields, for each key that occurs more than once, its positions in order.

    keys [7 3 7 9 3]  →  [1 4] [0 2]
    """
    order = np.argsort(keys, kind="stable")
    equal = keys[order][1:] == keys[order][:-1]
    if not equal.any():
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield order[start : end + 1]
