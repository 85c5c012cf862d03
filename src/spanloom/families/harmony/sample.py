"""The built-in raw sample: a small Parquet file shaped like PleIAs/SYNTH, so that a demo runs without a network.

In: a number of rows. Out: ``synth_sample.parquet``, with the columns of ``COLUMNS`` (all strings, some null), in row
groups of 64 rows. There is no clock and no randomness: a row is a function of its index, so two calls give equal bytes
(under one version of pyarrow).

Row ``i`` comes from one of three places, by ``i % 80``:

* 40: a very long answer (at least 20,000 bytes), of three kinds in turn;
* 13, 37, 61: an ordinary row made incomplete on purpose, so that a converter's counted skips are seen:
  13 has a null ``synthetic_reasoning``, 37 an empty ``synthetic_answer``, 61 a null ``query``;
* any other: an ordinary row of the family ``i % 33``, with the counter ``i // 33``.

The English families on code, maths and awkward characters are here, all others in ``sample_texts``. 33 and 80 have no
common factor, so in time every family also gives incomplete rows.
"""

import json
import os
import unicodedata
from collections.abc import Iterator
from itertools import islice, pairwise
from math import gcd, isqrt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.families.harmony.sample_texts import TEXT_FAMILIES, Family, Sample, notes, words

Row = dict[str, str | None]

FILE_NAME = "synth_sample.parquet"
ROW_GROUP = 64
CYCLE = 80
LONG_RESIDUE = 40
INCOMPLETE: dict[int, tuple[str, str | None]] = {
    13: ("synthetic_reasoning", None),
    37: ("synthetic_answer", ""),
    61: ("query", None),
}
COLUMNS = (
    "synth_id",
    "language",
    "exercise",
    "model",
    "query",
    "query_seed_url",
    "query_seed_text",
    "additional_seed_url",
    "seed_license",
    "constraints",
    "script",
    "synthetic_reasoning",
    "synthetic_answer",
    "words",
)


# --- Code ------------------------------------------------------------------------------------------------------------

PYTHON_DIGIT_SUM = '''def digit_sum(n: int, base: int = 10) -> int:
    """Sum of the digits of n, written in the given base."""
    total = 0
    while n:
        n, digit = divmod(n, base)
        total += digit
    return total
'''

PYTHON_RUN_LENGTH = '''def run_length(text: str) -> str:
    """Each run of one letter, as its length and the letter."""
    out = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or text[end] != text[start]:
            out.append(f"{end - start}{text[start]}")
            start = end
    return "".join(out)
'''


def en_python(k: int) -> Sample:
    if k % 2:
        n, base = 5000 + 137 * k, (2, 3, 7, 10, 16)[k % 5]
        code, call = PYTHON_DIGIT_SUM, f"digit_sum({n}, {base})"
        rest, digits = n, []
        while rest:
            rest, digit = divmod(rest, base)
            digits.append(digit)
        result = str(sum(digits))
        task = f"adds up the digits of a number in a given base, and show the result for {n} in base {base}"
        check = f"digits of {n} in base {base}: {' '.join(map(str, reversed(digits)))} → sum {result} ●"
    else:
        lengths = [int(c) + 1 for c in str(1000 + k % 9000)]
        text = "".join(letter * length for letter, length in zip("xyzx", lengths, strict=True))
        code, call = PYTHON_RUN_LENGTH, f'run_length("{text}")'
        result = "".join(f"{length}{letter}" for letter, length in zip("xyzx", lengths, strict=True))
        task = f'run-length encodes a string, and show the result for "{text}"'
        check = f"runs of {text}: {', '.join(map(str, lengths))} → {result} ●"
    reasoning = notes(
        ("Query parsing", ["Python function + one worked call.", "- type hints, docstring, no imports"]),
        ("Check by hand", [check]),
        ("Edge cases", ["- nothing to count → loop body never runs ●", "- other types of input: not asked ○"]),
    )
    answer = f"```python\n{code}\n\nprint({call})\n```\n\nThe call prints `{result}`."
    return Sample("en", "code", f"Write a Python function that {task}.", reasoning, answer)


