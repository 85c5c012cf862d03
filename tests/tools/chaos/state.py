"""What is in a folder, and what must be true of it at any moment.

In: a folder. Out: its tree as plain values that can be compared, and sentences for what is wrong: a manifest over files
that are missing or not whole, somebody else's file that was changed.

Nothing of spanloom is used here: manifests are read as the JSON that they are.
"""

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Tree = dict[str, str]
"""Relative path → what it is: `folder`, `link TARGET`, or `file SHA256`; random parts of names as `*`."""

_RANDOM_NAME = re.compile(
    r"(?<=spanloom-tmp-)[A-Za-z0-9_]+|(?<=\btmp)[a-z0-9_]{8}\b|(?<=^tmp/)[a-z0-9_]{8}$|(?<=spanloom-tokenizer-)[a-z0-9_]{8}"
)
_DIFFERS_EACH_RUN = ("report.json", "report.html")
"""Files with times of day and durations in them: only that they are there can be compared."""


def tree(folder: Path) -> Tree:
    """All that stands below `folder`. Of manifests only what decides a dataset's bytes counts."""
    found = {}
    for path in _all(folder):
        name = _RANDOM_NAME.sub("*", path.relative_to(folder).as_posix())
        if path.is_symlink():
            found[name] = f"link {path.readlink()}"
        elif path.is_dir():
            found[name] = "folder"
        elif not path.is_file():
            found[name] = "special"
        else:
            found[name] = f"file {_sha256_of_what_counts(path)}"
    return found


def _all(folder: Path) -> Iterator[Path]:
    """Everything below a folder, in order, links not followed."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _all(path)


def _sha256_of_what_counts(path: Path) -> str:
    data = path.read_bytes()
    if path.name in _DIFFERS_EACH_RUN:
        return "any"
    if re.search(r"manifest(\.pending)?\.json|plan\.json", path.name):
        # What is no manifest of a dataset, or half of one, is compared by its bytes.
        with suppress(ValueError, KeyError, TypeError):
            data = json.dumps(json.loads(data)["content"], sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


def digest(of: Tree) -> str:
    """One short name for a tree."""
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()


def difference(wanted: Tree, found: Tree) -> list[str]:
    """What is missing, other and too much, a line each."""
    return [
        *(f"missing {name}" for name in wanted if name not in found),
        *(f"other {name}" for name in wanted if name in found and found[name] != wanted[name]),
        *(f"left behind {name}" for name in found if name not in wanted),
    ]


# --- Datasets --------------------------------------------------------------------------------------------------------


def false_datasets(folder: Path) -> list[str]:
    """Everything below `folder` that looks finished and is not: a manifest over what is not there, or not whole."""
    return [
        f"{path.relative_to(folder)}: {fault}"
        for path in _all(folder)
        if path.name in ("manifest.json", "export.json", "plan.json") and not path.is_symlink()
        for fault in _faults(path)
    ]


def false_indices(folder: Path) -> list[str]:
    """Every `.idx` below `folder` that is not whole, or does not stand beside a whole `.bin`."""
    return [
        f"{path.relative_to(folder)}: {fault}"
        for path in _all(folder)
        if path.name.endswith(".idx") and not path.name.startswith(".") and (fault := _index_fault(path))
    ]


def whole_datasets(folder: Path) -> list[str]:
    """Roots below `folder` with a manifest and all that it lists, relative."""
    return [
        path.parent.relative_to(folder).as_posix()
        for path in _all(folder)
        if path.name == "manifest.json" and _family(path) and not list(_faults(path))
    ]


def _family(manifest: Path) -> str | None:
    try:
        content = json.loads(manifest.read_bytes())["content"]
        return str(content["family"])
    except (ValueError, KeyError, TypeError):
        return None


def _faults(manifest: Path) -> Iterator[str]:
    try:
        listed = list(_listed(json.loads(manifest.read_bytes())))
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        yield f"cannot be read ({type(fault).__name__})"
        return
    for file in listed:
        path = manifest.parent / file["path"]
        if not path.is_file():
            yield f"lists {file['path']}, which is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
            yield f"lists {file['path']}, which has other bytes"


def _listed(manifest: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """The files that the manifest of a dataset, a source, an export or a plan names."""
    if "export" in manifest:
        yield from manifest["files"]
    elif "trace_ids" in manifest:  # a dataset of traces: they are in the store
        return
    elif str(manifest.get("schema_version")).startswith("spanloom_plan"):
        for split in manifest["content"]["splits"].values():
            for shard in split["shards"]:
                yield from shard["files"]
    elif "storage" in manifest:
        yield from manifest["storage"]["shards"]
    else:
        for shard in manifest["content"]["shards"]:
            for split in shard["splits"].values():
                yield from split["files"]
            if shard["rejects_file"]:
                yield shard["rejects_file"]


def _index_fault(index: Path) -> str | None:
    data, itemsize = index.read_bytes(), {1: 1, 4: 4}
    if len(data) < 34 or not data.startswith(b"MMIDIDX\0\0"):
        return "is no index"
    code, sequences, documents = struct.unpack_from("<BQQ", data, 17)
    if len(data) != 34 + sequences * 12 + documents * 8:
        return "is not whole"
    lengths = struct.unpack_from(f"<{sequences}i", data, 34)
    file = index.with_suffix(".bin")
    if not file.is_file():
        return "stands without its .bin"
    return None if file.stat().st_size == sum(lengths) * itemsize[code] else "stands over a .bin that is not whole"


# --- What others put there -------------------------------------------------------------------------------------------


def stamps(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """What must not change of the files and links `names`: kind, bytes, time of change, mode."""
    found = {}
    for name in names:
        path = folder / name
        if not path.is_symlink() and not path.exists():
            found[name] = "gone"
            continue
        about = path.lstat()
        what = str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        found[name] = f"{what} {about.st_mtime_ns} {about.st_mode:o}"
    return found


def changed(folder: Path, before: dict[str, str], *, moved_with: str | None = None) -> dict[str, str]:
    """Which of the files are not what they were, and whether `removed` or `changed`.

    With `moved_with`, the name of a dataset's root, a file below it may also stand at the same place below a folder
    `ROOT.…` beside it, where the whole dataset was put.
    """
    wrong = {}
    for name, stamp in before.items():
        places = [name]
        if moved_with and name.startswith(f"{moved_with}/"):
            root = folder / moved_with
            places += [
                f"{beside.relative_to(folder)}/{name.removeprefix(f'{moved_with}/')}"
                for beside in root.parent.glob(f"{root.name}.*")
            ]
        found = [stamps(folder, [place])[place] for place in places]
        if stamp not in found:
            wrong[name] = "removed" if set(found) == {"gone"} else "changed"
    return wrong
