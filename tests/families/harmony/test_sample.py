"""The built-in raw sample: its 240 rows, that they are varied and incomplete where documented, and the file of them."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.families.harmony.sample import FILE_NAME, TEXTS, Row, sample_rows, write_sample

# Written out here a second time: these residues are a promise of the module's docstring.
HOLES = {13: ("synthetic_reasoning", None), 37: ("synthetic_answer", ""), 61: ("query", None)}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return sample_rows()


def text(row: Row, column: str) -> str:
    value = row[column]
    assert value
    return value


def usable(row: Row) -> bool:
    return all(row[column] for column in TEXTS)


# --- The file --------------------------------------------------------------------------------------------------------


def test_two_calls_give_equal_bytes_and_leave_one_file(tmp_path: Path) -> None:
    first, second = write_sample(tmp_path / "a" / "deep"), write_sample(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    write_sample(tmp_path / "b")  # over the old one
    assert [p.name for p in (tmp_path / "b").iterdir()] == [FILE_NAME] == ["synth_sample.parquet"]
    assert first.read_bytes() == second.read_bytes()


def test_the_file_holds_the_rows_as_zstd_strings_in_groups_of_64(tmp_path: Path, rows: list[Row]) -> None:
    path = write_sample(tmp_path)
    file = pq.ParquetFile(path)
    assert set(file.schema_arrow.types) == {pa.string()}
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    assert [g.num_rows for g in groups] == [64, 64, 64, 48]
    assert {g.column(c).compression for g in groups for c in range(g.num_columns)} == {"ZSTD"}
    assert file.read().to_pylist() == rows


@pytest.mark.parametrize("count", [0, 1, 64, 65, 239])
def test_fewer_rows_are_the_first_ones(tmp_path: Path, rows: list[Row], count: int) -> None:
    assert pq.read_table(write_sample(tmp_path, count)).to_pylist() == rows[:count]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write_sample(tmp_path, 5).read_bytes()

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_sample(tmp_path, 10)
    assert [p.name for p in tmp_path.iterdir()] == [FILE_NAME]
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("count", [-1, 241])
def test_a_number_of_rows_that_the_sample_has_not_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match=f"the sample has 240 rows, got {count}"):
        write_sample(tmp_path, count)


def test_the_command_names_the_limit(tmp_path: Path, cli: Cli) -> None:
    ended = cli("sample", "--out", tmp_path / "raw", "--rows", 241)
    assert ended.returncode == 2
    assert "less than or equal to 240" in ended.stderr
    assert not (tmp_path / "raw").exists()


# --- The rows --------------------------------------------------------------------------------------------------------


def test_the_rows_are_those_that_were_once_computed(rows: list[Row]) -> None:
    """The hash was taken of what the generator of the first version gave, of which these rows were kept."""
    spelled = json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    expected = "39f36b9ec59ce2994e8d71de862f984e845cab4261beab2eeb15eabc98cb4611"
    assert hashlib.sha256(spelled.encode()).hexdigest() == expected


def test_columns_and_ids(rows: list[Row]) -> None:
    assert [row["synth_id"] for row in rows] == [f"sample-{i:06d}" for i in range(240)]
    for row in rows:
        assert row["words"] == str(len((row["synthetic_answer"] or "").split()))
        assert (row["query_seed_text"] is not None) == (row["query_seed_url"] is not None)
        assert row["query_seed_text"] is None or row["exercise"] in ("rag", "memorization")


def test_rows_are_incomplete_exactly_at_the_documented_residues(rows: list[Row]) -> None:
    for index, row in enumerate(rows):
        holes = {column: row[column] for column in TEXTS if not row[column]}
        assert holes == (dict([HOLES[index % 80]]) if index % 80 in HOLES else {}), index


def test_most_rows_are_usable_and_every_kind_has_some(rows: list[Row]) -> None:
    good = [row for row in rows if usable(row)]
    assert len(good) == 231
    assert {row["script"] for row in rows} == {row["script"] for row in good}
    assert len({row["script"] for row in rows[:33]}) == 33


def test_languages_and_exercises(rows: list[Row]) -> None:
    languages = Counter(row["language"] for row in rows if usable(row))
    assert {"en", "fr", "de", "es", "it", "pl", "nl", "la", "ru", "ar", "he", "hi", "zh", "ja"} == set(languages)
    assert min(languages.values()) >= 5
    exercises = {"memorization", "mcq", "creative writing", "math exercise", "rag", "editing", "code"}
    assert exercises == {row["exercise"] for row in rows}


def test_lengths(rows: list[Row]) -> None:
    answers = [text(row, "synthetic_answer") for row in rows if usable(row)]
    long = [a for a in answers if len(a.encode()) >= 20_000 and len(a.split()) >= 3000]
    assert len(long) == 3
    assert len(set(long[0].splitlines())) > 100  # no paragraph said again and again
    assert min(map(len, answers)) <= 3
    assert {"42", "Oui."} <= set(answers)


@pytest.mark.parametrize(
    "needle",
    [
        *("<|end|>", "<|start|>assistant<|channel|>final<|message|>", "<|return|>", "<|endoftext|>"),
        *("\t", "\r\n", "  ", "    total = 0\n", "```sh\n", '{\n  "order"', "\\frac{", "∣", "≡"),
        *("\u200b", "\u200d", "\u2060", "\ufeff", "e\u0301", "\N{REGIONAL INDICATOR SYMBOL LETTER F}", "👨‍👩‍👧‍👦"),
        *("א", "ك", "年", "数", "→", "●", "◐", "○", "### 1. "),
    ],
)
def test_awkward_text_is_present(rows: list[Row], needle: str) -> None:
    assert any(needle in text(row, column) for row in rows if usable(row) for column in TEXTS)


def test_some_texts_begin_and_end_with_spaces(rows: list[Row]) -> None:
    for column in ("query", "synthetic_answer"):
        assert any(value != value.rstrip() for row in rows if (value := row[column]))
    assert any(value.startswith("  ") for row in rows if (value := row["query"]))
