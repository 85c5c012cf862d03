"""`spanloom tasks`: the list as JSON, the files for Slurm, what is refused before anything is written."""

import json
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.cli.pipelines import tasks as tasks_module
from spanloom.cli.pipelines.tasks import SlurmOptions, _write_slurm
from spanloom.errors import ConflictError, SpanloomError
from spanloom.families.task_lists import task_list
from spanloom.tasks.listed import declared_parameters, listed_stages
from spanloom.tasks.stage import Stage, parameters_of
from support.killed import STRIDE, killed_before

GIVEN = ("synth_kd", "source_uri=s3://b/source", "dataset_root=s3://b/root", "--work", "s3://b/work")


MODEL = ("source_uri=s3://b/source", "model_uri=s3://b/model", "dataset_root=s3://b/root")


def test_the_list_has_a_stage_for_each_step_in_an_order_to_run_them(cli: Cli) -> None:
    done = cli("tasks", *GIVEN, "--shards", 7)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert (listed["pipeline"], listed["shards"]) == ("synth_kd", 7)
    assert [(stage["stage"], stage["count"]) for stage in listed["stages"]] == [
        ("verify-tokenizer", 1),
        ("render-shard", 7),
        ("assemble-split", 1),
        ("write-indexed", 7),
        ("assemble-manifest", 1),
        ("validate-shard", 7),
        ("assemble-validation", 1),
    ]
    before: set[str] = set()
    for stage in listed["stages"]:
        assert set(stage["after"]) <= before
        before.add(stage["stage"])


def test_local_places_are_absolute_since_jobs_run_elsewhere(cli: Cli, tmp_path: Path) -> None:
    done = cli("tasks", "synth_kd", "source_uri=source", "dataset_root=root", cwd=tmp_path)
    words = [word for stage in json.loads(done.stdout)["stages"] for word in stage["argv"]]
    for name in ("source", "root", "work/assemble-split/split"):
        assert str(tmp_path / name) in words


def test_a_stage_with_accelerators_asks_slurm_for_them(cli: Cli, tmp_path: Path) -> None:
    places = ("dataset_root=s3://b/root", "teacher_uri=s3://b/model", "signals_root=s3://b/signals")
    words = ("tasks", "teacher", *places, "--work", "s3://b/work", "--for", "slurm", "--out")
    one, two = ["--gres=gpu:1"], ["--gres=gpu:2"]
    for given, directives in (((), one), (("accelerators=2",), two), (("accelerators=",), [])):
        out = tmp_path / f"slurm{len(given)}{len(directives)}"
        assert cli(*words, out, *given).returncode == 0
        text = (out / "score-teacher.sbatch").read_text()
        assert [line.removeprefix("#SBATCH ") for line in text.splitlines() if "gres" in line] == directives
        assert "gres" not in (out / "join-teacher.sbatch").read_text()


def test_the_files_for_slurm_are_bash(cli: Cli, tmp_path: Path) -> None:
    out, venv = tmp_path / "slurm", tmp_path / "it's a venv"
    done = cli("tasks", *GIVEN, "--for", "slurm", "--out", out, "--venv", venv, "--sbatch=--partition=long")
    assert done.returncode == 0, done.stderr
    files = sorted(file.name for file in out.iterdir())
    assert files == [
        *("assemble-manifest.sbatch", "assemble-split.sbatch", "assemble-validation.sbatch", "render-shard.sbatch"),
        *("submit.sh", "validate-shard.sbatch", "verify-tokenizer.sbatch", "write-indexed.sbatch"),
    ]
    for file in files:
        subprocess.run(["bash", "-n", out / file], check=True)
    render = (out / "render-shard.sbatch").read_text()
    directives = [line.removeprefix("#SBATCH ") for line in render.splitlines() if line.startswith("#SBATCH ")]
    assert {"--array=0-3", "--requeue", "--cpus-per-task=8", "--mem=16384M", "--partition=long"} <= set(directives)
    command = next(line for line in render.splitlines() if "render-shard --shard" in line)
    assert shlex.split(command)[:5] == [str(venv / "bin/spanloom"), "step", "render-shard", "--shard", "$index"]
    assert "--array" not in (out / "assemble-split.sbatch").read_text()
    submit = (out / "submit.sh").read_text()
    assert "--dependency=aftercorr:${job_render_shard%%;*} write-indexed.sbatch" in submit
    after = "--dependency=afterok:${job_write_indexed%%;*},afterok:${job_assemble_split%%;*}"
    assert f"{after} assemble-manifest.sbatch" in submit

    other = cli("tasks", *GIVEN, "--for", "slurm", "--out", out)
    assert other.returncode == 1
    assert "the output directory is not empty: it holds" in other.stderr


def test_images_of_apptainer_take_the_place_of_an_environment(cli: Cli, tmp_path: Path) -> None:
    done = cli("tasks", *GIVEN, "--for", "slurm", "--out", tmp_path / "slurm", "--apptainer", "/images")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "slurm/render-shard.sbatch").read_text()
    assert "\napptainer exec /images/spanloom-render-shard_0.1.0.sif spanloom step render-shard --shard " in text


