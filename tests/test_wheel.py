"""The wheel without extras, in an environment of its own: what the README shows works without Megatron and torch.

The environment has the wheel, and links to the installed packages that its metadata asks for, with what these need:
no package index is asked, and a dependency that is not declared is not there.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from conftest import REPOSITORY
from support.nightly import drawn

Run = Callable[..., "subprocess.CompletedProcess[str]"]
README = (REPOSITORY / "README.md").read_text()


def needed(name: str, extras: frozenset[str] = frozenset(), seen: set[str] | None = None) -> set[str]:
    """The distributions that an installation of `name` brings, itself among them."""
    seen = set() if seen is None else seen
    if name not in seen:
        seen.add(name)
        for line in distribution(name).requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                needed(wanted.name, frozenset(wanted.extras), seen)
    return seen


PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
OFFLINE = ["--no-deps", "--no-index", "--no-build-isolation", "-q"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made as `make wheel` makes it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # the build writes the git SHA beside the sources, where other tests look
    source.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src"):
        (source / name).symlink_to(REPOSITORY / name) if name != "src" else copy_sources(source / name)
    subprocess.run(
        [*PIP, "wheel", *OFFLINE, "--wheel-dir", str(folder), str(source)],
        check=True,
        env={**os.environ, "SPANLOOM_GIT_SHA": "0" * 40},
    )
    (wheel,) = folder.glob("spanloom-*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("environment"))


def installed(wheel: Path, folder: Path, extras: frozenset[str] = frozenset()) -> Path:
    """A virtual environment with the wheel, its dependencies, and those of extras."""
    root = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    subprocess.run([*PIP, "--python", str(root / "bin/python"), "install", *OFFLINE, str(wheel)], check=True)
    (packages,) = root.glob("lib/python*/site-packages")
    for name in needed("spanloom", extras) - {"spanloom"}:
        for top in {file.parts[0] for file in distribution(name).files or () if file.parts[0] not in ("..", "bin")}:
            place = Path(str(distribution(name).locate_file(top)))
            if place.exists() and not (packages / top).exists():
                (packages / top).symlink_to(place)
    return root


def copy_sources(destination: Path) -> None:
    """The package's files as git knows them, so that no build of another test is among them."""
    listed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files", "-co", "--exclude-standard", "src"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in listed.splitlines():
        if (REPOSITORY / name).is_file():
            place = destination.parent / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(REPOSITORY / name)


@pytest.fixture(scope="module")
def run(environment: Path, asset: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program of the environment in a folder that has `docs/` and the tokenizer in the user's cache."""
    return running(environment, asset, tmp_path_factory.mktemp("away"))


def running(environment: Path, asset: Path, folder: Path) -> Run:
    (folder / "docs").symlink_to(REPOSITORY / "docs")
    (folder / "data").mkdir()
    cache = folder / "cache/spanloom"
    cache.mkdir(parents=True)
    (cache / asset.name).symlink_to(asset)
    left_out = ("PYTHON", "SPANLOOM", "O200K", "TIKTOKEN")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}

    def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [str(environment / "bin" / program), *arguments],
            cwd=folder,
            env={**clean, "XDG_CACHE_HOME": str(folder / "cache")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done

    run.folder = folder  # type: ignore[attr-defined]
    return run


def shown(heading: str, page: str = README) -> list[list[str]]:
    """The `spanloom` commands under a heading of a page."""
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line.split()[1:] for line in re.findall(r"^(?:\.venv/bin/)?(spanloom .*)$", section, flags=re.MULTILINE)]


@pytest.fixture(scope="module")
def dataset(run: Run) -> Path:
    """The dataset of the README's conversations."""
    printed = ""
    for arguments in shown("Other data"):
        printed += run("spanloom", *arguments).stdout
    assert "read by Spanloom's independent reader, not by Megatron's" in printed
    return Path(run.folder, "data/demo/chat")  # type: ignore[attr-defined]


