"""Laws of the built-in raw sample: it is deterministic, varied, incomplete where documented, and its sums are right."""

import contextlib
import io
import json
import math
import re
from collections import Counter
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.families.harmony.sample import COLUMNS, FAMILIES, FILE_NAME, Row, sample_rows, write_sample

TEXTS = ("query", "synthetic_reasoning", "synthetic_answer")
# Written out here a second time: these residues are a promise of the module's docstring.
HOLES = {13: ("synthetic_reasoning", None), 37: ("synthetic_answer", ""), 61: ("query", None)}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(sample_rows(240))


@pytest.fixture(scope="module")
def many() -> list[Row]:
    return list(sample_rows(2000))


def text(row: Row, column: str) -> str:
    value = row[column]
    assert value
    return value


def usable(row: Row) -> bool:
    return all(row[column] for column in TEXTS)


def of(rows: list[Row], family: str) -> list[tuple[str, str, str]]:
    """The (query, reasoning, answer) of a family's usable rows."""
    found = [
        (text(r, TEXTS[0]), text(r, TEXTS[1]), text(r, TEXTS[2])) for r in rows if r["script"] == family and usable(r)
    ]
    assert len(found) > 3
    return found


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
    assert file.schema_arrow.equals(pa.schema([(name, pa.string()) for name in COLUMNS]))
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    assert [g.num_rows for g in groups] == [64, 64, 64, 48]
    assert {g.column(c).compression for g in groups for c in range(g.num_columns)} == {"ZSTD"}
    assert file.read().to_pylist() == rows


@pytest.mark.parametrize("count", [0, 1, 64, 65])
def test_any_number_of_rows_can_be_written(tmp_path: Path, count: int) -> None:
    assert pq.ParquetFile(write_sample(tmp_path, count)).metadata.num_rows == count


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write_sample(tmp_path, 5).read_bytes()

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_sample(tmp_path, 10)
    assert [p.name for p in tmp_path.iterdir()] == [FILE_NAME]
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_negative_number_of_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="-1"):
        write_sample(tmp_path, -1)


# --- The rows --------------------------------------------------------------------------------------------------------


def test_a_row_does_not_depend_on_how_many_are_asked_for(rows: list[Row], many: list[Row]) -> None:
    assert many[: len(rows)] == rows


def test_columns_and_ids(rows: list[Row]) -> None:
    assert all(set(row) == set(COLUMNS) for row in rows)
    assert [row["synth_id"] for row in rows] == [f"sample-{i:06d}" for i in range(240)]
    for row in rows:
        assert row["words"] == str(len((row["synthetic_answer"] or "").split()))
        assert (row["query_seed_text"] is not None) == (row["query_seed_url"] is not None)
        assert row["query_seed_text"] is None or row["exercise"] in ("rag", "memorization")


def test_rows_are_incomplete_exactly_at_the_documented_residues(many: list[Row]) -> None:
    for index, row in enumerate(many):
        holes = {column: row[column] for column in TEXTS if not row[column]}
        assert holes == (dict([HOLES[index % 80]]) if index % 80 in HOLES else {}), index


def test_all_rows_differ(many: list[Row]) -> None:
    assert len({tuple(row[column] for column in TEXTS) for row in many}) == 2000


def test_most_rows_are_usable_and_every_family_has_some(rows: list[Row]) -> None:
    good = [row for row in rows if usable(row)]
    assert len(good) == 231
    assert {family.__name__ for family in FAMILIES} < {row["script"] for row in good}


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


def test_every_text_can_be_encoded(many: list[Row]) -> None:
    for row in many:
        for value in row.values():
            assert value is None or value.encode("utf-8").decode("utf-8") == value


# --- What is computed is right: every check below starts again from the text --------------------------------------


