"""The interface of data folders that are not token datasets, for the shared commands.

The manifest of such a folder has a schema of its own. Like every manifest, it has the sections `content` and
`environment`, and in `content` the `shards` with their files.
`spanloom.families.data_folder` finds the module by the `schema_version`.
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
        """What these data are, for a message to a user who expected a token dataset."""

    @property
    def INSTEAD(self) -> Mapping[str, str]:
        """Commands for token datasets only, such as `stats`, each with what to do instead."""

    def stage_source(self, scratch: Scratch, place: str) -> Path:
        """The local path of the folder's source: a local place itself, a remote one downloaded."""

    def validate(self, root: Path, sources: Sequence[Path], deep: int | None) -> Report:
        """Validates the folder, finished or pending. `deep`: how many items of each file are checked against the
        sources; None for the default."""

    def report_page(self, root: Path, report: Report, called: str) -> str:
        """A page with the findings and the content of the folder."""

    def sample_lines(self, root: Path, *, count: int, seed: int, split: str) -> Iterator[str]:
        """Randomly drawn samples, rendered for a terminal."""

    def sample_page(self, root: Path, title: str, *, count: int, seed: int, split: str) -> str:
        """Randomly drawn samples as a page."""

    def summary(self, content: Mapping[str, Any]) -> Mapping[str, str]:
        """name → line, for `manifest show`."""