def test_a_dataset_is_built_without_megatron_and_torch_reads_it(run: Run, dataset: Path) -> None:
    names = "torch", "megatron", "tokenizers"
    found = run("python", "-c", f"from importlib.util import find_spec; print(*map(find_spec, {names}))")
    assert found.stdout.split() == ["None"] * len(names)

    manifest = json.loads((dataset / "manifest.json").read_bytes())
    assert manifest["environment"]["reader"] == "independent"
    assert manifest["environment"]["libraries"]["megatron-core"] is None
    assert "validated through Spanloom's independent reader" in (dataset / "README.md").read_text()
    assert "Spanloom&#39;s independent reader" in (dataset / "report.html").read_text()

    from spanloom.dataset.validate.dataset import validate_dataset
    from spanloom.families import dataset_family
    from spanloom.training import DocumentDataset

    report = validate_dataset(dataset, dataset_family("harmony_chat"), reader="megatron")
    assert report.clean, "Megatron's own reader finds nothing either"
    documents = DocumentDataset(dataset)
    assert len(documents) == manifest["content"]["totals"]["splits"]["train"]["sequences"]
    tokens = run(
        "python",
        "-c",
        "import spanloom; print(*[len(one) for one in spanloom.open_dataset('data/demo/chat', split='train')])",
    )
    assert [sample["tokens"].numel() for sample in documents] == [int(word) for word in tokens.stdout.split()]


@pytest.mark.nightly
def test_the_other_commands_work_and_datasets_reads_the_export(run: Run, dataset: Path) -> None:
    from datasets import load_dataset

    for arguments in (
        ("validate", "--source", "data/demo/chat_source", "--deep", "100"),
        ("stats", "--by", "split"),
        ("blend",),
        ("plan", "--sequence-length", "1024", "--out", "data/plan"),
        ("export", "--to", "parquet", "--out", "data/parquet"),
        ("export", "--to", "trl", "--out", "data/trl"),
        ("export", "--to", "megatron-bridge", "--sequence-length", "1024", "--out", "data/packed"),
    ):
        run("spanloom", arguments[0], "data/demo/chat", *arguments[1:])
    trl = load_dataset(str(dataset.parent.parent / "trl"), split="train")
    totals = json.loads((dataset / "manifest.json").read_bytes())["content"]["totals"]["splits"]["train"]
    assert trl.num_rows == totals["sequences"]
    assert sum(map(len, trl["input_ids"])) == totals["tokens"]


@pytest.mark.nightly
def test_raw_rows_go_through(run: Run) -> None:
    heading = "Rows of question, reasoning and answer"
    page = (REPOSITORY / "docs/families/harmony.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page.split(f"## {heading}\n")[1], flags=re.DOTALL)[:1]
    run("python", "-c", snippet)
    for arguments in shown(heading, page):
        run("spanloom", *arguments)
    assert Path(run.folder, "data/mine_kd/manifest.json").is_file()  # type: ignore[attr-defined]


def test_the_quickstart_goes_through_with_the_extra_that_it_installs(wheel: Path, tmp_path: Path, asset: Path) -> None:
    """`model fetch` needs a network: a small model of our own is in the place of Qwen3. By night it is pasted twice."""
    from datasets import load_dataset

    made = tmp_path / "made"
    made.mkdir()
    fetch, *commands = shown("Quickstart: your chat file, Qwen3, TRL")
    assert fetch[:2] == ["model", "fetch"]
    assert len(commands) == 4
    run = running(installed(wheel, made, frozenset({"data"})), asset, tmp_path)
    run("spanloom", "model", "sample", "--out", "data/models/sample")
    (tmp_path / "data/models/qwen3").symlink_to(tmp_path / "data/models/sample/model")
    (tmp_path / "chat.jsonl").write_bytes((tmp_path / "data/models/sample/chat.jsonl").read_bytes())
    for _ in range(drawn(nightly=2, otherwise=1)):
        for arguments in commands:
            run("spanloom", *arguments)
    content = json.loads((tmp_path / "dataset/manifest.json").read_bytes())["content"]
    rows = load_dataset(str(tmp_path / "trl"), split="train", cache_dir=str(tmp_path / "cache"))
    assert rows.num_rows == content["totals"]["splits"]["train"]["sequences"] > 0
    assert (tmp_path / "dataset.html").is_file()