def en_shell(k: int) -> Sample:
    counts = [12 + k, 7 + 3 * k % 50, 30 + 11 * k % 70, 5 + k % 6]
    table = "\n".join(f"{host}\t{n}" for host, n in zip(words("web db web cache"), counts, strict=True))
    totals = sorted({"web": counts[0] + counts[2], "db": counts[1], "cache": counts[3]}.items())
    printed = "\n".join(f"{host}\t{n}" for host, n in totals)
    query = f"hits.tsv holds this, with tabs:\n\n{table}\n\nHow do I add up the numbers per name in the shell?"
    reasoning = notes(
        ("Query parsing", ["TSV, key = column 1, value = column 2 → sums per key.", "Tool: awk, separator = tab."]),
        ("Expected output", [f"- {host} → {n} ●" for host, n in totals]),
        ("Caveat", ["awk's own order of keys is unspecified ◐ → pipe to sort"]),
    )
    command = (
        "awk -F'\\t' '{ sum[$1] += $2 }\n\tEND { for (name in sum) print name \"\\t\" sum[name] }' hits.tsv | sort"
    )
    answer = f"```sh\n{command}\n```\n\nFor your file that prints:\n\n```\n{printed}\n```"
    return Sample("en", "code", query, reasoning, answer)


def en_json(k: int) -> Sample:
    order = 20_000 + k
    lines = [("notebook", 2 + k % 5, 350), ("pencil", 6 + k % 13, 85), ("crème brûlée", 1 + k % 3, 620)]
    cents = sum(n * price for _, n, price in lines)
    wanted = ", ".join(f"{n} × {name} at {price} cents" for name, n, price in lines)
    record = {
        "order": order,
        "lines": [{"item": name, "count": n, "cents": n * price} for name, n, price in lines],
        "total_cents": cents,
        "paid": k % 2 == 0,
        "note": None,
    }
    paid = "It is paid." if k % 2 == 0 else "It is not paid yet."
    query = f"Give me order {order} as JSON, with the price of each line and the total: {wanted}. {paid} No note."
    reasoning = notes(
        ("Query parsing", [f"Order {order}, {len(lines)} lines → JSON only."]),
        ("Sums", [f"- {name}: {n} × {price} = {n * price} ●" for name, n, price in lines] + [f"total = {cents} ●"]),
        ("Types", ["paid → boolean; missing note → null, not an empty string ◐"]),
    )
    return Sample("en", "code", query, reasoning, json.dumps(record, indent=2, ensure_ascii=False))


# --- Maths -----------------------------------------------------------------------------------------------------------


def term(factor: int, symbol: str) -> str:
    """A term that continues a sum: its sign, then its size; nothing for a factor of 0."""
    if factor == 0:
        return ""
    size = symbol if symbol and abs(factor) == 1 else f"{abs(factor)}{symbol}"
    return f" {'+' if factor > 0 else '-'} {size}"


def en_quadratic(k: int) -> Sample:
    r, s = 1 + k, -(2 + 3 * k % 11)  # the two roots: one above zero and one below it
    b, c = -(r + s), r * s
    disc = b * b - 4 * c
    root = isqrt(disc)
    equation = f"x^2{term(b, 'x')}{term(c, '')} = 0"
    reasoning = notes(
        ("Query parsing", [f"Monic quadratic, b = {b}, c = {c} → both roots."]),
        ("Discriminant", [f"Δ = b² − 4c = {b * b} − ({4 * c}) = {disc}; √Δ = {root} ● perfect square"]),
        ("Check", [f"sum of roots {r} + ({s}) = {-b} ✓", f"product {r} · ({s}) = {c} ✓"]),
    )
    fraction = f"\\frac{{-b \\pm \\sqrt{{\\Delta}}}}{{2a}} = \\frac{{{-b} \\pm {root}}}{{2}}"
    answer = (
        f"For ${equation}$ the discriminant is\n\n\\[\n\\Delta = b^2 - 4ac = ({b})^2 - 4 \\cdot ({c}) = {disc} = "
        f"{root}^2,\n\\]\n\nso\n\n\\[\nx_{{1,2}} = {fraction}.\n\\]\n\n"
        f"The solutions are $x_1 = {r}$ and $x_2 = {s}$."
    )
    return Sample("en", "math exercise", f"Solve ${equation}$ over the real numbers.", reasoning, answer)


def en_euclid(k: int) -> Sample:
    a, b = 12 * (101 + 7 * k), 18 * (23 + k)
    steps, x, y = [], a, b
    while y:
        steps.append(f"{x} = {x // y} × {y} + {x % y}")
        x, y = y, x % y
    common, multiple = gcd(a, b), a * b // gcd(a, b)
    query = f"Find gcd({a}, {b}) with Euclid's algorithm, and lcm({a}, {b}) from it. Show each division."
    reasoning = notes(
        ("Query parsing", [f"a = {a}, b = {b}; gcd by repeated division; lcm = a·b ÷ gcd."]),
        ("Divisions", [f"- {step}" for step in steps]),
        ("Result", [f"last remainder ≠ 0 → {common} ●", f"{a} ≡ {b} ≡ 0 (mod {common}) ✓"]),
    )
    answer = "\n".join(steps) + (
        f"\n\n∴ gcd({a}, {b}) = {common}, since the remainders after it are 0.\n"
        f"lcm({a}, {b}) = {a} · {b} ÷ {common} = {multiple}. Both {a} ∣ {multiple} and {b} ∣ {multiple} hold, "
        f"and {common} ≤ min({a}, {b})."
    )
    return Sample("en", "math exercise", query, reasoning, answer)


