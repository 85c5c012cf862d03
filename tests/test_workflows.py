"""The workflows under .github: safe by zizmor, pinned, with least permissions, made of the Makefile's verbs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]
WORKFLOWS = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))


def zizmor(*paths: Path) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).parent / "zizmor"
    options = ("--offline", "--no-progress", "--persona=pedantic", "--strict-collection", "--format=plain")
    return subprocess.run([program, *options, *paths], capture_output=True, text=True, check=False)


def load(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_zizmor_finds_nothing() -> None:
    result = zizmor(REPOSITORY / ".github")
    assert result.returncode == 0, result.stdout + result.stderr


def test_zizmor_would_find_a_mutable_action_and_an_injection(tmp_path: Path) -> None:
    bad = tmp_path / ".github/workflows/bad.yml"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "on: issues\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - uses: actions/checkout@v6\n"
        '      - run: echo "${{ github.event.issue.title }}"\n'
    )
    result = zizmor(bad)
    assert result.returncode != 0
    assert "unpinned-uses" in result.stdout
    assert "template-injection" in result.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_nothing_is_permitted_but_what_a_job_asks_for(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        writes = {name for name, right in job["permissions"].items() if right == "write"}
        assert job["permissions"].keys() - writes <= {"contents"}
        # Whoever can push images cannot make a release or publish, and only a release workflow can do any of it. A job
        # with an identity of its own writes nothing but what it signs.
        assert path.name == "release.yml" or not writes
        assert len(writes - {"id-token"}) <= 1
        assert "id-token" not in writes or writes <= {"id-token", "attestations"}


def test_the_package_is_published_after_the_release_and_as_it_was_attested() -> None:
    jobs = load(REPOSITORY / ".github/workflows/release.yml")["jobs"]
    assert jobs["pypi"]["needs"] == "release"
    assert jobs["release"]["needs"] == ["images", "attest"]
    built = {job["steps"][0]["with"]["name"] for job in (jobs["attest"], jobs["pypi"])}
    assert built == {jobs["package"]["steps"][-1]["with"]["name"]} == {"package"}
    assert not any("run" in step for job in ("attest", "pypi") for step in jobs[job]["steps"])


def test_each_action_is_pinned_to_one_commit_with_its_version_beside_it() -> None:
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for line in re.findall(r"uses: (.*)", path.read_text()):
            if line.startswith("./"):
                continue
            pinned = re.fullmatch(r"([\w/-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+", line)
            assert pinned, line
            pins.setdefault(pinned[1], set()).add(pinned[2])
    assert "actions/checkout" in pins
    assert {action: commits for action, commits in pins.items() if len(commits) > 1} == {}


def test_workflows_run_verbs_that_the_makefile_has() -> None:
    makefiles = [REPOSITORY / name for name in ("Makefile", "tests/tests.mk", "docker/docker.mk")]
    verbs = {verb for file in makefiles for verb in re.findall(r"^([a-z-]+):", file.read_text(), re.MULTILINE)}
    scripts = [
        step["run"]
        for path in WORKFLOWS
        for job in load(path)["jobs"].values()
        for step in job.get("steps", [])
        if "run" in step
    ]
    used = {verb for script in scripts for call in re.findall(r"\bmake ([a-z -]+)", script) for verb in call.split()}
    assert used >= {"lint", "types", "test", "images", "smoke", "smoke-train", "pipeline-local"}
    assert used <= verbs
