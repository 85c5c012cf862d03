"""The options of how a build runs, which all families share."""

from dataclasses import dataclass
from pathlib import Path

from spanloom.building.shards.ids import check_on_duplicate
from spanloom.conversations.source.rejects import reject_limit
from spanloom.errors import SpanloomError
from spanloom.megatron.readers import ReaderChoice, chosen_reader
from spanloom.options.shared import RunningOptions
from spanloom.provenance import require_git_sha


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunningOptions):
    """How a build runs. Nothing here changes the files of a finished dataset.

    max_rejects   how many rows of a shard may be refused: a number, or a share such as `0.1%`. They are written to
                  `rejects/`. None: any number, and they are only counted
    on_duplicate  `error` or `keep`: what becomes of rows that repeat an id
    workers       None chooses by rows, CPUs and memory
    deep          how many rows validation makes again
    resume        go on with an unfinished build of the same options; False discards what any unfinished build left
    overwrite     replace a finished dataset; it stays until the new one is validated
    keep_work     keep the intermediates
    reuse         the root of an earlier dataset: shards that are made of the same are taken from it
    disk_check    stop before any work if the disk seems too small
    """

    max_rejects: str | None = "0"
    on_duplicate: str = "error"
    deep: int = 0
    reader: ReaderChoice = "auto"
    reuse: Path | None = None

    def check(self) -> None:
        """Raises SpanloomError for an invalid option, an unknown git SHA, or a reader that is not installed."""
        if self.workers is not None and self.workers < 1:
            raise SpanloomError(f"--workers must be at least 1, not {self.workers}")
        check_on_duplicate(self.on_duplicate)
        if self.max_rejects is not None:
            reject_limit(self.max_rejects, 0)
        require_git_sha(allow_unknown=self.allow_unknown_sha)
        chosen_reader(self.reader)
