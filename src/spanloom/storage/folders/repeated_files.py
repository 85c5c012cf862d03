"""Files that a command has written and is to write again: the same are kept, others replaced on request.

In: paths, and a block that writes their bytes. Out: the files, or nothing new if all hold these bytes already. The
bytes decide, so nothing is recorded beside the files. The new ones are complete before the first is compared.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from spanloom.errors import ConflictError
from spanloom.storage.folders.repeated import OnSame
from spanloom.storage.local import fsync_directory, naming, publish, sha256_file, written_atomically
from spanloom.storage.temporaries import discard, temporary_beside


@contextmanager
def written_once(path: Path, *, overwrite: bool = False, on_same: OnSame | None = None) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file `path` when the block ends, and are discarded if it raises.

    If the file holds these bytes already, it is left alone and `on_same` is called. Raises ConflictError if it holds
    others, unless `overwrite` is set. A device, a FIFO or /dev/stdout gets the bytes as they are written.
    """
    with all_written_once([path], overwrite=overwrite, on_same=on_same) as (stream,):
        yield stream


@contextmanager
def all_written_once(
    paths: Sequence[Path], *, overwrite: bool = False, on_same: OnSame | None = None
) -> Iterator[list[BinaryIO]]:
    """`written_once` for several files: none is written if one of them is a conflict."""
    with naming(paths[0] if len(paths) == 1 else Path(os.path.commonpath(paths))), ExitStack() as undo:
        streams: list[BinaryIO] = []
        made: list[tuple[Path, Path, BinaryIO]] = []
        for path in paths:
            if path.exists() and not path.is_file():
                streams.append(undo.enter_context(written_atomically(path)))
                continue
            temporary = temporary_beside(path)
            undo.callback(discard, temporary)
            stream = undo.enter_context(temporary.open("w+b"))  # NumPy bypasses the stream of "wb"
            made.append((path, temporary, stream))
            streams.append(stream)
        yield streams
        finished = []
        for path, temporary, written in made:
            written.flush()
            os.fsync(written.fileno())
            finished.append((temporary, path, sha256_file(temporary)))
        put_once(*finished, overwrite=overwrite, on_same=on_same)


def put_once(*made: tuple[Path, Path, str], overwrite: bool = False, on_same: OnSame | None = None) -> None:
    """Gives finished, fsynced temporary files their names, each `(temporary, path, sha256)`; see `written_once`."""
    new = [each for each in made if not each[1].is_file() or sha256_file(each[1]) != each[2]]
    if not overwrite and (others := [path for _, path, _ in new if os.path.lexists(path)]):
        raise ConflictError(
            "this file has another result of this command",
            where=str(others[0]),
            remedy="replace it with --overwrite, or give another name",
        )
    for temporary, path, digest in new:
        if overwrite:
            temporary.replace(path)
            fsync_directory(path.parent)
        else:
            publish(temporary, path, digest)  # fails if another run has written the file meanwhile
    if made and not new and on_same is not None:
        on_same()
