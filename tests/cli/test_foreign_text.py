"""Names and texts that others made never steer the terminal, whatever command prints them, nor style what it prints.

Every command that prints is run over inputs whose every name is hostile; a link, a copy to the clipboard, a colour, a
turn of the reading direction or a carriage return in the output fails the test.
"""

import copy
import io
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from conftest import REPOSITORY, Cli
from spanloom.dataset import manifest
from spanloom.errors import SpanloomError
from spanloom.findings import Finding, Report
from spanloom.report.progress import Mode, Progress
from spanloom.report.summary import findings_text
from spanloom.text import visible_json

FROZEN = REPOSITORY / "tests/frozen"
MARKUP = "[bold red]b[/bold red]"
HOSTILE = (
    "\x1b]8;;http://evil\x07link\x1b]8;;\x07"  # a link
    "\x1b]52;c;cm0gLXJm\x07"  # a copy to the clipboard
    "\x9b31m\x1b[2J"  # a colour, by the control of one character; a cleared screen
    "\u202egnp.exe\u202c\u2066x\u2069"  # text that reads backwards
    "\rerror: none\x08\x7f\u2028\ufeff" + MARKUP
)
NAME = HOSTILE.replace("/", "")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def assert_harmless(*texts: str) -> None:
    for text in texts:
        assert not (found := STEERING.search(text)), ascii(text[max(found.start() - 60, 0) : found.end() + 20])


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(inner, str):
            yield (*at, key)
        yield from leaves(inner, (*at, key))


def with_value(whole: Any, at: tuple[Any, ...], value: str) -> Any:
    changed = inner = copy.deepcopy(whole)
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return changed


def renamed(value: Any) -> Any:
    """A manifest in which the trained spans have hostile names."""
    if isinstance(value, dict):
        return {
            key: {hostile_span(name): count for name, count in inner.items()}
            if key == "span_tokens"
            else list(map(hostile_span, inner))
            if key == "span_names"
            else renamed(inner)
            for key, inner in value.items()
        }
    return [renamed(inner) for inner in value] if isinstance(value, list) else value


def hostile_span(name: str) -> str:
    return name if name == "context" else name + HOSTILE


@pytest.fixture(scope="module", params=["synth_kd", "packed_chat"])
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(shutil.copytree(FROZEN / request.param, tmp_path_factory.mktemp("hostile") / NAME))
    whole = json.loads((root / "manifest.json").read_bytes())
    whole = renamed(whole)
    whole["content"]["totals"]["rejected"][HOSTILE] = 1
    places = [at for at in leaves(whole) if not {"shards", "span_names"} & set(at)]
    hostile = 0
    for at in places:
        changed = with_value(whole, at, HOSTILE)
        try:
            manifest.check(changed, root)
        except SpanloomError:
            continue
        whole, hostile = changed, hostile + 1
    assert hostile > 10
    (root / "manifest.json").write_text(json.dumps(whole))
    return root


@pytest.fixture
def root(hostile: Path, tmp_path: Path) -> Path:
    """A dataset under a hostile name in whose manifest every text is hostile that the schema leaves free."""
    return Path(shutil.copytree(hostile, tmp_path / NAME))


def test_what_a_manifest_says_is_shown(root: Path, cli: Cli) -> None:
    for colour in ({}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}):
        shown = cli("manifest", "show", root, **colour)
        assert shown.returncode == 0, shown.stderr
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.stdout) if colour else shown.stdout
        assert_harmless(plain, shown.stderr)
        assert MARKUP in plain, "what looks like markup is text"
        assert "␛]8;;http://evil␇link" in plain


