"""Every kind of file of a dataset and its source, damaged: with the manifest as it was, and made to fit.

In: a folder with a dataset and its source. Out: the folder with one file changed.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.corruption.dataset import listed
from tools.corruption.trial import ROOT, SOURCE, Edit

KINDS = {
    **{
        f"{name}{end}": f"{ROOT}/train/shard_01_{name}{end}"
        for name in ("tokens", "lossmask", "span")
        for end in (".bin", ".idx")
    },
    "rows.parquet": f"{ROOT}/train/shard_01_rows.parquet",
    "rejects": f"{ROOT}/rejects/shard_00.jsonl",
    "manifest": f"{ROOT}/manifest.json",
    "source shard": f"{SOURCE}/synth_harmony_shard_01.parquet",
    "source manifest": f"{SOURCE}/manifest.json",
}
"""Kind → one file of it."""

VIEWS = {"report.json": f"{ROOT}/report.json", "report.html": f"{ROOT}/report.html", "card": f"{ROOT}/README.md"}
HARMLESS = {
    ("manifest", "last byte cut off"): "the last byte is a line's end: the same JSON",
    ("manifest", "a bit near the end flipped"): "it lies in `environment`, which decides no byte of the data",
    ("rows.parquet", "first bit flipped, the manifest made to fit"): "Parquet is read from its end: the same rows",
    ("rows.parquet", "twice in a row, the manifest made to fit"): "Parquet is read from its end: the same rows",
}
NOT_CHECKED = "a view, made from the dataset and decisive for nothing; the manifest does not list it"


def file_edits() -> Iterator[Edit]:
    """Every damage of every kind of file."""
    for kind, name in {**KINDS, **VIEWS}.items():
        for what, damage in DAMAGES.items():
            why = NOT_CHECKED if kind in VIEWS else HARMLESS.get((kind, what))
            yield Edit(kind=kind, name=what, apply=_damaged(name, damage), why=why)
            sealed = name.startswith(ROOT) and kind not in VIEWS and kind != "manifest"
            if sealed and what not in ("removed", "a folder in its place", "a dangling link in its place"):
                fitting = f"{what}, the manifest made to fit"
                yield Edit(
                    kind=kind,
                    name=fitting,
                    apply=_damaged(name, damage, seal=True),
                    consistent=True,
                    why=HARMLESS.get((kind, fitting)),
                )
    yield Edit(kind="unlisted file", name="in train", apply=_more(f"{ROOT}/train/shard_07_tokens.bin"))
    yield Edit(kind="unlisted file", name="in rejects", apply=_more(f"{ROOT}/rejects/shard_01.jsonl"))
    yield Edit(
        kind="unlisted file",
        name="at the root",
        apply=_more(f"{ROOT}/notes.txt"),
        why="beside a dataset anything may stand",
    )


def _flip(position: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[min(len(data) - 1, int(position * len(data)))] ^= 1
        path.write_bytes(data)

    return damage


def _cut(path: Path, left: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(left * len(data))] if left < 1 else data[:-1])


def _in_its_place(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "first bit flipped": _flip(0),
    "a bit in the middle flipped": _flip(0.5),
    "a bit near the end flipped": _flip(0.95),
    "last byte cut off": lambda path: _cut(path, 1),
    "half of it cut off": lambda path: _cut(path, 0.5),
    "emptied": lambda path: path.write_bytes(b""),
    "a byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "all zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "twice in a row": lambda path: path.write_bytes(path.read_bytes() * 2),
    "another file of its kind": lambda path: shutil.copyfile(_sibling(path), path),
    "removed": lambda path: path.unlink(),
    "a folder in its place": lambda path: _in_its_place(path, Path.mkdir),
    "a dangling link in its place": lambda path: _in_its_place(path, lambda at: at.symlink_to("nowhere")),
}


def _sibling(path: Path) -> Path:
    """Another file of the same kind, or else of another."""
    for this, that in (("shard_01", "shard_00"), ("shard_00", "shard_01")):
        if (sibling := path.with_name(path.name.replace(this, that))) != path and sibling.is_file():
            return sibling
    return next(other for other in sorted(path.parent.parent.rglob("*")) if other.is_file() and other != path)


def _damaged(name: str, damage: Callable[[Path], None], *, seal: bool = False) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        damage(folder / name)
        if seal:
            _seal(folder, name)

    return apply


def _seal(folder: Path, name: str) -> None:
    """Size and sha256 of the file in the manifest made to fit."""
    path = folder / ROOT / "manifest.json"
    manifest = json.loads(path.read_bytes())
    relative = name.removeprefix(f"{ROOT}/")
    for shard in manifest["content"]["shards"]:
        for file in [*(f for split in shard["splits"].values() for f in split["files"]), shard["rejects_file"] or {}]:
            if file.get("path") == relative:
                file |= listed(folder / ROOT, relative)
    path.write_text(json.dumps(manifest, indent=2))


def _more(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).write_text("not of this dataset\n")

    return apply
