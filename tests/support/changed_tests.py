"""The tests of what changed, for `make check`: each that mirrors a changed file, or else imports it from near.

In: a git revision. Out: on stdout the test files, a line each; on stderr the changed files that have none.

    src/spanloom/dataset/root/lock.py    tests/dataset/root/test_lock.py. If there were none: what imports `lock` in
                                         tests/dataset/root/, tests/dataset/ or tests/, the first that has some; then
                                         the same for its package, `root`; then all of tests/dataset/root/
    tests/support/traces.py              what imports it
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

SOURCES, TESTS = PurePath("src/spanloom"), PurePath("tests")
FEW = 4
"""More test files would take more than a minute: they are left to `make test`."""


def changed_files(repository: Path, since: str) -> list[PurePath]:
    """What differs from where this branch left `since`: committed or not, new, removed."""
    names: set[str] = set()
    for command in (f"diff --name-only --no-renames --merge-base {since}", "ls-files --others --exclude-standard"):
        git = ["git", *command.split(), "-z"]
        done = subprocess.run(git, cwd=repository, stdout=subprocess.PIPE, text=True)
        if done.returncode:  # git said why
            sys.exit(done.returncode)
        names.update(filter(None, done.stdout.split("\0")))
    return [PurePath(name) for name in sorted(names)]


def chosen_for(repository: Path, changed: PurePath) -> list[PurePath]:
    """The test files of one changed file, which may be gone."""
    if changed.is_relative_to(TESTS) and changed.name.startswith("test_"):
        return [changed] if (repository / changed).is_file() else []
    if changed.is_relative_to(TESTS / "support"):
        importing = _importing(repository, f"support.{changed.stem}", TESTS, "**/test_*.py")
        return importing if len(importing) <= FEW else []
    root = TESTS if changed.is_relative_to(TESTS) else SOURCES
    if not changed.is_relative_to(root):
        return []
    module = changed.relative_to(root).with_suffix("")
    for name in (module, *module.parents[:-1]):
        mirror = TESTS / name.with_name(f"test_{name.name}.py")
        if (repository / mirror).is_file():
            return [mirror]
        for folder in (TESTS / name.parent, *(TESTS / name.parent).parents[:-1]) if root == SOURCES else ():
            if importing := _importing(repository, ".".join(("spanloom", *name.parts)), folder, "test_*.py"):
                return importing if len(importing) <= FEW else []
    beside = [PurePath(path.relative_to(repository)) for path in (repository / TESTS / module.parent).glob("test_*.py")]
    return sorted(beside) if root == SOURCES and len(beside) <= FEW else []


def _importing(repository: Path, module: str, folder: PurePath, pattern: str) -> list[PurePath]:
    """The files of a folder that import a module, or one inside of it."""
    package, _, name = module.rpartition(".")
    of_package = rf"from {re.escape(package)} import .*\b{name}\b"
    imports = re.compile(rf"^\s*((from|import) {re.escape(module)}\b|{of_package})", re.MULTILINE)
    paths = sorted((repository / folder).glob(pattern))
    return [PurePath(path.relative_to(repository)) for path in paths if imports.search(path.read_text())]


def lines(repository: Path, since: str) -> Iterator[str]:
    """The test files of all that changed."""
    tests: set[PurePath] = set()
    for changed in changed_files(repository, since):
        tests.update(own := chosen_for(repository, changed))
        if not own:
            print(f"left to `make test`: {changed}", file=sys.stderr)
    yield from sorted(map(str, tests))


if __name__ == "__main__":
    print(*lines(Path.cwd(), sys.argv[1]), sep="\n")
