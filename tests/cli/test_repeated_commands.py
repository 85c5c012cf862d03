"""Commands that are pasted twice: the same result is kept, another needs --overwrite, which gives that of a new run."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Cli

PGN = '[Result "1-0"]\n\n1. e4 { [%eval 0.3] } e5 2. Nf3 Nc6 1-0\n\n'
MODEL = "--template in/chat_template.jinja --tokenizer in"
B4 = "toolcalls convert --from b4 --input in/b4.jsonl --completions in/completions.jsonl --system Tools."
ULTRACHAT = "toolcalls convert --from ultrachat --input in/ultrachat.jsonl --system Tools."


@dataclass(frozen=True)
class Case:
    """`prepare`: commands before; `run`: the command, which makes `made`; `other`: options that change its result."""

    prepare: tuple[str, ...]
    run: str
    other: str


TRACES = (
    "traces sample --out traces.jsonl --traces 20 --tokenizer tokenizer.json",
    "traces ingest traces.jsonl --source-name s --root traces",
    "traces build --name d --version 1 --root traces",
)
TOOLCALLS = (
    "toolcalls demo --out in",
    f"{B4} --out samples",
    f"{ULTRACHAT} --out samples",
    "toolcalls merge --harmful-dir samples/harmful --retain-dir samples/retain --oversample --output train.jsonl",
)
CASES = {
    "traces export": Case(TRACES, "traces export d-1 --format tunix_sft --root traces --out made", "--system Hello."),
    "chess convert": Case((), "chess convert --pgn games.pgn --out made", "--best-move none"),
    "chat generate": Case(
        ("chat sample --out chats.jsonl --conversations 20",),
        "chat generate --input chats.jsonl --on-error skip --out made.txt",
        "--context-len 40",
    ),
    "toolcalls convert": Case(TOOLCALLS[:1], f"{ULTRACHAT} --out made", "--system Other."),
    "toolcalls mask": Case(
        TOOLCALLS, f"toolcalls mask --data train.jsonl {MODEL} --output made.jsonl", "--max-length 40"
    ),
    "toolcalls merge": Case(
        TOOLCALLS[:3],
        "toolcalls merge --harmful-dir samples/harmful --retain-dir samples/retain --oversample --output made.jsonl "
        "--eval-output made-eval.jsonl --eval-fraction 0.2 --stats made.json",
        "--seed 5",
    ),
    "toolcalls batches": Case(TOOLCALLS, "toolcalls batches --data train.jsonl --output made.jsonl", "--seed 5"),
    "toolcalls export": Case(
        TOOLCALLS, f"toolcalls export --data train.jsonl {MODEL} --output made.jsonl", "--batched"
    ),
}


def files(folder: Path) -> dict[str, bytes]:
    """What the command made, but for records of a folder, which name the input by its path."""
    found = [path for made in folder.glob("made*") for path in (made, *made.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("name", CASES)
def test_the_same_is_kept_and_another_needs_overwrite(cli: Cli, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    (tmp_path / "games.pgn").write_text(PGN * 3)
    for command in case.prepare:
        done = cli(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(*more: str) -> tuple[int, str, dict[str, bytes]]:
        words = [word if word != "Hello." else "Say hello." for word in (*case.run.split(), *more)]
        done = cli(*words, cwd=tmp_path)
        return done.returncode, done.stderr, files(tmp_path)

    code, said, first = run()
    assert code == 0, said
    assert "already" not in said
    assert first
    inodes = {each: (tmp_path / each).stat().st_ino for each in first}
    code, said, again = run()
    assert (code, again) == (0, first)
    assert "is there already, of the same input and options; nothing was written" in said
    assert {each: (tmp_path / each).stat().st_ino for each in first} == inodes
    code, said, kept = run(*case.other.split())
    assert (code, kept) == (1, first)
    assert "another result of this command" in said
    assert "--overwrite" in said
    code, said, replaced = run(*case.other.split(), "--overwrite")
    assert code == 0, said
    for made in tmp_path.glob("made*"):
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    _, _, fresh = run(*case.other.split())
    assert replaced == fresh != first


def test_a_dataset_of_traces_is_kept_if_the_selection_is_the_same(cli: Cli, tmp_path: Path) -> None:
    """Its id and times are new in each build, so they do not count."""
    for command in TRACES:
        done = cli(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    manifest = tmp_path / "traces/datasets/d-1/manifest.json"
    first = manifest.read_bytes()
    done = cli(*TRACES[-1].split(), cwd=tmp_path)
    assert (done.returncode, manifest.read_bytes()) == (0, first)
    assert "is there already; nothing was written" in done.stderr
    done = cli(*TRACES[-1].split(), "--limit", "3", cwd=tmp_path)
    assert (done.returncode, manifest.read_bytes()) == (1, first)
    assert "--overwrite" in done.stderr
    done = cli(*TRACES[-1].split(), "--limit", "3", "--overwrite", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert manifest.read_bytes() != first
    for _ in range(2):
        done = cli(*TRACES[-1].split(), "--reproducible", "--overwrite", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = cli(*TRACES[-1].split(), "--reproducible", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
