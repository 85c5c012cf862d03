"""Damaged and hostile inputs: what must end in a clear error, never in a traceback, a hang or a full memory.

In: a folder with a dataset and its source. Out: the folder with one input replaced, and the commands that read it. An
answer is clear when it is an exit code for errors or findings, and words that name the file and say what to do.
"""

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.strange_files import INSTEAD
from tools.chaos.driver import Run
from tools.corruption.dataset import listed, read
from tools.corruption.leaves import Place, dotted
from tools.corruption.trial import ROOT, SOURCE, VALIDATE, Bench

SECONDS = 60.0
"""A command that takes longer does not end: on so little data it takes four, on a busy machine."""

Command = tuple[str, ...]
BUILD = f"build --source {SOURCE} --shards 2 --workers 1 --valid-fraction 0.5 --max-rejects 2 --quiet --json".split()
OF_A_MANIFEST: dict[str, Command] = {
    "validate": VALIDATE,
    "manifest show": ("manifest", "show", ROOT),
    "stats": ("stats", ROOT),
    "export": ("export", ROOT, "--out", "exported", "--quiet"),
    "build again": (*BUILD, "--out", ROOT),
    "build --overwrite": (*BUILD, "--out", ROOT, "--overwrite", "--max-rows", "4"),
}
OF_A_SOURCE: dict[str, Command] = {"validate": VALIDATE, "build": (*BUILD, "--out", "fresh")}

OUTSIDE = "outside.txt"
"""A file beside the dataset that no command may touch."""

OF_ROWS = {
    **{name: OF_A_MANIFEST[name] for name in ("validate", "export")},
    "stats": ("stats", ROOT, "--by", "language"),
}


@dataclass(frozen=True, kw_only=True)
class Input:
    """One hostile input: `file` is what `place` puts in its stead, `commands` are those that read it.

    Those that are not in `must_refuse` may also succeed: they do not look at what is wrong, or nothing is.
    """

    file: str
    name: str
    place: Callable[[Path], None]
    commands: dict[str, Command]
    must_refuse: tuple[str, ...] = tuple(OF_A_MANIFEST)

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def answers(bench: Bench, given: Input) -> Iterator[tuple[str, str | None]]:
    """`(command, what is wrong with its answer)`; None where the answer is clear."""
    for name, command in given.commands.items():
        folder = bench.reset()
        for made in ("exported", "fresh", f"{ROOT}.replaced"):
            _remove(folder / made)
        (folder / OUTSIDE).write_text("not of this dataset\n")
        given.place(folder)
        before = _stamps(folder)
        run = bench.driver.run(command, watch=False, seconds=SECONDS)
        if _stamps(folder) != before:
            yield name, "removes or changes a file outside of the dataset"
        else:
            yield name, unclear(run, may_pass=name not in given.must_refuse)
    _remove(bench.driver.folder / ROOT / "manifest.json")


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of what no command may touch: the source, and a file beside the dataset."""
    paths = [*(folder / SOURCE).iterdir(), *folder.glob(OUTSIDE)]
    return {path.name: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def unclear(run: Run, *, may_pass: bool = False) -> str | None:
    """What is wrong with how a command answered a hostile input, or None."""
    if not run.in_time:
        return "does not end"
    if "Traceback (most recent call last)" in run.output:
        last = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception|Interrupt|Loop)\b.*", run.output, re.M)
        return f"traceback: {last[-1][:120] if last else ''}"
    if run.code < 0:
        return f"ended by signal {-run.code}"
    if run.code == 0:
        return None if may_pass else "succeeds"
    if run.code == 4:
        return None
    if not re.search(r"^error: ", run.output, re.M):
        return f"exit code {run.code} without an error: {run.output[:120]!r}"
    if "  where: " not in run.output:
        return f"names no file: {run.output[:160]!r}"
    if "  remedy: " not in run.output:
        return f"says no remedy: {run.output[:160]!r}"
    return None


# --- What may lie there instead of a file ----------------------------------------------------------------------------


def instead_of(file: str, commands: dict[str, Command]) -> Iterator[Input]:
    """Everything that may lie where `file` is expected."""
    for name, make in INSTEAD.items():

        def place(folder: Path, make: Callable[[Path], None] = make) -> None:
            _remove(folder / file)
            make(folder / file)

        yield Input(file=file, name=name, place=place, commands=commands)


# --- Values within a manifest ----------------------------------------------------------------------------------------

DEEP = "deep"
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "-1": -1,
    "1.5": 1.5,
    "10^30": 10**30,
    "10^400": 10**400,
    "a string": "x",
    "an empty string": "",
    "a lone surrogate": "\ud800",
    "a NUL": "a\0b",
    "an escape": "\x1b]0;title\x07[red]x[/red]",
    "../ outside": "../../outside",
    "an absolute path": "/nowhere/at/all",
    "a million letters": "x" * 1_000_000,
    "an empty list": [],
    "an empty object": {},
    "a list of a list": [[]],
    "1,000 lists in one another": DEEP,
}


def within(file: str, commands: dict[str, Command], manifest: Any) -> Iterator[Input]:
    """Every value of a manifest, leaf or not, replaced by every hostile value; and left out."""
    for place in places(manifest):
        for name, value in VALUES.items():
            yield _input(file, commands, place, name, value)
        yield Input(
            file=file,
            name=f"{dotted(place)} left out",
            place=_without(file, place),
            commands=commands,
            must_refuse=() if place[0] == "environment" else ("validate",),  # who shows one need not miss anything
        )


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """The places of all that is in a JSON value, of shards and files the first."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:1]))
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


