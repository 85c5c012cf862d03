"""The hash of the code, by which a resumed build knows whether parts that stand are those that it would make."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spanloom
from spanloom import provenance


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, to be changed."""
    copy = tmp_path_factory.mktemp("copy") / "spanloom"
    return Path(shutil.copytree(Path(spanloom.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__")))


def code_hash(package: Path, family: str) -> str:
    """The hash over the copy: it is taken once a process."""
    code = f"from spanloom import provenance; print(provenance.__file__, provenance.code_sha256({family!r}))"
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    place, digest = done.stdout.split()
    assert Path(place).parent == package
    return digest


@pytest.mark.parametrize(
    ("folder", "counts"),
    [("families/harmony", True), (".", True), ("families", True), ("dataset", True), ("families/chess", False)],
)
def test_the_code_of_a_family_and_all_that_is_shared_count_and_other_families_do_not(
    package: Path, folder: str, counts: bool
) -> None:
    before = code_hash(package, "harmony")
    changed = sorted((package / folder).glob("*.py"))[0]
    text = changed.read_text("utf-8")
    changed.write_text(f"{text}# changed\n", "utf-8")
    after = code_hash(package, "harmony")
    changed.write_text(text, "utf-8")
    assert (after != before) is counts
    assert code_hash(package, "harmony") == before


def test_the_key_of_a_part_changes_with_what_it_is_made_of_code_and_libraries(package: Path) -> None:
    def key(*libraries: str, family: str = "models", **decides: object) -> str:
        call = f"provenance.part_key({family!r}, *{libraries!r}, **{decides!r})"
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        code = f"from spanloom import provenance; print({call})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip()

    first = key("numpy", config={"a": 1}, source="s")
    assert key("numpy", source="s", config={"a": 1}) == first
    others = [
        key("numpy", config={"a": 2}, source="s"),
        key("numpy", config={"a": 1}, source="t"),
        key("pyarrow", config={"a": 1}, source="s"),
        key("numpy", family="chess", config={"a": 1}, source="s"),
    ]
    changed = package / "families/models/model.py"
    changed.write_text(f"{changed.read_text('utf-8')}# changed\n", "utf-8")
    others.append(key("numpy", config={"a": 1}, source="s"))
    assert len({first, *others}) == 6


def test_asking_git_takes_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git status` would write the index: a commit that is made meanwhile fails, and a kill leaves `index.lock`."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True, text=True).stdout

    module = tmp_path / "provenance.py"
    module.write_text("")
    git("init", "-q")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    os.utime(module, (1, 1))  # git would note the new time
    index = (tmp_path / ".git/index").read_bytes()
    monkeypatch.delenv(provenance.GIT_SHA_VARIABLE)
    monkeypatch.setattr(provenance, "__file__", str(module))
    assert provenance.git_sha.__wrapped__() == git("rev-parse", "HEAD").strip()
    assert (tmp_path / ".git/index").read_bytes() == index
