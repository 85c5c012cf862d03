"""A folder that one command fills from empty, at once or in steps: after a run that ended early, killed or not, the
next resumes after its last finished step.

In: the folder, the run's `identity`, the file that marks everything as done. Out: `Steps`. Each step records the files
it will write before it writes them, and then that it has ended. The record is a file in the folder, one JSON value a
line, held as a lock and removed last. Files of an unfinished step are removed, by exact name; a run with another
identity removes all recorded files. Any other file in the folder is a conflict.

    {"identity": …, "last": "manifest.json"}
    {"files": ["shard_00.parquet"]}      a step begins
    {"ended": {"rows": 4096}}            its files are complete
"""

import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from spanloom.errors import ConflictError
from spanloom.provenance import canonical_json
from spanloom.storage.local import is_regular, path_below, remove_files, remove_if_empty, special_file_conflict
from spanloom.storage.locks import held, lock_names
from spanloom.storage.temporaries import clear_temporaries_of

RECORD_LIMIT = 1 << 28


class Steps:
    """The steps of one run. `finished`: an earlier run wrote everything, and was killed before its record was removed.
    `ended`: the values that finished steps have recorded, in order."""

    def __init__(self, out: Path, record_name: str, stream: IO[bytes], *, identity: Any, last: str) -> None:
        self._out, self._stream, self._last = out, stream, last
        self._names: list[str] = []
        self._begun: list[str] = []
        self.ended: list[Any] = []
        header = {"identity": json.loads(canonical_json(identity)), "last": last}
        known = self._read_record(header)
        self.finished = known and is_regular(path_below(out, last))
        check_unused(out, {*lock_names(record_name), *self._names, *([last] if self.finished else [])})
        if not known:
            self._append(header)

    def begin(self, files: Sequence[str]) -> None:
        """Records which files the step writes, relative. Call it before the first of them is created; a step whose
        files are not known at once may call it again."""
        self._append({"files": list(files)})
        self._begun, self._names = [*self._begun, *files], [*self._names, *files]

    def end(self, record: Any) -> None:
        """Records that the step's files are complete and on disk. `record`: JSON value for `ended` of the next run."""
        # First: if appending fails, it is unknown whether the line was written. If it was, the next run needs the
        # files; if not, the next run removes them.
        self._begun = []
        self.ended.append(json.loads(canonical_json(record)))  # as a resumed run reads it
        self._append({"ended": record})

    def undo(self) -> None:
        """Removes the files of the unfinished step."""
        clear_temporaries_of(path_below(self._out, name) for name in (*self._begun, self._last))
        remove_files(self._out, reversed(self._begun))
        self._begun = []

    def forget(self) -> None:
        """Leaves the files of the unfinished step to the caller, but for temporary ones."""
        clear_temporaries_of(path_below(self._out, name) for name in self._begun)
        self._begun = []

    def _read_record(self, header: dict[str, Any]) -> bool:
        """Resumes from the record of a run with this identity; otherwise removes all files in it. True if resumed."""
        steps = _read(self._stream)
        end = 0
        for line_end, value in steps:
            if "files" in value:
                files = [str(name) for name in value["files"]]
                self._begun, self._names = [*self._begun, *files], [*self._names, *files]
                continue
            if "ended" in value:
                self._begun = []
                self.ended.append(value["ended"])
            end = line_end
        if steps and steps[0][1] == header:
            if is_regular(path_below(self._out, self._last)):  # it is written last: every step is complete
                clear_temporaries_of(path_below(self._out, name) for name in (*self._names, self._last))
                return True
            self._names = [name for name in self._names if name not in self._begun]
            self.undo()
        else:
            self._begun = [*self._names, *(str(value["last"]) for _, value in steps[:1])]
            self.undo()
            self._names, self.ended, end = [], [], 0
        end = end if self.ended else 0
        self._stream.truncate(end)
        return bool(end)

    def _append(self, value: Any) -> None:
        self._stream.seek(0, os.SEEK_END)
        self._stream.write(canonical_json(value) + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())


@contextmanager
def filling_in_steps(out: Path, *, record_name: str, identity: Any, last: str) -> Iterator[Steps]:
    """Holds the folder `out` for one run. The block writes `last` after its last step.

    Raises ConflictError if `out` is not a folder, holds files of another origin, or is being filled by another run. If
    the block raises, finished steps stay, and the same command resumes after them; if there are none, nothing stays.
    """
    new = not os.path.lexists(out)
    if not new and not out.is_dir():
        check_unused(out)
    out.mkdir(parents=True, exist_ok=True)
    record = out / record_name
    empty = True
    try:
        with locked_record(record) as stream:
            try:
                steps = Steps(out, record_name, stream, identity=identity, last=last)
            except BaseException:
                if not stream.seek(0, os.SEEK_END):
                    record.unlink(missing_ok=True)
                raise
            try:
                yield steps
            except BaseException:
                steps.undo()
                if not steps.ended:
                    record.unlink(missing_ok=True)
                empty = not steps.ended
                raise
            record.unlink()
    except BaseException:
        if new and empty:
            remove_if_empty(out)
        raise


@contextmanager
def filling(out: Path, *, record_name: str, identity: Any, files: Sequence[str]) -> Iterator[bool]:
    """Holds the folder `out` for a run of one step. Yields True if a run with the same `identity` finished it and was
    killed before its record was removed: then everything is complete, and there is nothing to do.

    `files`: all files that may be written, relative. The last one is written last. Raises ConflictError as
    `filling_in_steps` does. A block that raises removes its own files first: a file of that name may be of others.
    """
    with filling_in_steps(out, record_name=record_name, identity=identity, last=files[-1]) as steps:
        if not steps.finished:
            steps.begin(files)
        try:
            yield steps.finished
        except BaseException:
            steps.forget()
            raise


def check_unused(out: Path, ours: Collection[str] = ()) -> None:
    """Raises ConflictError if `out` is no folder, or holds anything but the files `ours`, relative."""
    kept = {name.split("/")[0] for name in ours}
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        what = "the output is not a directory"
    elif (foreign := next((path.name for path in sorted(out.iterdir()) if path.name not in kept), None)) is not None:
        what = f"the output directory is not empty: it holds {foreign}"
    else:
        return
    raise ConflictError(what, where=str(out), remedy="give another --out, or move away what is there")


@contextmanager
def locked_record(record: Path) -> Iterator[IO[bytes]]:
    """The record of a folder, opened and held as a lock. Raises ConflictError if another run holds it."""
    while True:
        if os.path.lexists(record) and not is_regular(record):
            raise special_file_conflict(record)
        what, remedy = "another run of this command fills this folder", "wait for it, or give another --out"
        refusal = ConflictError(what, where=str(record.parent), remedy=remedy)
        with record.open("a+b") as stream, held(stream, record, refusal):
            if not is_regular(record) or not os.path.samestat(os.fstat(stream.fileno()), record.lstat()):
                continue  # another run finished meanwhile, and removed the record that was opened
            yield stream
            return


def _read(stream: IO[bytes]) -> list[tuple[int, dict[str, Any]]]:
    """The lines of a record, each with its end offset in bytes. An incomplete line is ignored: the run was killed
    before it wrote the line's files."""
    stream.seek(0)
    steps: list[tuple[int, dict[str, Any]]] = []
    end = 0
    size = os.fstat(stream.fileno()).st_size  # a read of n bytes allocates n bytes first
    for line in stream.read(min(size, RECORD_LIMIT)).splitlines(keepends=True):
        end += len(line)
        try:
            value = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict) or (not steps and not {"identity", "last"} <= value.keys()):
            break
        steps.append((end, value))
    return steps
