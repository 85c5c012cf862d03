"""Checks of the paths to which a command may write its page, report or export: options with callbacks.

In: the path of an option. Out: the same path, or an error for a URI or for a file that belongs to a dataset.
"""

import re
from functools import partial
from pathlib import Path

import typer

from spanloom.cli.app import say
from spanloom.errors import ConflictError
from spanloom.options.option import option
from spanloom.storage import write_atomically
from spanloom.storage.uri import SCHEMES


def local_place(path: Path | None) -> Path | None:
    """Refuses a URI, from which `Path` has removed a slash."""
    if re.match(rf"({'|'.join(SCHEMES)}):/", str(path)):
        raise typer.BadParameter(f"{path} is not a path: this is written to a local file or folder")
    return path


def output_file(path: Path | None) -> Path | None:
    """Raises ConflictError for an existing file of a dataset or source; only a report at its root is replaced."""
    if path is None or not path.is_file():
        return local_place(path)
    from spanloom.dataset.manifest import schema_version_at
    from spanloom.dataset.root.layout import REPORT_HTML, REPORT_JSON

    for folder in path.absolute().parents:
        if folder == path.absolute().parent and path.name in (REPORT_HTML, REPORT_JSON):
            continue
        if schema_version_at(str(folder)) is not None:
            raise ConflictError(
                f"this file belongs to the data at {folder}, and is not written over",
                where=str(path),
                remedy="give the name of another file",
            )
    return path


folder_option = partial(option, callback=local_place)
file_option = partial(option, callback=output_file, writes=True)


def write_page(file: Path, page: str) -> None:
    """Writes a page and prints its path."""
    write_atomically(file, page.encode())
    say(str(file))
