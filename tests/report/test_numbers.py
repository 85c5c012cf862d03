"""Every number that a report, the statistics and the card tell, made again from the raw files with numpy alone."""

import csv
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.dataset.statistics import collect
from spanloom.families.harmony import dataset as harmony
from spanloom.report.stats import stats_lines
from support import sources
from support.demo_datasets import built
from support.each import each

SPANS = ("context", "analysis", "final")
Document = dict[str, Any]


def documents(root: Path) -> list[Document]:
    """Read as the format says: lengths behind 34 bytes of header, arrays end to end. Language by place in the rows."""
    found = []
    for tokens_file in sorted(root.glob("*/shard_*_tokens.bin")):
        split, name = tokens_file.parent.name, tokens_file.name.removesuffix("_tokens.bin")
        index = tokens_file.with_suffix(".idx").read_bytes()
        count = int.from_bytes(index[18:26], "little")
        lengths = np.frombuffer(index, dtype="<i4", count=count, offset=34)
        tokens = np.fromfile(tokens_file, dtype="<i4")
        span = np.fromfile(tokens_file.with_name(f"{name}_span.bin"), dtype=np.uint8)
        mask = np.fromfile(tokens_file.with_name(f"{name}_lossmask.bin"), dtype=np.uint8)
        rows = pq.read_table(
            tokens_file.with_name(f"{name}_rows.parquet"), columns=["synth_id", "language", "exercise"]
        ).to_pylist()
        begin = 0
        for sequence, (length, row) in enumerate(zip(lengths.tolist(), rows, strict=True)):
            at = slice(begin, begin + length)
            begin += length
            found.append(
                {
                    "split": split,
                    "shard": name.removeprefix("shard_"),
                    **row,
                    "sequence": sequence,
                    "content": tokens[at].tobytes(),
                    "length": tokens[at].size,
                    "trained": int(mask[at].sum()),
                    **{name: int((span[at] == number).sum()) for number, name in enumerate(SPANS)},
                }
            )
        assert begin == tokens.size == span.size == mask.size
    return found


def check(line: dict[str, Any], group: list[Document]) -> None:
    """One line of statistics against the documents that it is about."""
    lengths = np.array([document["length"] for document in group])
    assert line["sequences"] == len(group)
    assert line["tokens"] == lengths.sum()
    for name in SPANS:
        assert line[f"{name}_tokens"] == sum(document[name] for document in group)
    for name in SPANS[1:]:
        assert line[f"without_{name}"] == sum(document[name] == 0 for document in group)
    assert line["trained_tokens"] == sum(document["trained"] for document in group)
    assert line["longest"] == lengths.max()
    assert line["mean_length"] == pytest.approx(lengths.mean(), abs=0.005)
    for limit in (2048, 4096, 8192, 16384):
        assert line[f"fit_{limit}"] == (lengths <= limit).sum()
    for name, share in (("median_length", 0.5), ("p90_length", 0.9), ("p99_length", 0.99)):
        exact = np.sort(lengths)[int(np.ceil(share * lengths.size)) - 1]
        assert exact <= line[name] <= exact * (1 + 1 / 64) + 1


@pytest.fixture(scope="module", params=["demo", pytest.param("real", marks=pytest.mark.beside)])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    if request.param == "demo":
        return Path(request.getfixturevalue("demo"))
    sample = request.getfixturevalue("real_sample")
    root = tmp_path_factory.mktemp("real") / "root"
    done = cli("build", "--source", sample / "synth_harmony", "--out", root, "--valid-fraction", 0.1)
    assert done.returncode == 0, done.stderr
    return root


