"""`spanloom traces ingest` of data that others have: what it says of a form, `--preview`, `--map`, folders, stdin."""

import json
import os
from pathlib import Path

from conftest import Cli
from support import warm

QUESTION = {"question": "1 + 1?", "answer": "One and one.\nThat is two.\n#### 2"}
OTHER = {"q": {"text": "2 + 2?"}, "thought": ["Add.", "Four."], "solution": "4", "reward": 0.5}


def written(folder: Path, name: str, *records: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder / name


def test_a_form_is_named_and_its_first_trace_shown(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path, "g.jsonl", QUESTION)
    store = ("--root", tmp_path / "root")
    shown = cli("traces", "ingest", path, "--source-name", "s", "--preview", *store)
    assert shown.returncode == 0, shown.stderr
    assert "GSM8K" in shown.stderr
    assert "prompt ← question" in shown.stderr
    assert [line.split("  ", 1)[0].strip() for line in shown.stdout.splitlines()[1:]] == [
        *("prompt", "", "", "answer", "meta")
    ]
    assert not (tmp_path / "root").exists(), "a preview makes no store"
    stored = cli("traces", "ingest", path, "--source-name", "s", *store)
    assert stored.stdout == "1 traces stored, 0 were there already, 0 lines skipped\n"


def test_keys_of_one_s_own_are_mapped(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path, "o.jsonl", OTHER, {**OTHER, "solution": 4}, {"q": 1})
    store = ("--root", tmp_path / "root")
    pairs = "prompt=q.text,answer=solution,steps=thought"
    done = cli("traces", "ingest", path, "--source-name", "s", "--map", pairs, "--json", *store)
    result = json.loads(done.stdout)
    assert (result["ingested_count"], result["skipped_count"]) == (1, 2)
    assert result["left_out"] == {"a key is no text": 1, "a key is missing": 1}
    trace = json.loads(cli("traces", "show", result["trace_ids"][0], "--json", *store).stdout)["payload"]
    assert trace["prompt"] == "2 + 2?"
    assert [step["content"] for step in trace["steps"]] == OTHER["thought"]
    assert trace["meta"]["reward"] == 0.5
    for wrong in ("prompt=q", "prompt", "query=q,answer=a,steps=s", "prompt=a,prompt=b,answer=c,steps=d"):
        assert cli("traces", "ingest", path, "--source-name", "s", "--map", wrong, *store).returncode == 1


def test_a_folder_and_stdin(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    written(folder, "a.jsonl", QUESTION)
    written(folder, "b.jsonl", {**QUESTION, "question": "again?"})
    store = ("--root", str(tmp_path / "root"))
    assert cli("traces", "ingest", folder, "--source-name", "s", *store).stdout.startswith("2 traces stored")
    line = written(tmp_path, "line.jsonl", {**QUESTION, "question": "from stdin?"})
    words = ("traces", "ingest", "-", "--source-name", "s", "--json", *store)
    with line.open() as stdin:
        result = json.loads(warm.run("spanloom", *words, env=os.environ, stdin=stdin.fileno()).stdout)
    assert result["files"] == [{"file": "stdin", "ingested_count": 1}]
    trace = json.loads(cli("traces", "show", result["trace_ids"][0], "--json", *store).stdout)["payload"]
    assert trace["meta"]["ingest_source_file"] == "stdin"


def test_a_long_step_is_taken_once_the_limit_allows_it(cli: Cli, tmp_path: Path) -> None:
    steps = [{"i": 0, "type": "t", "content": "c" * 30_000}]
    path = written(
        tmp_path, "l.jsonl", {"trace_version": "1.0", "prompt": "q", "final_answer": "a", "steps": steps, "meta": {}}
    )
    ingest = ("traces", "ingest", path, "--root", tmp_path / "root", "--source-name")
    refused = cli(*ingest, "s")
    assert refused.returncode == 1
    assert "--max-step-characters" in refused.stderr
    assert cli(*ingest, "s", "--max-step-characters", 40_000).returncode == 0
    assert cli(*ingest, "t").stdout.startswith("1 traces stored"), "the store remembers the limit"
    assert cli(*ingest, "u", "--max-step-characters", 1_000_001).returncode == 2
