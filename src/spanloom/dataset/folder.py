"""What the shared commands ask of data that is no token dataset but a folder with a manifest of a schema of its own.

Such a schema has the sections `content` and `environment`, and in `content` the `shards` with their files, as every
manifest. `spanloom.families.data_folder` finds the module by the `schema_version`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spanloom.dataset.manifest import Check
from spanloom.findings import Report
from spanloom.storage.scratch import Scratch


class DataFolder(Protocol):
    """The functions of `families/NAME/root.py`."""

    @property
    def check(self) -> Check[dict[str, Any]]:
        """The check of the manifest's schema."""

    @property
    def WHAT(self) -> str:
        """What these data are, for who took them for a token dataset."""

    @property
    def INSTEAD(self) -> Mapping[str, str]:
        """Commands that are for token datasets alone, each with what to do instead, such as `stats`."""

    def stage_source(self, scratch: Scratch, place: str) -> Path:
        """What the folder was made from, on this machine: a local place as it is, a remote one staged."""

    def validate(self, root: Path, sources: Sequence[Path], deep: int | None) -> Report:
        """The findings in the folder, with a manifest or a pending one; `deep`: items of each file checked against
        the places it was made from, None for the default."""

    def report_page(self, root: Path, report: Report, called: str) -> str:
        """The findings, and what the folder holds, as a page."""

    def sample_lines(self, root: Path, *, count: int, seed: int, split: str) -> Iterator[str]:
        """Samples drawn for people, on a terminal."""

    def sample_page(self, root: Path, title: str, *, count: int, seed: int, split: str) -> str:
        """The same as a page."""

    def summary(self, content: Mapping[str, Any]) -> Mapping[str, str]:
        """name → line: what `manifest show` tells."""