@each("by", ["", "split", "split,shard", "language", "exercise", "split,language", "shard,exercise"])
def test_stats(root: Path, by: str) -> None:
    found = documents(root)
    names = tuple(name for name in by.split(",") if name)
    lines = stats_lines(
        names,
        collect(root, manifest.read(root).content, [names], columns=harmony.GROUP_COLUMNS, ratio=harmony.RATIO)[names],
    )
    keys = {tuple(document[name] for name in names) for document in found}
    assert len(lines) == len(keys)
    for line in lines:
        key = tuple(line[name] for name in names)
        check(line, [document for document in found if tuple(document[name] for name in names) == key])


def test_the_three_forms_of_the_command_say_the_same(demo: Path, cli: Cli) -> None:
    forms = {
        form: cli("stats", demo, "--by", "split,language", *form, COLUMNS="20")
        for form in ((), ("--json",), ("--csv",))
    }
    assert [done.returncode for done in forms.values()] == [0, 0, 0]
    lines = json.loads(forms["--json",].stdout)
    assert {line["language"] for line in lines} >= {"de", "en", "zh"}
    as_csv = list(csv.DictReader(forms["--csv",].stdout.splitlines()))
    assert as_csv == [{name: str(value) for name, value in line.items()} for line in lines]
    head, *table = forms[()].stdout.splitlines()
    assert head.split()[:4] == ["split", "language", "documents", "tokens"]
    columns = ("split", "language", "sequences", "tokens")
    assert [row.split()[:4] for row in table] == [
        [f"{line[name]:,}" if isinstance(line[name], int) else line[name] for name in columns] for line in lines
    ]


def test_documents_to_look_at_are_the_first_and_the_longest_of_each_split(root: Path) -> None:
    samples = json.loads((root / "report.json").read_bytes())["statistics"]["samples"]
    found = documents(root)
    for split in ("train", "valid"):
        of_split = [document for document in found if document["split"] == split]
        longest = max(of_split, key=lambda document: document["length"])
        for which, document in (("first", of_split[0]), ("longest", longest)):
            assert samples.pop(0) == {
                "which": f"{which} of {split}",
                "document": f"{split}/{document['shard']}/{document['sequence']}",
                "id": document["synth_id"],
                "tokens": document["length"],
            }
    assert not samples