def _input(file: str, commands: dict[str, Command], at: Place, name: str, value: Any) -> Input:
    def place(folder: Path) -> None:
        path = folder / file
        manifest = json.loads(path.read_bytes())
        inner: Any = manifest
        for part in at[:-1]:
            inner = inner[part]
        inner[at[-1]] = "DEEP" if value is DEEP else value
        text = json.dumps(manifest).replace('"DEEP"', "[" * 1000 + "]" * 1000)
        path.write_text(text)

    return Input(file=file, name=f"{dotted(at)} is {name}", place=place, commands=commands, must_refuse=())


def _without(file: str, at: Place) -> Callable[[Path], None]:
    def place(folder: Path) -> None:
        path = folder / file
        manifest = json.loads(path.read_bytes())
        inner: Any = manifest
        for part in at[:-1]:
            inner = inner[part]
        del inner[at[-1]]
        path.write_text(json.dumps(manifest))

    return place


# --- Manifests that are right in form and monstrous in what they say -------------------------------------------------


NAMES = (
    *("../source/manifest.json", f"../{OUTSIDE}", f"FOLDER/{OUTSIDE}", "train/../../dataset/train/shard_00_tokens.bin"),
    *("train", ".", "", "train//shard_00_tokens.bin", "train\\shard_00_tokens.bin"),
    *("a\0b", "\ud800", "x" * 5000),
)
"""File names that leave the root, are none, or cannot be."""


def monstrous() -> Iterator[Input]:
    """Manifests that follow the schema, as far as it goes."""

    def of(name: str, change: Callable[[dict[str, Any]], Any], must_refuse: tuple[str, ...] = ("validate",)) -> Input:
        def place(folder: Path) -> None:
            path = folder / ROOT / "manifest.json"
            manifest = json.loads(path.read_bytes())
            change(manifest)
            path.write_text(json.dumps(manifest).replace("FOLDER", str(folder)))

        return Input(
            file=f"{ROOT}/manifest.json", name=name, place=place, commands=OF_A_MANIFEST, must_refuse=must_refuse
        )

    def more_shards(manifest: dict[str, Any]) -> None:
        shards = manifest["content"]["shards"]
        shards += [{**copy.deepcopy(shards[0]), "shard": 2 + number} for number in range(3000)]

    yield of("3,000 more shards", more_shards)
    yield of("the same shard twice", lambda manifest: _shards(manifest).append(_shards(manifest)[0]))
    yield of("a file listed twice", lambda manifest: _files(manifest).append(_files(manifest)[0]))
    yield of("shards in another order", lambda manifest: manifest["content"]["shards"].reverse())
    yield of("a split of another name", _renamed_split)
    yield of("no split", lambda manifest: [shard.update(splits={}) for shard in manifest["content"]["shards"]])
    yield of("10^18 sequences", lambda manifest: _counts(manifest).update(sequences=10**18))
    yield of("10^30 bytes", lambda manifest: _files(manifest)[0].update(bytes=10**30))
    for path in NAMES:
        shown = repr(path)[:40]
        yield of(f"a file called {shown}", lambda manifest, path=path: _files(manifest)[0].update(path=path))
        yield of(f"a rejects file called {shown}", lambda manifest, path=path: _rejects(manifest).update(path=path))
    yield of("arrays of other names", lambda manifest: manifest["content"].update(arrays={"ids": "int32"}))
    yield of("no span names", lambda manifest: manifest["content"].update(span_names=[]))
    yield of("the same span name thrice", lambda manifest: manifest["content"].update(span_names=["a", "a", "a"]))
    yield of("a family with packing but no blocks", lambda manifest: manifest["content"].update(family="packed_chat"))
    yield of("a family that is not known", lambda manifest: manifest["content"].update(family="poetry"))
    yield of("an input without shards", lambda manifest: manifest["content"]["input"].update(shards=[]))
    yield of("500 lists in one another", lambda found: found["environment"].update(image=_nested(500)), must_refuse=())


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _shards(manifest: dict[str, Any]) -> Any:
    return manifest["content"]["shards"]


def _counts(manifest: dict[str, Any]) -> Any:
    return manifest["content"]["shards"][0]["splits"]["train"]


def _files(manifest: dict[str, Any]) -> Any:
    return _counts(manifest)["files"]


def _rejects(manifest: dict[str, Any]) -> Any:
    return manifest["content"]["shards"][0]["rejects_file"]


def _renamed_split(manifest: dict[str, Any]) -> None:
    for counts in (manifest["content"]["totals"], *manifest["content"]["shards"]):
        counts["splits"]["test"] = counts["splits"].pop("valid")