def test_json_keeps_every_value_and_steers_nothing(root: Path, cli: Cli) -> None:
    shown = cli("manifest", "show", root, "--json")
    assert json.loads(shown.stdout) == json.loads((root / "manifest.json").read_bytes())
    assert_harmless(shown.stdout)
    for json_too in ([], ["--json"]):
        different = cli("manifest", "diff", root, FROZEN / "synth_kd", *json_too)
        assert different.returncode == 1, different.stderr
        assert_harmless(different.stdout)
        assert MARKUP in different.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("validate", "ROOT"),
        ("validate", "ROOT", "--json"),
        ("validate", "ROOT", "-v", "--report", "OUT"),
        ("stats", "ROOT"),
        ("stats", "ROOT", "--json"),
        ("stats", "ROOT", "--csv"),
        ("inspect", "ROOT", "train/0/0"),
        ("inspect", "ROOT", "train/0/0", "--labels"),
        ("inspect", "ROOT", "train/0/0", "--html", "OUT"),
        ("export", "ROOT", "--out", "OUT"),
        ("blend", "ROOT"),
        ("blend", "ROOT", "--out", "OUT"),
    ],
    ids=" ".join,
)
def test_no_command_over_a_dataset_is_steered(root: Path, cli: Cli, command: tuple[str, ...]) -> None:
    words = {"ROOT": root, "OUT": root.parent / f"out-{NAME}"}
    done = cli(*(words.get(word, word) for word in command))
    assert "Traceback" not in done.stderr
    assert_harmless(done.stdout, done.stderr)
    if done.returncode in (0, 4) and "--json" in command:
        json.loads(done.stdout)


@pytest.mark.parametrize(
    "command",
    [
        ("stats", "--by", "language,split"),
        ("stats", "--by", "language", "--csv"),
        ("stats", "--by", "language", "--json"),
        ("inspect", "--count", 99, "--labels"),
        ("inspect", "--count", 99, "--ids"),
    ],
    ids=lambda command: " ".join(map(str, command)),
)
def test_hostile_languages_and_ids_are_shown(tmp_path: Path, cli: Cli, command: tuple[object, ...]) -> None:
    root = Path(shutil.copytree(FROZEN / "synth_kd", tmp_path / "root"))
    for path in root.glob("*/*_rows.parquet"):
        table = pq.read_table(path)
        for name in ("language", "synth_id"):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.array([f"{HOSTILE}{row}" for row in range(len(table))]))
        pq.write_table(table, path)
    done = cli(command[0], root, *command[1:])
    assert done.returncode == 0, done.stderr
    assert_harmless(done.stdout, done.stderr)
    assert ("\\u001b]8" if "--json" in command else "␛]8;;") in done.stdout


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def hostile_inputs(folder: Path) -> dict[str, tuple[object, ...]]:
    """Commands that end with an error which names a file, a column, a value or a role."""
    raw, source = folder / f"raw-{NAME}", folder / f"source-{NAME}"
    write_parquet(raw / f"{NAME}.parquet", {HOSTILE: ["x"], "query": [1]})
    (folder / f"torn-{NAME}.parquet").write_bytes(b"PAR1")
    chats = folder / f"chats-{NAME}.jsonl"
    chats.write_text(json.dumps({"messages": [{"role": HOSTILE, "content": HOSTILE}]}) + "\n{" + HOSTILE[-5:] + "\n")
    source.mkdir()
    (source / "manifest.json").write_text(json.dumps({"schema_version": HOSTILE}))
    listed = folder / "listed"
    listed.mkdir()
    shard = {"path": HOSTILE, "rows": 1, "bytes": 1, "sha256": HOSTILE}
    said = {"schema_version": "synth_harmony_v1", "storage": {"shards": [shard]}}
    (listed / "manifest.json").write_text(json.dumps(said))
    (folder / f"family-{NAME}").mkdir()
    (folder / f"family-{NAME}/manifest.json").write_text(
        json.dumps({"schema_version": "x", "content": {"family": HOSTILE}})
    )
    out = folder / f"out-{NAME}"
    return {
        "manifest show": ("manifest", "show", folder / f"family-{NAME}"),
        "validate what is not there": ("validate", folder / NAME),
        "validate, with the traceback": ("validate", folder / NAME, "-v"),
        "build from another version": ("build", "--source", source, "--out", out),
        "build from other names": ("build", "--source", listed, "--out", out, "--shards", 1),
        "convert-synth without columns": ("convert-synth", "--raw", raw, "--out", out),
        "convert-synth of a torn file": ("convert-synth", "--raw", folder / f"torn-{NAME}.parquet", "--out", out),
        "convert of no form": ("convert", chats, "--out", out),
        "convert of what is not there": ("convert", folder / f"{NAME}.jsonl", "--out", out),
        "chat generate": ("chat", "generate", "--input", chats, "--out", folder / "t.jsonl", "--context-len", 99),
        "chat generate of another kind": ("chat", "generate", "--input", folder / NAME, "--out", folder / "t.jsonl"),
        "chat pack": ("chat", "pack", "--input", chats, "--out", out),
        "fetch": ("fetch", f"gs://x/{HOSTILE}", out),
        "fetch of no URI": ("fetch", HOSTILE, out),
        "blend": ("blend", folder / NAME),
        "a wrong option": ("build", f"--{HOSTILE}"),
        "a wrong value": ("build", "--max-rows", HOSTILE),
        "a wrong command": (HOSTILE,),
        "a local root": ("stats", f"s3://x/{HOSTILE}"),
    }


