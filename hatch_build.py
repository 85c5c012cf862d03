"""Build hook: bakes the git SHA into wheel and source distribution.

A dataset that an installed package builds names its code by it.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GitShaHook(BuildHookInterface):
    """Writes `spanloom/_git_sha.txt` for the build and removes it from the checkout again."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`SPANLOOM_GIT_SHA` wins (images are built without .git); an editable install asks git at run time instead."""
        if version == "editable":
            return
        self._path = Path(self.root, "src", "spanloom", "_git_sha.txt")
        self._ours = not (Path(self.root, "PKG-INFO").is_file() and self._path.is_file())
        if not self._ours:  # an unpacked source distribution has the SHA; git would name a repository around it
            return
        self._path.write_text((os.environ.get("SPANLOOM_GIT_SHA") or self._from_checkout() or "unknown") + "\n")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable" and self._ours:
            self._path.unlink(missing_ok=True)

    def _from_checkout(self) -> str | None:
        def git(*arguments: str) -> str:
            return subprocess.run(
                ["git", "-C", self.root, *arguments], check=True, capture_output=True, text=True
            ).stdout.strip()

        try:
            sha = git("rev-parse", "HEAD")
            return sha + ("-dirty" if git("status", "--porcelain", "--", "src", "pyproject.toml") else "")
        except (OSError, subprocess.CalledProcessError):
            return None