# --- Rejects files and row tables ------------------------------------------------------------------------------------


def rejects_files() -> Iterator[Input]:
    """Rejects files that the manifest lists with the right hash, and that hold something else than rejects."""
    contents: dict[str, bytes] = {
        "empty": b"",
        "not JSON": b"not JSON\n",
        "binary": bytes(range(256)),
        "a list": b"[]\n",
        "a number": b"7\n",
        "no row": b'{"shard": 0}\n',
        "row is a string": b'{"row": "x", "shard": 0, "synth_id": null, "reason": "x", "detail": "x"}\n',
        "row is a list": b'{"row": [], "shard": 0}\n',
        "row is 10^30": b'{"row": 1' + b"0" * 30 + b"}\n",
        "one line of 10 MB": b'{"row": "' + b"x" * 10_000_000 + b'"}\n',
        "nested": b"[" * 100_000 + b"]" * 100_000,
        "a lone surrogate": b'{"row": 4, "shard": 0, "synth_id": "\\ud800", "reason": "role_unknown", "detail": ""}\n',
    }
    for name, data in contents.items():

        def place(folder: Path, data: bytes = data) -> None:
            (folder / ROOT / "rejects/shard_00.jsonl").write_bytes(data)
            path = folder / ROOT / "manifest.json"
            manifest = json.loads(path.read_bytes())
            manifest["content"]["shards"][0]["rejects_file"] = listed(folder / ROOT, "rejects/shard_00.jsonl")
            path.write_text(json.dumps(manifest))

        yield Input(file="rejects/shard_00.jsonl", name=name, place=place, commands={"validate": VALIDATE})


def row_tables() -> Iterator[Input]:
    """Row tables with a column of another type, with nulls, or missing, under a manifest that fits."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def change(folder: Path, changed: Callable[[pa.Table], pa.Table]) -> None:
        dataset = read(folder / ROOT)
        name = "train/shard_01_rows.parquet"
        table = pq.read_table(folder / ROOT / name)
        pq.write_table(changed(table), folder / ROOT / name)
        files = dataset.manifest["content"]["shards"][1]["splits"]["train"]["files"]
        files[0] = listed(folder / ROOT, name)
        (folder / ROOT / "manifest.json").write_text(json.dumps(dataset.manifest))

    def replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
        return table.set_column(table.schema.get_field_index(name), name, column)

    columns = ("sequence", "row", "synth_id", "tokens", "analysis_tokens")
    changes: dict[str, Callable[[pa.Table], pa.Table]] = {}
    for name in columns:
        changes[f"{name} is missing"] = lambda table, name=name: table.drop_columns([name])
        changes[f"{name} all null"] = lambda table, name=name: replaced(
            table, name, pa.nulls(table.num_rows, table.schema.field(name).type)
        )
        changes[f"{name} a list"] = lambda table, name=name: replaced(table, name, pa.array([[1]] * table.num_rows))
        changes[f"{name} a float"] = lambda table, name=name: replaced(table, name, pa.array([0.5] * table.num_rows))
        changes[f"{name} a string"] = lambda table, name=name: replaced(table, name, pa.array(["x"] * table.num_rows))
        changes[f"{name} twice"] = lambda table, name=name: table.append_column(name, table.column(name))
    changes["row is 10^18"] = lambda table: replaced(
        table, "row", pa.array([10**18 + number for number in range(table.num_rows)])
    )
    changes["row is negative"] = lambda table: replaced(
        table, "row", pa.array([number - 99 for number in range(table.num_rows)])
    )
    changes["no rows"] = lambda table: table.slice(0, 0)
    changes["one row less"] = lambda table: table.slice(0, table.num_rows - 1)
    changes["one row more"] = lambda table: pa.concat_tables([table, table.slice(0, 1)])
    for name, changed in changes.items():
        yield Input(
            file="rows.parquet",
            name=name,
            place=lambda folder, changed=changed: change(folder, changed),
            commands=OF_ROWS,
            must_refuse=("validate",),  # the others do not look at every column
        )


def whole_files() -> list[Input]:
    """What may lie there instead of a file, or be in one."""
    return [
        *instead_of(f"{ROOT}/manifest.json", OF_A_MANIFEST),
        *instead_of(f"{SOURCE}/manifest.json", OF_A_SOURCE),
        *instead_of(f"{SOURCE}/synth_harmony_shard_01.parquet", OF_A_SOURCE),
        *monstrous(),
        *rejects_files(),
        *row_tables(),
    ]


def single_values(manifest: dict[str, Any], source_manifest: dict[str, Any]) -> list[Input]:
    """Every value of both manifests replaced by every hostile one."""
    only_show: dict[str, Command] = {name: OF_A_MANIFEST[name] for name in ("manifest show", "validate")}
    return [
        *within(f"{ROOT}/manifest.json", only_show, manifest),
        *within(f"{SOURCE}/manifest.json", OF_A_SOURCE, source_manifest),
    ]


def sample(inputs: list[Input], count: int, seed: int) -> list[Input]:
    return random.Random(seed).sample(inputs, min(count, len(inputs)))
