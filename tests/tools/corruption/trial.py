"""One edit of a finished dataset or of its source, and whether validation finds it.

In: an `Edit`. Out: an `Outcome`. Every edit begins with fresh copies of a clean dataset and its source, and ends with
`spanloom validate ROOT --source SOURCE --deep 64 --json`.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import chat_datasets, sources
from tools.chaos.driver import Driver, Run

ROOT, SOURCE = "dataset", "source"
VALIDATE = ("validate", ROOT, "--source", SOURCE, "--deep", "64", "--json", "--quiet")


@dataclass(frozen=True, kw_only=True)
class Edit:
    """`apply` changes the dataset and the source in a folder. `kind` is the group it is told in.

    `consistent`: hashes, sizes and totals were made to fit; `why` says of an edit that cannot be found why it cannot.
    """

    kind: str
    name: str
    apply: Callable[[Path], None]
    consistent: bool = False
    why: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What validation said: `found` by findings or a refusal, `by` the checks or the error; `crash` a traceback."""

    edit: str
    kind: str
    name: str
    consistent: bool
    found: bool
    by: str
    crash: str | None = None
    why: str | None = None


class Bench:
    """A folder with a clean dataset, from which each edit gets a copy."""

    def __init__(self, driver: Driver, clean: Path, command: tuple[str, ...] = VALIDATE) -> None:
        self.driver, self._clean, self._command = driver, clean, command

    def reset(self) -> Path:
        """The folder with a fresh copy of the dataset and its source."""
        folder = self.driver.folder
        for name in (ROOT, SOURCE):
            shutil.rmtree(folder / name, ignore_errors=True)
            if (folder / name).is_symlink() or (folder / name).exists():
                (folder / name).unlink()
            shutil.copytree(self._clean / name, folder / name, symlinks=True)
        return folder

    def validate(self, seconds: float = 30) -> Run:
        return self.driver.run(self._command, watch=False, seconds=seconds)

    def try_edit(self, edit: Edit) -> Outcome:
        """Applies one edit to fresh copies and validates them."""
        edit.apply(self.reset())
        found, by, crash = judged(self.validate())
        return Outcome(
            edit=str(edit),
            kind=edit.kind,
            name=edit.name,
            consistent=edit.consistent,
            found=found,
            by=by,
            crash=crash,
            why=edit.why,
        )


def judged(run: Run) -> tuple[bool, str, str | None]:
    """Whether a run of `validate` found something, what did, and the last line of a traceback if there is one."""
    crash = None
    if not run.in_time:
        crash = "does not end"
    elif "Traceback (most recent call last)" in run.output:
        last = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception|Interrupt)\b.*", run.output, re.M)
        crash = last[-1] if last else "a traceback"
    elif run.code < 0:
        crash = f"ended by signal {-run.code}"
    if crash:
        return False, "", crash[:200]
    if run.code == 0:
        return False, "", None
    if run.code == 4:
        return True, ", ".join(sorted(_json(run.output)["validation"]["found"])), None
    error = re.search(r"^error: (.*)", run.output, re.M)
    return True, f"refused: {error[1][:120] if error else run.output[:120]}", None


def _json(output: str) -> dict[str, Any]:
    start = output.index("{\n")
    return dict(json.JSONDecoder().raw_decode(output[start:])[0])


@contextmanager
def clean_dataset(folder: Path) -> Iterator[Bench]:
    """A bench below `folder`: two shards, both splits, rejects, every kind of document, one longer than 2,048."""
    with Driver(folder / "work", log=folder / "log.txt") as driver:
        clean = folder / "clean"
        write_source(clean / SOURCE)
        shutil.copytree(clean / SOURCE, driver.folder / SOURCE)
        arguments = f"build --source {SOURCE} --out {ROOT} --shards 2 --workers 1 --valid-fraction 0.5 --max-rejects 2"
        built = driver.run([*arguments.split(), "--keep-work", "--quiet", "--json"], watch=False)
        assert built.code == 0, built.output
        shutil.move(driver.folder / ROOT / ".work", clean / "work")
        shutil.copytree(driver.folder / ROOT, clean / ROOT)
        yield Bench(driver, clean)


@contextmanager
def clean_packed_chat(folder: Path) -> Iterator[Bench]:
    """A bench of packed chat: two shards, injected and padded blocks."""
    with Driver(folder / "work", log=folder / "log.txt") as driver:
        source = driver.folder / SOURCE
        source.mkdir(parents=True)
        chat_datasets.write_transcripts(source / "transcripts.jsonl", chat_datasets.transcripts(24))
        chat_datasets.write_tokenizer(source / "tokenizer.json")
        transcripts, tokenizer = f"{SOURCE}/transcripts.jsonl", f"{SOURCE}/tokenizer.json"
        rules = "--block-size 64 --post-training --strict-user --pad-tail --shards 2 --workers 1 --quiet --json"
        arguments = f"chat pack --input {transcripts} --tokenizer {tokenizer} --out {ROOT} {rules}"
        built = driver.run(arguments.split(), watch=False)
        assert built.code == 0, built.output
        shutil.copytree(source, folder / "clean" / SOURCE)
        shutil.copytree(driver.folder / ROOT, folder / "clean" / ROOT)
        given = f"--source {transcripts} --tokenizer {tokenizer} --deep 64 --json --quiet"
        yield Bench(driver, folder / "clean", ("validate", ROOT, *given.split()))


def write_source(folder: Path) -> None:
    """Rows of several languages and exercises: with reasoning and without, without answer, two turns, long, bad."""
    languages, exercises = ("en", "de", "fr"), ("qa", "maths")

    def row(shard: int, index: int) -> sources.Row:
        name = f"s{shard}-{index}"
        analysis = None if index % 4 == 1 else f"Thinking about {name}: {'so and ' * index}so."
        final = None if index == 6 else f"Answer {name}."
        messages = sources.conversation(f"Question {name}?", analysis, final)
        if index == 2:
            messages += sources.conversation("And then?", "Because then.", "Then so.")
        if index == 3 and shard == 0:
            messages = sources.conversation("Long?", "long " * 2500, "Long.")
        language, exercise = languages[index % 3], exercises[index % 2]
        metadata = json.dumps({"synth_id": name, "language": language, "exercise": exercise})
        return sources.row(name, messages, metadata_json=metadata, language=language, exercise=exercise)

    shards = [[row(shard, index) for index in range(8)] for shard in range(2)]
    shards[0].insert(4, sources.row("bad-role", [{"role": "tool", "content": "42"}]))
    shards[0].append(sources.row("bad-json", None, messages_json="{"))
    sources.write_source(folder, shards)
