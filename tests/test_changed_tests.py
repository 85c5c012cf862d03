"""Which tests `make check` runs: those of files that changed."""

import subprocess
from pathlib import Path, PurePath

import pytest

from support.cases import REPOSITORY
from support.changed_tests import FEW, changed_files, chosen_for, lines

FILES = {
    "src/spanloom/a/b.py": "",
    "src/spanloom/a/c.py": "",
    "src/spanloom/a/d/e.py": "",
    "src/spanloom/a/lonely.py": "",
    "src/spanloom/unknown/f.py": "",
    "tests/a/test_b.py": "",
    "tests/a/test_both.py": "from spanloom.a import b, c\n",
    "tests/a/test_inner.py": "import os\nfrom spanloom.a.d.e import x\n",
    "tests/test_far.py": "from spanloom.a.c import y\n",
    "tests/a/cases.json": "",
    "tests/a/test_cases.py": "from support.rows import row\n",
    "tests/support/rows.py": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("tests/a/test_b.py", ["tests/a/test_b.py"]),
        ("tests/a/test_gone.py", []),
        ("src/spanloom/a/b.py", ["tests/a/test_b.py"]),
        ("src/spanloom/a/c.py", ["tests/a/test_both.py"]),
        ("src/spanloom/a/d/e.py", ["tests/a/test_inner.py"]),
        ("src/spanloom/a/d/page.html", ["tests/a/test_inner.py"]),
        ("src/spanloom/unknown/f.py", []),
        ("tests/a/cases.json", ["tests/a/test_cases.py"]),
        ("tests/support/rows.py", ["tests/a/test_cases.py"]),
        ("docs/format.md", []),
        ("Makefile", []),
    ],
)
def test_the_tests_of_a_file(repository: Path, changed: str, expected: list[str]) -> None:
    assert [str(path) for path in chosen_for(repository, PurePath(changed))] == expected


def test_a_module_that_no_test_imports_has_the_tests_of_its_folder(repository: Path) -> None:
    for name in ("a/test_both.py", "a/test_inner.py", "test_far.py"):
        (repository / "tests" / name).write_text("import spanloom\n")
    beside = [f"tests/a/test_{name}.py" for name in ("b", "both", "cases", "inner")]
    assert [str(path) for path in chosen_for(repository, PurePath("src/spanloom/a/lonely.py"))] == beside
    assert len(beside) == FEW
    (repository / "tests/a/test_fifth.py").write_text("")
    assert chosen_for(repository, PurePath("src/spanloom/a/lonely.py")) == []


@pytest.mark.parametrize("changed", ["src/spanloom/a/c.py", "tests/support/rows.py"])
def test_what_many_tests_import_is_left_to_all_tests(repository: Path, changed: str) -> None:
    for number in range(FEW):
        text = "from spanloom.a.c import y\nfrom support.rows import row\n"
        (repository / f"tests/a/test_{number}.py").write_text(text)
    assert chosen_for(repository, PurePath(changed)) == []


def test_what_a_branch_changed_and_what_is_not_committed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "first")
    git("checkout", "-b", "branch")
    (repository / "src/spanloom/a/b.py").write_text("1")
    git("commit", "-am", "committed")
    (repository / "src/spanloom/a/c.py").unlink()
    (repository / "new file").write_text("")
    assert list(map(str, changed_files(repository, "HEAD"))) == ["new file", "src/spanloom/a/c.py"]
    git("checkout", "main")
    git("commit", "--allow-empty", "-m", "later, on main")
    git("checkout", "branch")
    assert list(lines(repository, "main")) == ["tests/a/test_b.py", "tests/a/test_both.py"]
    assert capsys.readouterr().err == "left to `make test`: new file\n"


def test_test_files_that_mirror_a_module_are_found_here() -> None:
    lock = chosen_for(REPOSITORY, PurePath("src/spanloom/dataset/root/lock.py"))
    assert [str(path) for path in lock] == ["tests/dataset/root/test_lock.py"]