def test_without_another_one_the_environment_of_the_command_runs_the_steps(cli: Cli, tmp_path: Path) -> None:
    done = cli("tasks", *GIVEN, "--for", "slurm", "--out", tmp_path / "slurm")
    assert done.returncode == 0, done.stderr
    program = Path(sys.executable).parent / "spanloom"
    assert f"\n{program} step verify-tokenizer" in (tmp_path / "slurm/verify-tokenizer.sbatch").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("synth_kd", "source_uri=s"), 1, "the pipeline needs dataset_root"),
        (("synth_raw_to_kd", *GIVEN[1:3]), 1, "the pipeline needs raw_uri"),
        ((*GIVEN, "max_row=1"), 1, "the pipeline has no parameter 'max_row'"),
        ((*GIVEN, "render_memory=16"), 1, "'16' is not an amount of memory"),
        ((*GIVEN, "render_cpu=all"), 1, "'all' is not a number of CPUs"),
        ((*GIVEN, "--shards", 1025), 1, "1 to 1024 shards, not 1025"),
        ((*GIVEN, "--shards", 0), 2, "Invalid value for '--shards'"),
        (("synth",), 2, "'synth' is not one of"),
        (("packed_chat",), 1, "the pipeline needs conversations_uri, transcripts_uri, dataset_root"),
        (("packed_chat", "shards=2", "--shards", 2), 1, "the pipeline has no parameter 'shards'"),
        (("chess_games", "dataset_root=r", "--shards", 1025), 1, "1 to 1024 shards, not 1025"),
        ((*GIVEN, "work_uri=minio://b/w"), 1, "write s3://b/w, with the store's address in AWS_ENDPOINT_URL"),
        ((*GIVEN, "--for", "slurm"), 1, "the files for Slurm need a folder"),
        ((*GIVEN, "--for", "slurm", "--out", "o", "--sbatch", "long"), 1, "'long' is not an option of sbatch"),
        ((*GIVEN, "--for", "slurm", "--out", "o", "--venv", "v", "--apptainer", "i"), 1, "give one of them"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    cli: Cli, tmp_path: Path, arguments: tuple[object, ...], code: int, message: str
) -> None:
    done = cli("tasks", *arguments, cwd=tmp_path, COLUMNS="200")
    assert done.returncode == code
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_same_command_finishes_what_a_kill_left(tmp_path: Path) -> None:
    """Killed before changes of the file system; a folder with a file of somebody else is refused as before."""
    listed = task_list("harmony.task_list")
    stages = listed_stages(listed, parameters_of(GIVEN[1:3], declared_parameters(listed)), shards=2, work="s3://b/work")

    def write(folder: str) -> None:
        _write_slurm("synth_kd", stages, SlurmOptions(out=tmp_path / folder, venv=tmp_path / "venv"))

    def files(folder: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}

    write("whole")
    change = 1
    while killed_before(change, partial(write, f"{change}")):
        write(f"{change}")
        assert files(f"{change}") == files("whole")
        change += STRIDE
    assert change > 9, "it is killed before each of its files"
    (tmp_path / "1" / "render-shard.sbatch").write_text("somebody else's")
    with pytest.raises(ConflictError, match=r"it holds render-shard\.sbatch"):
        write("1")


def test_steps_of_another_commit_are_refused(cli: Cli, tmp_path: Path) -> None:
    """Their scripts name the commit: that of this command if it runs the steps, or the one that is given."""
    this, other = "1" * 40, "2" * 40
    for number, (options, expected) in enumerate(
        (
            ([], this),
            (["--git-sha", other], other),
            (["--venv", tmp_path], None),
            (["--apptainer", tmp_path], None),
            (["--apptainer", tmp_path, "--git-sha", other], other),
        )
    ):
        out = tmp_path / str(number)
        done = cli("tasks", *GIVEN, "--for", "slurm", "--out", out, *options, SPANLOOM_GIT_SHA=this)
        assert done.returncode == 0, done.stderr
        for file in out.glob("*.sbatch"):
            line = f"export SPANLOOM_EXPECTED_GIT_SHA={expected}\n"
            assert (line in file.read_text()) == (expected is not None), file
            assert expected is not None or "EXPECTED_GIT_SHA" not in file.read_text()
    done = cli("tasks", *GIVEN, "--for", "slurm", "--out", tmp_path / "dirty", SPANLOOM_GIT_SHA=f"{this}-dirty")
    assert done.returncode == 0, done.stderr
    assert "EXPECTED" not in (tmp_path / "dirty/verify-tokenizer.sbatch").read_text()
    done = cli("tasks", *GIVEN, "--for", "slurm", "--out", tmp_path / "none", "--git-sha", "main")
    assert done.returncode == 1
    assert "is no commit" in done.stderr
    assert not (tmp_path / "none").exists()
    script = tmp_path / "0/assemble-split.sbatch"
    done_step = subprocess.run(
        ["bash", script],
        env={**os.environ, "SPANLOOM_GIT_SHA": other, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done_step.returncode != 0
    assert f"the code here is of commit {other}" in done_step.stderr


def test_an_environment_that_cannot_validate_is_refused_before_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in one with `spanloom[data]` alone: all stages would run, and the last ones fail."""
    monkeypatch.setattr(tasks_module, "missing_packages", lambda: ["torch", "megatron"])

    def stages(pipeline: str, *words: str) -> list[Stage]:
        listed = tasks_module.list_of(pipeline, None)
        return listed_stages(listed, parameters_of(words, declared_parameters(listed)), shards=None, work="work")

    synth = stages("synth_kd", "source_uri=/s", "dataset_root=/r")
    with pytest.raises(SpanloomError, match=r"torch and megatron cannot be imported") as refused:
        _write_slurm("synth_kd", synth, SlurmOptions(out=tmp_path / "slurm"))
    assert "spanloom[megatron]" in str(refused.value.remedy)
    assert not (tmp_path / "slurm").exists()
    _write_slurm("synth_kd", synth, SlurmOptions(out=tmp_path / "nodes", venv=tmp_path / "venv"))
    chess = stages("chess_games", "dataset_root=/r", "games_uri=/g")
    _write_slurm("chess_games", chess, SlurmOptions(out=tmp_path / "chess"))