def test_the_median_ratio_is_the_middle_document_rounded_up_to_half_an_octave(root: Path) -> None:
    median = json.loads((root / "report.json").read_bytes())["statistics"]["ratios"]["median"]
    ratios = sorted(
        document["analysis"] / document["final"]
        for document in documents(root)
        if document["analysis"] and document["final"]
    )
    exact = ratios[(len(ratios) - 1) // 2]
    assert exact <= median <= exact * 2**0.5


def test_report_json(root: Path) -> None:
    facts = json.loads((root / "report.json").read_bytes())
    found = documents(root)
    statistics = facts["statistics"]
    check(statistics["total"], found)
    groupings = {
        "splits": ["split"],
        "shards": ["split", "shard"],
        "languages": ["language"],
        "exercises": ["exercise"],
    }
    for name, key in groupings.items():
        lines = statistics[name]
        assert len(lines) == len({tuple(document[part] for part in key) for document in found})
        for line in lines:
            check(line, [document for document in found if all(document[part] == line[part] for part in key)])

    lengths = statistics["lengths"]
    edges = [lengths["below"], *lengths["edges"]]
    for split, counts in lengths["splits"].items():
        of_split = np.array([document["length"] for document in found if document["split"] == split])
        assert counts == [int(((of_split > a) & (of_split <= b)).sum()) for a, b in pairwise(edges)]

    both = [document for document in found if document["analysis"] and document["final"]]
    bins = np.searchsorted(2.0 ** (np.arange(-16, 17) / 2), [one["analysis"] / one["final"] for one in both])
    assert statistics["ratios"]["documents"] == np.bincount(bins, minlength=34).tolist()
    totals = [sum(document[name] for document in found) for name in ("analysis", "final")]
    assert statistics["ratios"]["overall"] == totals[0] / totals[1]

    fraction = facts["valid_fraction"]
    assert fraction["valid"] == sum(document["split"] == "valid" for document in found)
    assert fraction["documents"] == len(found)
    assert fraction["realised"] == fraction["valid"] / len(found)
    assert fraction["asked"] == 0.1


def test_documents_with_equal_tokens_are_counted(root: Path) -> None:
    found = documents(root)
    repeated = len(found) - len({document["content"] for document in found})
    assert json.loads((root / "report.json").read_bytes())["duplicate_documents"] == repeated
    words = (
        f"{repeated:,} of {len(found):,} documents have the same tokens"
        if repeated
        else "No two documents have the same tokens"
    )
    for view in ("report.html", "README.md"):
        assert words in (root / view).read_text("utf-8")


def test_copies_under_other_ids_are_named_in_every_view(tmp_path: Path, asset: Path) -> None:
    """Five of seven documents say the same; the split follows from the id, so copies are in both."""
    same = [sources.row(f"copy-{number}", sources.conversation()) for number in range(5)]
    others = [sources.row(f"other-{number}") for number in range(2)]
    source = sources.write_source(tmp_path / "source", [same[:3] + others[:1], same[3:] + others[1:]])
    root = built(source, tmp_path / "root", asset, shards=2, valid_fraction=0.5)
    assert {document["split"] for document in documents(root) if "copy" in document["synth_id"]} == {"train", "valid"}
    assert json.loads((root / "report.json").read_bytes())["duplicate_documents"] == 4
    words = "4 of 7 documents have the same tokens as an earlier document."
    for view in ("report.html", "README.md"):
        assert words in (root / view).read_text("utf-8")


class Tables(HTMLParser):
    """The cells of every row of every table, as text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.rows[-1].append("".join(self._cell).strip())
            self._cell = None


def test_report_html(root: Path) -> None:
    rows = [tuple(row) for row in Tables((root / "report.html").read_text("utf-8")).rows]
    found = documents(root)

    def sums(group: list[Document]) -> list[str]:
        return [f"{sum(document[name] for document in group):,}" for name in ("length", *SPANS)]

    for split in ("train", "valid"):
        of_split = [document for document in found if document["split"] == split]
        longest = f"{max(document['length'] for document in of_split):,}"
        id_of_longest = max(of_split, key=lambda document: document["length"])["synth_id"]
        assert any(row[0] == split and (row[5], row[-1]) == (longest, id_of_longest) for row in rows)
        assert (split, f"{len(of_split):,}", *sums(of_split), longest, "") in rows
    for shard in sorted({document["shard"] for document in found}):
        of_shard = [document for document in found if (document["split"], document["shard"]) == ("train", shard)]
        cells = (shard, f"{len(of_shard):,}", *sums(of_shard))
        assert any(row[1:7] == cells for row in rows), cells
    for language in {document["language"] for document in found} - {None}:
        spoken = [document for document in found if document["language"] == language]
        tokens, *spans = sums(spoken)
        share = 100 * sum(one["length"] for one in spoken) / sum(one["length"] for one in found)
        assert (language, f"{len(spoken):,}", tokens, f"{share:.1f} %", *spans, "") in rows


def test_card(root: Path) -> None:
    card = (root / "README.md").read_text("utf-8")
    found = documents(root)
    for split in ("train", "valid"):
        of_split = [document for document in found if document["split"] == split]
        numbers = [len(of_split), *(sum(one[name] for one in of_split) for name in ("length", *SPANS))]
        numbers.append(max(one["length"] for one in of_split))
        assert f"| {split} | " + " | ".join(f"{number:,}" for number in numbers) + " |" in card
    said = dict(re.findall(r"`(\w+)` ([\d,]+ documents, [\d,]+ tokens)", card))
    spoken = {document["language"] for document in found} - {None}
    assert said == {
        language: f"{len(group):,} documents, {sum(one['length'] for one in group):,} tokens"
        for language in spoken
        for group in [[document for document in found if document["language"] == language]]
    }