def en_short(k: int) -> Sample:
    result, b = (42, 7, 100)[k % 3], 13 + 5 * k
    reasoning = notes(("Query parsing", ["Number only → no words."]), ("Sum", [f"{result + b} − {b} = {result} ●"]))
    query = f"  What is {result + b} − {b}? Just the number. "  # the spaces at both ends are meant
    return Sample("en", "math exercise", query, reasoning, str(result), None, "Answer with a number only.")


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, isqrt(n) + 1))


def en_mcq(k: int) -> Sample:
    odd = range(101 + 100 * k, 200 + 100 * k, 2)
    prime = next(n for n in odd if is_prime(n))
    wrong = [n for n in odd if not is_prime(n)][k % 5 : k % 5 + 3]
    options = [*wrong[: k % 4], prime, *wrong[k % 4 :]]
    factor = {n: next(d for d in range(3, n) if n % d == 0) for n in wrong}
    letter = "ABCD"[k % 4]
    query = "Which of these numbers is prime?\n" + "\n".join(
        f"{mark}) {n}" for mark, n in zip("ABCD", options, strict=True)
    )
    splits = [f"- {n} = {factor[n]} × {n // factor[n]}" for n in wrong]
    reasoning = notes(
        ("Query parsing", ["Single choice; exactly one prime expected."]),
        ("Eliminate", [f"{line} ✗" for line in splits]),
        ("Confirm", [f"{prime}: no divisor from 2 to {isqrt(prime)} → prime ●", f"→ {letter}"]),
    )
    answer = f"**{letter}) {prime}**\n\nThe others can be split:\n\n" + "\n".join(splits)
    return Sample("en", "mcq", query, reasoning, answer)


# --- Awkward characters ----------------------------------------------------------------------------------------------


def en_crlf(k: int) -> Sample:
    rows = [("name", "count", "note"), ("bolt", str(40 + k), 'M6, "fine"'), ("washer", str(7 * k % 90), " spare ")]
    tabs = "\r\n".join("\t".join(row) for row in rows)
    quoted = [
        [f'"{cell.replace(chr(34), chr(34) * 2)}"' if {",", '"'} & set(cell) else cell for cell in row] for row in rows
    ]
    lines = "\r\n".join(",".join(row) for row in quoted)
    query = f"   Turn this tab-separated export into CSV, keep the Windows line ends and all spaces:\r\n\r\n{tabs}\r\n"
    reasoning = notes(
        ("Query parsing", ["TSV → CSV; CRLF kept; inner spaces kept."]),
        (
            "Quoting",
            ['- cell with comma or quote → quoted, quotes doubled ●: M6, "fine"', f"- bolt count {40 + k} as is"],
        ),
        ("Doubt", ["' spare ' keeps its spaces; quoting it is optional ◐"]),
    )
    return Sample("en", "editing", query, reasoning, lines + "\r\n  ")  # the spaces at the end are meant


HIDDEN = (("\u200b", "zero width space"), ("\u2060", "word joiner"), ("\u200d", "zero width joiner"), ("\ufeff", "BOM"))


