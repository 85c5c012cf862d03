"""`spanloom traces …`: each command does its thing, says it, and exits as it should."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spanloom.cli import main
from support.traces import CASES

KEY = "d-v1"
TOKENIZER = CASES / "fixtures/masks/tokenizer_gemmalike.json"


class Done:
    """A command that has ended: its exit code, and what it said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """`run("list", …)` → what `spanloom traces list …` did, below a root of the test."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: object, group: str = "traces") -> Done:
        monkeypatch.setattr("sys.argv", ["spanloom", group, *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    return command


def trace(prompt: str, **meta: Any) -> dict[str, Any]:
    steps = [{"i": 0, "type": "t", "content": f"think of {prompt}"}]
    return {"trace_version": "1.0", "prompt": prompt, "final_answer": "a", "steps": steps, "meta": meta}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    values = [trace(f"q{number}", level=number % 2) for number in range(10)]
    path.write_text("".join(json.dumps(value) + "\n" for value in values) + "{oops\n")
    return path


@pytest.fixture
def filled(run: Any, lines: Path) -> list[str]:
    done = run("ingest", lines, "--source-name", "s", "--created-at", "2026-01-01T00:00:00Z", "--json")
    assert done.code == 0, done.err
    ids: list[str] = done.json()["trace_ids"]
    return ids


def test_ingest_says_what_it_did(run: Any, lines: Path) -> None:
    first = run("ingest", lines, "--source-name", "s")
    assert first.code == 0
    assert first.out == "10 traces stored, 0 were there already, 1 lines skipped\n"
    assert "line 11: not JSON" in first.err
    assert Path("data/traces/traces.sqlite").is_file()
    again = run("ingest", lines, lines, "--source-name", "s", "--json").json()
    assert (again["ingested_count"], again["skipped_existing"], again["skipped_count"]) == (0, 20, 2)
    assert run("--root", "other", "ingest", lines, "--source-name", "s").code == 0
    assert run("list", "--root", "other", "--json").json()["total"] == 10


def test_ingest_stops(run: Any, lines: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("1\n")
    for arguments in (["none.jsonl"], [lines, "--strict"], ["bad.jsonl"], [tmp_path]):
        done = run("ingest", *arguments, "--source-name", "s")
        assert done.code == 1, done.err
    assert run("ingest", lines).code == 2
    assert run("ingest", lines, "--source-name", "s", "--ids", "x").code == 2
    assert run("ingest", lines, "--source-name", "s", "--created-at", "yesterday").code == 2


def test_list_show_delete(run: Any, filled: list[str]) -> None:
    page = run("list", "--limit", 3, "--json").json()
    assert [one["id"] for one in page["data"]] == filled[:-4:-1]
    assert page["total"] == 10
    shown = run("show", filled[2])
    assert shown.code == 0
    assert "prompt  q2" in shown.out
    assert "     1  think of q2  [t 0]" in shown.out
    assert run("show", filled[2], "--json").json()["payload"]["prompt"] == "q2"
    gone = run("delete", filled[0], filled[0])
    assert (gone.code, gone.out) == (0, "1 deleted\n")
    again = run("delete", filled[0], filled[1], "--json")
    assert (again.code, again.json()) == (1, {"deleted": 1, "not_found": [filled[0]]})
    assert run("show", filled[0]).code == 1
    assert run("delete", "x").code == 2


def test_build(run: Any, filled: list[str]) -> None:
    done = run("build", "--name", "d", "--version", "v1", "--filter", "level=1", "--limit", 3, "--json")
    assert done.code == 0, done.err
    assert done.json()["dataset_key"] == KEY
    assert done.json()["trace_count"] == 3
    manifest = run("show", KEY).json()
    assert manifest["trace_ids"] == [filled[9], filled[7], filled[5]]
    assert [one["dataset_key"] for one in run("list", "--datasets", "--json").json()] == [KEY]
    made = ("build", "--name", "d", "--version", "v1")
    assert run(*made, "--filter", 'source="nobody"').code == 1
    assert run(*made, "--strategy", "random").code == 2
    assert run(*made, "--filter", "source=s").code == 2
    assert run(*made, "--limit", 0).code == 2
    assert run("build", "--name", "a\n", "--version", "v1").code == 2
    assert run("build", "--name", "n" * 129, "--version", "v1").code == 2


def test_what_is_wrong_with_a_build_is_told_before_the_store_is_opened(run: Any) -> None:
    made = ("build", "--name", "d", "--version", "v1")
    for wrong in (("--strategy", "random"), ("--filter", "source=s"), ("--version", "a:b"), ("--version", "v" * 65)):
        assert run(*made, *wrong).code == 2
    unseeded = run(*made, "--strategy", "random")
    assert "Random selection strategy requires a seed for reproducibility" in unseeded.err
    assert run(*made).code == 1  # there is no store


@pytest.fixture
def dataset(run: Any, filled: list[str]) -> str:
    assert run("build", "--name", "d", "--version", "v1", "--reproducible").code == 0
    return KEY


def test_export_and_validate(run: Any, dataset: str, filled: list[str], tmp_path: Path) -> None:
    manifest = tmp_path / "data/traces/datasets" / KEY / "manifest.json"
    for form in ("trace", "tunix_sft", "training_example"):
        out = tmp_path / f"{form}.jsonl"
        done = run("export", KEY, "--format", form, "--out", out, "--json")
        assert done.json() == {
            "dataset_key": KEY,
            "format": form,
            "file": str(out),
            "exported": 10,
            "skipped_deleted": 0,
        }
        assert run("export", KEY, "--format", form).out == out.read_text()
        checked = run("validate", out, "--format", form, "--manifest", manifest, "--report", "r.json")
        assert checked.code == 0, checked.out
        assert json.loads(Path("r.json").read_bytes())["n_findings"] == 0
    wrong = run("validate", tmp_path / "trace.jsonl", "--format", "tunix_sft")
    assert wrong.code == 4
    assert "V10" in wrong.out
    run("delete", filled[0])
    left = run("export", KEY, "--out", "left.jsonl", "--json").json()
    assert (left["exported"], left["skipped_deleted"]) == (9, 1)


def test_validate_asks_a_manifest_for_its_ids_alone(run: Any, dataset: str, filled: list[str], tmp_path: Path) -> None:
    run("export", KEY, "--out", "x.jsonl")
    for ids, code in ((filled[::-1], 0), ([*filled[::-1], KEY], 1), ([], 4)):
        (tmp_path / "m.json").write_text(json.dumps({"build_id": "<varies>", "trace_ids": ids}))
        done = run("validate", "x.jsonl", "--format", "trace", "--manifest", "m.json")
        assert done.code == code, done.err
    (tmp_path / "m.json").write_text("{}")
    assert run("validate", "x.jsonl", "--format", "trace", "--manifest", "m.json").code == 1


def test_an_export_that_stops_leaves_no_file(run: Any, dataset: str, tmp_path: Path) -> None:
    assert run("export", "nope-v1", "--out", "x.jsonl").code == 1
    assert run("export", KEY, "--format", "csv", "--out", "x.jsonl").code == 2
    assert run("export", KEY, "--max-length", 5, "--out", "x.jsonl").code == 2
    assert run("export", KEY, "--system", "S", "--out", "x.jsonl").code == 2
    assert run("export", KEY, "--tokenizer", "none.json", "--out", "x.jsonl").code == 1
    assert run("export", KEY, "--format", "trace", "--tokenizer", TOKENIZER, "--out", "x.jsonl").code == 2
    assert not list(tmp_path.glob("*x.jsonl*"))
    bad = tmp_path / "data/traces/datasets" / KEY / "manifest.json"
    bad.write_text("{}")
    assert run("export", KEY).code == 1
    assert run("list", "--datasets").out == f"{KEY}  invalid manifest\n"


def test_control_strings(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps(trace("a<end_of_turn>b")) + "\n")
    run("ingest", path, "--source-name", "s")
    run("build", "--name", "d", "--version", "v1")
    refused = run("export", KEY, "--format", "tunix_sft", "--control-tokens", "reject", "--out", "x.jsonl")
    assert refused.code == 1
    assert not Path("x.jsonl").exists()
    escaped = run("export", KEY, "--format", "tunix_sft", "--control-tokens", "escape")
    assert json.loads(escaped.out)["prompts"].count("<end_of_turn>") == 2


def test_tokens_in_exports(run: Any, dataset: str, tmp_path: Path) -> None:
    done = run("export", KEY, "--format", "tunix_sft", "--tokenizer", TOKENIZER, "--out", "x.jsonl", "--json")
    assert done.code == 0, done.err
    assert done.json()["boundary_tokens"] == 10
    rows = [json.loads(line) for line in Path("x.jsonl").read_bytes().splitlines()]
    assert all(len(row["input_ids"]) == len(row["loss_mask"]) for row in rows)
    run("export", KEY, "--format", "tunix_sft", "--tokenizer", TOKENIZER, "--out", "x.parquet", "--offsets")
    table = pq.read_table("x.parquet")
    assert table["input_ids"].to_pylist() == [row["input_ids"] for row in rows]
    assert table["loss_mask"].to_pylist() == [row["loss_mask"] for row in rows]
    assert [json.loads(one) for one in table["metadata"].to_pylist()] == [row["metadata"] for row in rows]
    assert len(table["offsets"][0]) == len(rows[0]["input_ids"])
    cut = run(
        *("export", KEY, "--format", "tunix_sft", "--tokenizer", TOKENIZER, "--out", "y.jsonl", "--json"),
        *("--max-length", 20),
    ).json()
    assert cut["cut"] == 10
    assert cut["exported"] + cut["dropped_without_labels"] == 10
    short = [json.loads(line) for line in Path("y.jsonl").read_bytes().splitlines()]
    assert all(len(row["input_ids"]) == 20 and any(row["loss_mask"]) for row in short)


def test_tokenize(run: Any, dataset: str) -> None:
    done = run("tokenize", KEY, "--tokenizer", TOKENIZER, "--out", "tokens", "--allow-unknown-sha", "--json", "-q")
    assert done.code == 0, done.err
    assert done.json()["clean"] if "clean" in done.json() else done.json()
    assert Path("tokens/manifest.json").is_file()
    assert run("tokens", group="validate").code == 0
    assert run("tokenize", KEY, "--tokenizer", TOKENIZER, "--out", "t2", "--eod", "<none>").code == 2


def test_the_steps_make_the_files_that_the_commands_make(run: Any, lines: Path, tmp_path: Path) -> None:
    given = ("--created-at", "2026-01-01T00:00:00Z", "--source-name", "s")
    run("ingest", lines, *given)
    run("build", "--name", "d", "--version", "v1", "--reproducible")
    assert run("ingest-traces", "--source", lines, "--store", "s/traces.sqlite", *given, group="step").code == 0
    built = run(
        *("build-traces", "--store", "s/traces.sqlite", "--manifest", "s/manifest.json", "--name", "d"),
        *("--version", "v1"),
        group="step",
    )
    assert built.code == 0, built.err
    manifest = tmp_path / "data/traces/datasets" / KEY / "manifest.json"
    assert Path("s/manifest.json").read_bytes() == manifest.read_bytes()
    exports = []
    for form in ("trace", "tunix_sft", "training_example"):
        run("export", KEY, "--format", form, "--out", f"{form}.jsonl")
        made = run(
            *("export-traces", "--store", "s/traces.sqlite", "--manifest", "s/manifest.json", "--format", form),
            *("--out", f"s/{form}.jsonl"),
            group="step",
        )
        assert made.code == 0, made.err
        assert Path(f"s/{form}.jsonl").read_bytes() == Path(f"{form}.jsonl").read_bytes()
        exports += [f"--{form.replace('_', '-')}", f"s/{form}.jsonl"]
    checked = run("validate-traces", *exports, "--manifest", "s/manifest.json", "--report", "s/r.json", group="step")
    assert checked.code == 0, checked.out
    assert run("validate-traces", "--trace", "s/tunix_sft.jsonl", group="step").code == 4
    stored = Path("s/traces.sqlite").read_bytes()
    step = ("ingest-traces", "--source", lines, "--store", "s/traces.sqlite", "--source-name", "s")
    again = run(*step, "--created-at", "2026-01-01T00:00:00Z", group="step")
    assert again.code == 0, again.err  # the store is the same, as after a kill at the end
    for others in ((), ("--created-at", "2026-01-02T00:00:00Z")):
        assert run(*step, *others, group="step").code == 1  # a store is made anew, never added to
    assert Path("s/traces.sqlite").read_bytes() == stored


def test_a_list_shows_how_prompts_begin_and_where_they_are_from(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(trace("\n How many?\nsecond line")) + "\n" + json.dumps(trace("x" * 500)) + "\n")
    run("ingest", path, "--source-name", "books\x1b[31m")
    long, short = run("list").out.splitlines()
    assert short.endswith("  books␛[31m  How many?")
    assert long.endswith("  " + "x" * 80 + "…")
    said = run("list", "--json").json()["data"]
    assert [one["prompt"] for one in said] == ["x" * 80 + "…", "How many?"]


def test_messages_name_the_argument(run: Any, filled: list[str], tmp_path: Path) -> None:
    wrong = run("delete", filled[0], "zzz")
    assert wrong.code == 2
    assert "Invalid value for ID: 'zzz'" in wrong.err
    assert run("list", "--json").json()["total"] == 10
    for option, more in (("--name", ("--name", "")), ("--filter", ("--name", "d", "--filter", "a=NaN"))):
        done = run("build", "--version", "v1", *more)
        assert done.code == 2
        assert option in done.err
        assert "dataset_name" not in done.err
    (tmp_path / "bad.jsonl").write_text("1\n")
    nothing = run("ingest", "bad.jsonl", "--source-name", "s").err
    assert "where: line 1: not a JSON object" in nothing
    assert "remedy: give JSON Lines" in nothing
    assert "remedy: give the path" in run("ingest", "none.jsonl", "--source-name", "s").err


def test_counts_are_of_written_rows_alone(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps(trace("a<end_of_turn>b" * 30)) + "\n" + json.dumps(trace("q")) + "\n")
    run("ingest", path, "--source-name", "s")
    run("build", "--name", "d", "--version", "v1")
    given = ("export", KEY, "--format", "tunix_sft", "--tokenizer", TOKENIZER, "--out", "x.jsonl", "--json")
    both, one = run(*given).json(), run(*given, "--max-length", 20, "--overwrite").json()
    assert (both["exported"], both["boundary_tokens"], both["control_strings_in_content"]) == (2, 2, 60)
    assert (one["exported"], one["dropped_without_labels"], one["boundary_tokens"]) == (1, 1, 1)
    assert one["control_strings_in_content"] == 0
