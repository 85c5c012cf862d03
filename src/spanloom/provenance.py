"""The provenance of a dataset: canonical JSON, hashes, the code's git SHA, versions, the machine.

In: values, the installed package, the environment. Out: strings and dictionaries for a manifest.
"""

import getpass
import hashlib
import json
import os
import platform
import re
import socket
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from spanloom.errors import SpanloomError

GIT_SHA_VARIABLE = "SPANLOOM_GIT_SHA"
IMAGE_VARIABLE = "SPANLOOM_IMAGE"
EXPECTED_SHA_VARIABLE = "SPANLOOM_EXPECTED_GIT_SHA"
"""The commit of the images that a pipeline was compiled for, where they are pinned: a variable of its tasks."""

UNKNOWN_SHA = "unknown"


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value: keys sorted, no spaces, UTF-8, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def readable_json(value: Any) -> bytes:
    """JSON for readers: two spaces of indent, keys in the writer's order, a final newline."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def sha256_json(value: Any) -> str:
    """Hex sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


@cache
def git_sha() -> str:
    """The commit of this code: 40 hex digits, `…-dirty` with local changes, or `unknown`.

    An image has it in SPANLOOM_GIT_SHA, a wheel in a file; in a checkout git reports it.
    """
    if stated := os.environ.get(GIT_SHA_VARIABLE):
        return stated
    package = Path(__file__).parent
    baked = package / "_git_sha.txt"
    if baked.is_file():
        return baked.read_text().strip()

    def git(*arguments: str) -> str:
        return subprocess.run(
            # Without a lock: `git status` would write the index, and stop a commit that is made meanwhile.
            ["git", "--no-optional-locks", "-C", str(package), *arguments],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    try:
        # Inside another project's repository git reports that project's commit, so this file must be tracked.
        git("ls-files", "--error-unmatch", "provenance.py")
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN_SHA


def check_code() -> dict[str, str]:
    """The commit of this code. Raises SpanloomError if the pipeline was compiled for images of another one."""
    expected = os.environ.get(EXPECTED_SHA_VARIABLE)
    if expected and expected != git_sha():
        raise SpanloomError(
            f"the code here is of commit {git_sha()}, the pipeline was compiled for {expected}",
            remedy="run `make images push compile` in one checkout, and submit the YAML that it writes; for Slurm, "
            "write the scripts again by `spanloom tasks` of the code on the nodes",
        )
    return {"git_sha": git_sha()}


def require_git_sha(*, allow_unknown: bool) -> str:
    """`git_sha()`, or an error when it is unknown and that was not allowed."""
    sha = git_sha()
    if not re.fullmatch(f"[0-9a-f]{{40}}(-dirty)?|{UNKNOWN_SHA}", sha):
        raise SpanloomError(
            f"{sha!r} is not a git SHA: expected 40 hex digits, with -dirty after them where the code was changed",
            remedy=f"set {GIT_SHA_VARIABLE} to `git rev-parse HEAD`, or unset it",
        )
    if sha == UNKNOWN_SHA and not allow_unknown:
        raise SpanloomError(
            "the git SHA of this Spanloom is unknown, so the dataset could not name the code that made it",
            remedy=f"install from a checkout or a released wheel, set {GIT_SHA_VARIABLE}, or pass --allow-unknown-sha",
        )
    return sha


@cache
def code_sha256(family: str) -> str:
    """Hash over the package's own sources: shows a resumed build that the code changed, even between commits.

    `family`: name of its folder under `families/`. The code of the other families does not count: a change there must
    not discard what this one has half done.
    """
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for source in sorted(package.rglob("*.py")):
        parts = source.relative_to(package).parts
        if parts[0] == "families" and len(parts) > 2 and parts[1] != family:
            continue
        digest.update("/".join(parts).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def part_identity(family: str, *libraries: str, **decides: Any) -> dict[str, Any]:
    """What the bytes of a part depend on, so that an unfinished run takes no part of other code.

    `decides`: config, source and place of the part; `libraries`: those that touch its bytes. Added to them: the
    sources of the family, and the versions of Python and these libraries.
    """
    known = library_versions(*libraries)
    versions = {name: known[name] for name in ("python", *libraries)}
    return {**decides, "code_sha256": code_sha256(family), "libraries": versions}


def part_key(family: str, *libraries: str, **decides: Any) -> str:
    """The hash of `part_identity`: the one key of parts that are kept when a run stops."""
    return sha256_json(part_identity(family, *libraries, **decides))


def library_versions(*more: str) -> dict[str, str | None]:
    """Versions of the libraries that touch the bytes or check them, `more` of a family's own; null: not installed."""
    names = ("spanloom", "openai-harmony", "tiktoken", "fastokens", "pyarrow", "numpy", "megatron-core", "torch", *more)
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


@cache
def _version(name: str) -> str | None:
    """Of an installed distribution. Its files are read once: the key of each part asks for several."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def built_by() -> str:
    """`user@host`; in a pod, host is the pod's name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a numeric user of a container has no name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def machine() -> dict[str, Any]:
    """What the build ran on."""
    return {"system": platform.system(), "architecture": platform.machine(), "cpus": os.cpu_count()}


def environment_here(more: dict[str, Any] | None = None) -> dict[str, Any]:
    """A manifest's `environment`: when, where and with what. It differs from run to run and decides nothing."""
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "libraries": library_versions(),
        "image": os.environ.get(IMAGE_VARIABLE),
        "machine": machine(),
        "built_by": built_by(),
        **(more or {}),
    }