def en_unicode(k: int) -> Sample:
    if k % 2:
        # The text with the hidden character stays in the query; the answer gives it back without.
        mark, name = HIDDEN[k // 2 % 4]
        clean, at = f"invoice-{2000 + k}", 1 + k % 9
        dirty = clean[:at] + mark + clean[at:]
        query = f"My search does not find “{dirty}”, although I can see it in the file. What is wrong with it?"
        reasoning = notes(
            ("Query parsing", [f"Visible: {clean} ({len(clean)} characters); actual: {len(dirty)} → 1 hidden ●"]),
            ("Locate", [f"after character {at}: U+{ord(mark):04X} ({name})", "- how it got in: copy and paste? ○"]),
        )
        answer = (
            f"It holds an invisible character: U+{ord(mark):04X} ({name}), right after “{clean[:at]}”. So it has "
            f"{len(dirty)} characters where you see {len(clean)}. The clean text is:\n\n{clean}"
        )
        return Sample("en", "editing", query, reasoning, answer)
    word = ("café", "Ångström", "naïve", "żółć", "crème brûlée", "façade", "tiếng Việt")[k // 2 % 7]
    composed = f"{word} {10 + k}"
    split = unicodedata.normalize("NFD", composed)
    query = f"I have “{split}” and “{composed}”. They look alike, so why does == say that they differ?"
    sizes = [(form, len(text), len(text.encode())) for form, text in (("NFD", split), ("NFC", composed))]
    marks = [f"U+{ord(c):04X}" for c in split if unicodedata.combining(c)]
    reasoning = notes(
        ("Query parsing", [f"Same look, different code points → normalisation. Text: {composed}"]),
        ("Count", [f"- {form}: {points} code points, {size} bytes in UTF-8 ●" for form, points, size in sizes]),
        ("Cause", [f"combining marks: {', '.join(marks)}"]),
    )
    answer = (
        f"The first text is decomposed (NFD): letters followed by combining marks ({', '.join(marks)}), "
        f"{sizes[0][1]} code points in all. The second is composed (NFC), with {sizes[1][1]}. Normalise both first:\n\n"
        f'    unicodedata.normalize("NFC", a) == unicodedata.normalize("NFC", b)\n\nBoth then read {composed}.'
    )
    return Sample("en", "code", query, reasoning, answer)


def caesar(text: str, shift: int) -> str:
    """text with its lower-case letters a to z moved on by shift; all else stays."""
    return "".join(chr((ord(c) - 97 + shift) % 26 + 97) if "a" <= c <= "z" else c for c in text)


def en_caesar(k: int) -> Sample:
    what = ("parcel", "boat", "choir", "courier", "night train")[k % 5]
    plain = f"the {what} leaves gate {100 + k} at {('noon', 'dawn', 'dusk', 'midnight')[k % 4]}"
    shift = 1 + k % 25
    secret = caesar(plain, shift)
    reasoning = notes(
        ("Query parsing", [f"Caesar, letters moved on by {shift} → move back by {shift}. Digits untouched."]),
        ("Decode", [f"- {a} → {b}" for a, b in zip(secret.split(), plain.split(), strict=True)]),
        ("Sanity", ["reads as English ●"]),
    )
    query = f"Decode this Caesar cipher (every letter was moved on by {shift}): “{secret}”"
    return Sample("en", "editing", query, reasoning, f"The message reads: “{plain}”.")


# --- Very long answers -----------------------------------------------------------------------------------------------

LONG_BYTES = 22_000


def en_long_multiplication(k: int) -> Sample:
    a = 10**25 + pow(7, 60 + k, 9 * 10**25)  # 26 digits each
    b = 10**25 + pow(3, 80 + k, 9 * 10**25)
    query = f"Multiply {a} by {b} by hand, with every digit and every carry."
    parts, total = [], 0
    for place, c in enumerate(reversed(str(b))):
        digit, carry = int(c), 0
        lines = [f"**Row {place + 1}: {a} × {digit}, moved {place} places to the left**", ""]
        for d in map(int, reversed(str(a))):
            now = digit * d + carry
            plus = f", plus the carry {carry} makes {now}" if carry else ""
            lines.append(f"- {digit} × {d} = {digit * d}{plus}: write {now % 10}, carry {now // 10}.")
            carry = now // 10
        if carry:
            lines.append(f"- No digit is left, so the last carry {carry} goes in front.")
        partial = digit * a * 10**place
        total += partial
        parts.append("\n".join([*lines, "", f"The row is {partial}; all rows so far add up to {total}."]))
    reasoning = notes(
        ("Query parsing", [f"{len(str(a))} digits × {len(str(b))} digits → {len(parts)} rows, carries shown."]),
        ("Estimate", [f"≈ {a / 1e25:.2f}e25 × {b / 1e25:.2f}e25 → {len(str(total))} digits ◐"]),
        ("Check mod 9", [f"{a % 9} × {b % 9} ≡ {a * b % 9} (mod 9), result ≡ {total % 9} ●"]),
    )
    return Sample("en", "math exercise", query, reasoning, "\n\n".join(parts) + f"\n\n**{a} × {b} = {total}**")


def fr_long_premiers(k: int) -> Sample:
    start, count = 1000 + 1000 * k, 500
    found: list[int] = []
    n = start
    while len(found) < count + 2:
        if is_prime(n):
            found.append(n)
        n += 1
    lines = []
    for before, p, after in zip(found, found[1:], found[2:], strict=False):
        side = "+ 1" if p % 6 == 1 else "− 1"  # a prime above 3 lies beside a multiple of 6
        lines.append(f"| {p} | {before} | {after} | {after - p} | 6 × {(p + 1) // 6} {side} |")
    twins = sum(after - p == 2 for p, after in pairwise(found[1:]))
    reasoning = notes(
        ("Analyse de la requête", [f"{count} nombres premiers au-delà de {start}, avec leurs voisins → tableau."]),
        ("Méthode", ["division par tous les entiers jusqu'à √n ●", f"premier voisin de gauche : {found[0]}"]),
        ("Observation", [f"écarts de 2 (jumeaux) : {twins} ●"]),
    )
    answer = (
        "| p | premier précédent | premier suivant | écart | forme |\n|---|---|---|---|---|\n"
        + "\n".join(lines)
        + f"\n\nDans ce tableau, {twins} nombres sont suivis d'un premier jumeau, à une distance de 2."
    )
    query = f"Dressez un tableau de {count} nombres premiers consécutifs après {found[0]}, avec leurs voisins."
    return Sample("fr", "math exercise", query, reasoning, answer)


def en_long_collatz(k: int) -> Sample:
    first = n = 27 + 60 * k
    flights: list[str] = []
    facts: list[str] = []
    while sum(map(len, flights)) < LONG_BYTES:
        path = [n]
        while path[-1] != 1:
            x = path[-1]
            path.append(3 * x + 1 if x % 2 else x // 2)
        moves = " ".join(
            f"{x} is odd, so it goes to 3 × {x} + 1 = {y}." if x % 2 else f"{x} is even; half of it is {y}."
            for x, y in pairwise(path)
        )
        flights.append(f"## The flight of {n}\n\n{moves}\n\nIt took {len(path) - 1} steps; the peak was {max(path)}.")
        facts.append(f"- {n}: {len(path) - 1} steps, peak {max(path)} ●")
        n += 1
    query = f"Tell the Collatz flights of {first} to {n - 1}, step by step, leaving nothing out."
    reasoning = notes(
        ("Query parsing", [f"Start values {first} … {n - 1}; odd → 3n + 1, even → n ÷ 2; stop at 1."]),
        ("Results", facts),
        ("Note", ["that every start reaches 1 is unproven in general ○; for these it is shown ●"]),
    )
    return Sample("en", "creative writing", query, reasoning, "\n\n".join(flights))


# --- Rows and file ---------------------------------------------------------------------------------------------------

LONG_FAMILIES: tuple[Family, ...] = (en_long_multiplication, fr_long_premiers, en_long_collatz)
FAMILIES: tuple[Family, ...] = (
    *(en_python, en_quadratic, en_unicode, en_short, en_shell, en_mcq, en_crlf, en_json, en_euclid, en_caesar),
    *TEXT_FAMILIES,
)


def _row(index: int) -> Row:
    cycle, residue = divmod(index, CYCLE)
    if residue == LONG_RESIDUE:
        family, k = LONG_FAMILIES[cycle % len(LONG_FAMILIES)], cycle
    else:
        family, k = FAMILIES[index % len(FAMILIES)], index // len(FAMILIES)
    sample = family(k)
    script = family.__name__
    page = f"https://example.org/{script}/{k}" if sample.seed_text else None  # a reserved name: nothing is there
    row: Row = {
        "synth_id": f"sample-{index:06d}",
        "language": sample.language,
        "exercise": sample.exercise,
        "model": "hand-written",
        "query": sample.query,
        "query_seed_url": page,
        "query_seed_text": sample.seed_text,
        "additional_seed_url": f"{page}/more" if page and k % 2 else None,
        "seed_license": "CC0-1.0",
        "constraints": sample.constraints,
        "script": script,
        "synthetic_reasoning": sample.reasoning,
        "synthetic_answer": sample.answer,
    }
    if residue in INCOMPLETE:
        column, value = INCOMPLETE[residue]
        row[column] = value
    row["words"] = str(len((row["synthetic_answer"] or "").split()))
    return row


def sample_rows(rows: int) -> Iterator[Row]:
    """The first ``rows`` raw rows, in order; each has every column of ``COLUMNS``."""
    if rows < 0:
        raise ValueError(f"rows must not be negative, got {rows}")
    return map(_row, range(rows))


def write_sample(out: Path, rows: int = 240) -> Path:
    """Write the sample to ``out / FILE_NAME``, whole or not at all, and return that path."""
    out.mkdir(parents=True, exist_ok=True)
    target = out / FILE_NAME
    temporary = out / f".{FILE_NAME}.{os.getpid()}.tmp"
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    source = sample_rows(rows)
    try:
        with temporary.open("wb") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                while batch := list(islice(source, ROW_GROUP)):
                    writer.write_table(pa.Table.from_pylist(batch, schema=schema), row_group_size=ROW_GROUP)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target