def numbers(value: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", value)]


def test_python_answers_print_what_they_say(many: list[Row]) -> None:
    for _, _, answer in of(many, "en_python"):
        match = re.fullmatch(r"```python\n(.*)\n```\n\nThe call prints `(.*)`\.", answer, re.DOTALL)
        assert match
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(match[1], {})
        assert out.getvalue() == match[2] + "\n"


def test_shell_and_json_totals(many: list[Row]) -> None:
    for query, _, answer in of(many, "en_shell"):
        sums: Counter[str] = Counter()
        for host, n in re.findall(r"^(\w+)\t(\d+)$", query, re.MULTILINE):
            sums[host] += int(n)
        assert dict(re.findall(r"^(\w+)\t(\d+)$", answer, re.MULTILINE)) == {h: str(n) for h, n in sums.items()}
    for query, _, answer in of(many, "en_json"):
        record = json.loads(answer)
        wanted = re.findall(r"(\d+) × [^,.]*? at (\d+) cents", query)
        assert record["total_cents"] == sum(int(n) * int(price) for n, price in wanted)
        assert [line["cents"] for line in record["lines"]] == [int(n) * int(price) for n, price in wanted]


def test_quadratic_roots_solve_the_equation(many: list[Row]) -> None:
    for query, _, answer in of(many, "en_quadratic"):
        match = re.search(r"x\^2(?: ([+-]) (\d*)x)? ([+-]) (\d+) = 0", query)
        assert match
        b = int(match[1] + (match[2] or "1")) if match[1] else 0
        c = int(match[3] + match[4])
        roots = [int(n) for n in re.findall(r"x_\d = (-?\d+)\$", answer)]
        assert len(set(roots)) == 2
        assert all(x * x + b * x + c == 0 for x in roots)


def test_euclid(many: list[Row]) -> None:
    for query, _, answer in of(many, "en_euclid"):
        a, b = numbers(query)[:2]
        assert f"gcd({a}, {b}) = {math.gcd(a, b)}," in answer
        assert f"÷ {math.gcd(a, b)} = {math.lcm(a, b)}." in answer


def test_multiple_choice_names_the_one_prime(many: list[Row]) -> None:
    for query, _, answer in of(many, "en_mcq"):
        options = {m: int(n) for m, n in re.findall(r"^([A-D])\) (\d+)$", query, re.MULTILINE)}
        primes = [m for m, n in options.items() if all(n % d for d in range(2, n))]
        assert [answer[2]] == primes
        assert len(options) == 4


def test_short_sums(many: list[Row]) -> None:
    for query, _, answer in of(many, "en_short"):
        a, b = numbers(query)
        assert int(answer) == a - b
    for query, _, answer in of(many, "fr_oui_non"):
        n, d = numbers(query)
        assert answer == ("Oui." if n % d == 0 else "Non.")


def test_calendars(many: list[Row]) -> None:
    days = "lundi mardi mercredi jeudi vendredi samedi dimanche"
    for _, reasoning, answer in of(many, "fr_calendrier"):
        iso = re.search(r"\d{4}-\d\d-\d\d", reasoning)
        assert iso
        d = date.fromisoformat(iso[0])
        rank = d.toordinal() - date(d.year, 1, 1).toordinal() + 1
        assert days.split()[d.toordinal() % 7 - 1] in answer  # ordinal 1 was a Monday
        assert re.search(rf"le {rank}er? jour", answer)
    first = {"昭和": 1926, "平成": 1989, "令和": 2019}
    for query, _, answer in of(many, "ja_wareki"):
        y, m, d_ = numbers(query)[:3]
        match = re.search(rf"では(昭和|平成|令和)(元|\d+)年{m}月{d_}日で、(.)曜日", answer)
        assert match
        assert first[match[1]] + (1 if match[2] == "元" else int(match[2])) - 1 == y
        assert "日月火水木金土"[date(y, m, d_).isoweekday() % 7] == match[3]


def test_numerals(many: list[Row]) -> None:
    values = dict(zip("IVXLCDM", (1, 5, 10, 50, 100, 500, 1000), strict=True))
    for query, _, answer in of(many, "la_numerus"):
        letters = [values[c] for c in answer.removesuffix(".").rsplit(" ", 1)[1]]
        signed = [-v if v < nxt else v for v, nxt in zip(letters, [*letters[1:], 0], strict=True)]
        assert sum(signed) == numbers(query)[0]
    units = {"十": 10, "百": 100, "千": 1000}
    for query, _, answer in of(many, "zh_shuzi"):
        total = digit = 0
        for c in answer.split("“")[1].split("”")[0]:
            if c in units:
                total, digit = total + digit * units[c], 0
            else:
                digit = "零一二三四五六七八九".index(c)
        assert total + digit == numbers(query)[0]


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        (
            "de_zahlwort",
            {211: "zweihundertelf", 174: "einhundertvierundsiebzig", 1321: "eintausenddreihunderteinundzwanzig"},
        ),
        ("pl_liczebnik", {1: "plik", 2: "koty", 5: "godzin", 12: "kotów", 22: "koty", 25: "godzin"}),
        ("ru_forma", {1: "год", 2: "книги", 11: "яблок", 12: "часов", 21: "год", 22: "книги", 25: "лет"}),
    ],
)
def test_word_forms_that_were_looked_up(many: list[Row], family: str, wanted: dict[int, str]) -> None:
    seen = {numbers(query)[0]: answer for query, _, answer in of(many, family)}
    checked = [n for n in wanted if n in seen]
    assert len(checked) >= 2
    assert all(re.search(rf"\b{wanted[n]}\b", seen[n]) for n in checked)


def test_products_and_sums_in_any_script(many: list[Row]) -> None:
    # int() and \d read the digits of every script.
    for family in ("ar_kutub", "hi_pensil", "nl_fiets"):
        for _, _, answer in of(many, family):
            a, b, product = map(int, re.findall(r"(\d+) × (\d+) = (\d+)", answer)[0])
            assert a * b == product
    for _, reasoning, answer in of(many, "he_gematria"):
        value = sum(int(n) for n in re.findall(r"^- . = (\d+) ●$", reasoning, re.MULTILINE))
        assert numbers(answer) == [value, plus := numbers(answer)[1], value + plus]


def test_long_answers(many: list[Row]) -> None:
    for query, _, answer in of(many, "en_long_multiplication"):
        a, b = numbers(query)
        assert answer.endswith(f"**{a} × {b} = {a * b}**")
        for x, y, xy in re.findall(r"- (\d) × (\d) = (\d+)", answer):
            assert int(x) * int(y) == int(xy)
    for _, _, answer in of(many, "en_long_collatz"):
        for sentence in re.findall(r"3 × (\d+) \+ 1 = (\d+)", answer):
            assert 3 * int(sentence[0]) + 1 == int(sentence[1])
        for whole, half in re.findall(r"(\d+) is even; half of it is (\d+)", answer):
            assert int(whole) == 2 * int(half)
    for _, _, answer in of(many, "fr_long_premiers"):
        cells = [numbers(line) for line in answer.splitlines() if line.startswith("| ") and line[2].isdigit()]
        assert len(cells) == 500
        for p, before, after, gap, six, m, one in cells:
            assert (six, one) == (6, 1)
            assert before < p < after == p + gap
            assert abs(six * m - p) == 1
            assert all(p % d for d in range(2, math.isqrt(p) + 1))