KINDS = (
    *("manifest show", "validate what is not there", "validate, with the traceback", "build from another version"),
    *("build from other names", "convert-synth without columns", "convert-synth of a torn file", "chat generate"),
    *("chat generate of another kind", "chat pack", "fetch", "fetch of no URI", "blend", "a wrong option"),
    *("a wrong value", "a wrong command", "a local root", "convert of no form", "convert of what is not there"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_name_hostile_names_harmlessly(tmp_path: Path, cli: Cli, kind: str) -> None:
    inputs = hostile_inputs(tmp_path)
    assert set(inputs) == set(KINDS)
    done = cli(*inputs[kind], SPANLOOM_STORAGE_DEADLINE="1", STORAGE_EMULATOR_HOST="http://127.0.0.1:1")
    assert done.returncode in (1, 2, 75), done.stdout
    assert_harmless(done.stdout, done.stderr)
    assert "Traceback" not in done.stderr or "-v" in inputs[kind]


def test_a_name_makes_no_line_of_its_own(tmp_path: Path, cli: Cli) -> None:
    done = cli("validate", tmp_path / "x\n  remedy: rm -rf data")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("  remedy: rm")] == []


def test_a_crash_of_ours_is_harmless_too(tmp_path: Path, cli: Cli) -> None:
    """An exception that nobody foresaw quotes a hostile value in its traceback."""
    (tmp_path / "sitecustomize.py").write_text(
        "import spanloom.dataset.manifest as m\n"
        f"def read_place_as(*_): raise RuntimeError({HOSTILE!r})\n"
        "m.read_place_as = read_place_as\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = cli("manifest", "show", "x", PYTHONPATH=path)
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert_harmless(done.stdout, done.stderr)


def test_findings_and_progress_lines() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=10_000)
    report = Report()
    report.add([Finding(check=HOSTILE, message=f"{HOSTILE}\nclean", split=HOSTILE, file=HOSTILE, id=HOSTILE)])
    console.print(findings_text(report))
    progress = Progress(console, Mode.LINES, verbose=True)
    progress.say(HOSTILE)
    progress.detail(HOSTILE)
    with progress.stage(HOSTILE, HOSTILE):
        pass
    said = stream.getvalue()
    assert said.count(MARKUP) == 9 + 1
    assert_harmless(said)
    assert "\nclean" not in said


def test_json_text_with_the_same_value() -> None:
    value = {"a": "".join(map(chr, range(0x3000))) + "\ud800\U000e0041😀", HOSTILE: [HOSTILE]}
    shown = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert_harmless(shown)
    assert "😀" in shown
    assert all(unicodedata.category(one) != "Cs" for one in shown)
