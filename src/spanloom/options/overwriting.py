"""No command writes over what it reads.

In: the values of a command's options, and which of them are files that it writes. Raises ValueError.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

OUTPUTS = frozenset({"out", "work", "scratch"})
"""Options of folders that a command writes into."""

_SQLITE = "sqlite:///"


def check_outputs(values: Mapping[str, Any], writing: Collection[str]) -> None:
    """`values`: option → value; `writing`: the options of files that are written. Of an input folder, files that exist
    are inputs too; where a dataset's root allows a report, `outputs.output_file` decides."""
    for name in (*writing, *OUTPUTS):
        if isinstance(value := values.get(name), str | Path) and re.match(r"hf:/", str(value)):
            raise ValueError(f"{_option(name)}: hf:// is only read; `spanloom export --push OWNER/NAME` uploads")
    seen: dict[Path, str] = {}
    for name in writing:
        for written in _paths(values.get(name)):
            place = written.absolute()
            if place in seen:
                raise ValueError(f"{_option(seen[place])} and {_option(name)} are the same file: {written}")
            seen[place] = name
            if not os.path.lexists(written):
                continue
            for other, value in values.items():
                if other in writing or other in OUTPUTS:
                    continue
                for read in _paths(value):
                    if _is_of(written, read):
                        raise ValueError(
                            f"{_option(name)}: {written} is what {_option(other)} reads, and is not written over"
                        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _paths(value: Any) -> Iterator[Path]:
    """The paths in a value: of a path, a text, a list; of the URL of an SQLite file."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str) and value not in ("", "-") and len(value) < 4096 and "\0" not in value:
        yield Path(value.removeprefix(_SQLITE))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _paths(each)


def _is_of(written: Path, read: Path) -> bool:
    """Whether a file that exists is one that is read, or in a folder that is."""
    try:
        if read.is_dir():
            return written.is_file() and read.resolve() in written.resolve().parents and not _is_report(written, read)
        return read.exists() and read.samefile(written)
    except OSError:
        return False


def _is_report(written: Path, root: Path) -> bool:
    return written.name in ("report.html", "report.json") and written.resolve().parent == root.resolve()
