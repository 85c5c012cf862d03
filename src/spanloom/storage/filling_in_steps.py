"""A folder that one command fills in steps: after a run that ended early, killed or not, the next resumes after its
last finished step.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from spanloom.errors import ConflictError
from spanloom.provenance import canonical_json
from spanloom.storage.filling import RECORD_LIMIT, locked
from spanloom.storage.local import is_regular, path_below, remove_files, remove_if_empty
from spanloom.storage.temporaries import clear_temporaries_of


class Steps:
    """The steps of one run. `finished`: an earlier run wrote everything, and was killed before its record was removed.
    `ended`: the values that finished steps have recorded, in order."""

    def __init__(self, out: Path, stream: IO[bytes], *, identity: Any, last: str) -> None:
        self._out, self._stream, self._last = out, stream, last
        self._names: list[str] = []
        self._begun: list[str] = []
        self.ended: list[Any] = []
        header = {"identity": json.loads(canonical_json(identity)), "last": last}
        known = self._read_record(header)
        self.finished = known and is_regular(path_below(out, last))
        self._check_unused([*self._names, last] if self.finished else self._names)
        if not known:
            self._append(header)

    def begin(self, files: Sequence[str]) -> None:
        """Records which files the next step writes, relative. Call it before the first file is created."""
        self._append({"files": list(files)})
        self._begun, self._names = list(files), [*self._names, *files]

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

    def _read_record(self, header: dict[str, Any]) -> bool:
        """Resumes from the record of a run with this identity; otherwise removes all files in it. True if resumed."""
        steps = _read(self._stream)
        end = 0
        for line_end, value in steps:
            if "files" in value:
                self._begun = [str(name) for name in value["files"]]
                self._names += self._begun
                continue
            if "ended" in value:
                self._begun = []
                self.ended.append(value["ended"])
            end = line_end
        if steps and steps[0][1] == header:
            self.undo()
            self._names = [name for name in self._names if name not in self._begun]
        else:
            self._begun = [*self._names, *(str(value["last"]) for _, value in steps[:1])]
            self.undo()
            self._names, self.ended, end = [], [], 0
        self._begun = []
        self._stream.truncate(end)
        return bool(end)

    def _check_unused(self, ours: Sequence[str]) -> None:
        kept = {name.split("/")[0] for name in ours}
        record = os.fstat(self._stream.fileno())
        for path in sorted(self._out.iterdir()):
            if path.name not in kept and not os.path.samestat(record, path.lstat()):
                raise ConflictError(
                    f"the output directory is not empty: it holds {path.name}",
                    where=str(self._out),
                    remedy="give another --out, or move away what is there",
                )

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
    if (out.exists() or out.is_symlink()) and not out.is_dir():
        raise ConflictError("the output is not a directory", where=str(out), remedy="give another --out")
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    record = out / record_name
    empty = True
    try:
        with locked(record) as stream:
            try:
                steps = Steps(out, stream, identity=identity, last=last)
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


def _read(stream: IO[bytes]) -> list[tuple[int, dict[str, Any]]]:
    """The lines of a record, each with its end offset in bytes. An incomplete line is ignored: the run was killed
    before it wrote the line's files."""
    stream.seek(0)
    steps: list[tuple[int, dict[str, Any]]] = []
    end = 0
    for line in stream.read(RECORD_LIMIT).splitlines(keepends=True):
        end += len(line)
        try:
            value = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict) or (not steps and not {"identity", "last"} <= value.keys()):
            break
        steps.append((end, value))
    return steps
