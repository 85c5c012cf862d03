"""`spanloom tasks`: a pipeline as a list of stages, as JSON or for Slurm."""

import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from spanloom.cli.app import PIPELINE, app, print_json, say
from spanloom.errors import SpanloomError
from spanloom.families.task_lists import task_list
from spanloom.megatron.official import missing_packages
from spanloom.options.option import option, place
from spanloom.provenance import git_sha
from spanloom.storage import clear_temporaries_of, is_regular, write_atomically
from spanloom.storage.folders.filling import check_unused
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.tasks.listed import REGISTRY, declared_parameters, listed_stages
from spanloom.tasks.sizes import SCRATCH
from spanloom.tasks.slurm import in_apptainer, in_environment, slurm_files
from spanloom.tasks.stage import Stage, mebibytes, parameters_of, scratch_size, whole_cpus

LISTS = {
    "synth_kd": "harmony.task_list",
    "synth_raw_to_kd": "harmony.convert.task_list",
    "packed_chat": "chat.task_list",
    "chess_games": "chess.task_list",
    "toolcalls_dataset": "toolcalls.task_list",
    "traces_dataset": "traces.task_list",
    "model_chat": "models.task_list",
    "harmony_chat": "harmony.chat_task_list",
    "teacher": "teacher_task_list",
}
"""Pipeline → its task list in families/."""

BY_SHARD = ("packed_chat", "toolcalls_dataset", "traces_dataset", "model_chat")
"""Pipelines whose list has one task for the dataset, and another list with a task for each shard."""


Pipeline = Annotated[
    Literal[
        "synth_kd",
        "synth_raw_to_kd",
        "packed_chat",
        "chess_games",
        "toolcalls_dataset",
        "traces_dataset",
        "model_chat",
        "harmony_chat",
        "teacher",
    ],
    typer.Argument(metavar="PIPELINE", help="Which pipeline: a YAML file of pipelines/ has its name."),
]
Parameters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE...",
        help="Parameters of the pipeline, by the names that they have on Kubeflow; for SYNTH KD `source_uri` and "
        "`dataset_root` (and `raw_uri`) must be given.",
    ),
]


def list_of(pipeline: str, shards: int | None) -> Any:
    """The task list of a pipeline: with a number of shards, the one with a task for each."""
    listed = task_list(LISTS[pipeline])
    return listed if shards is None or pipeline not in BY_SHARD else listed.BY_SHARD


_COMMIT = re.compile("[0-9a-f]{40}")
_READ_BY_MEGATRON = frozenset({"validate-alignment", "validate-shard"})
"""Steps that read a dataset through Megatron's own reader."""


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """Where Slurm's files go, and how its jobs run."""

    out: Annotated[Path | None, option("Slurm: a new folder for the batch scripts, submit.sh and their logs.")] = None
    venv: Annotated[
        Path | None, option("Slurm: the virtual environment on the nodes. Default: that of this command.")
    ] = None
    apptainer: Annotated[
        Path | None, option("Slurm: a folder of images as `apptainer pull` makes them, instead of an environment.")
    ] = None
    git_sha: Annotated[
        str | None,
        option(
            "Slurm: the commit of the code on the nodes; steps of another one are refused. Default: that of this "
            "command, if it runs the steps and its commit is known; else any.",
            metavar="SHA",
        ),
    ] = None
    sbatch: Annotated[
        list[str] | None,
        option("Slurm: an option for every job, such as --sbatch=--partition=long. Repeatable.", metavar="OPTION"),
    ] = None


@app.command(rich_help_panel=PIPELINE)
def tasks(
    *,
    pipeline: Pipeline,
    parameters: Parameters = None,
    work: Annotated[
        str, place("Folder or URI for what passes between steps; new for each dataset, and shared by all nodes.")
    ] = "work",
    shards: Annotated[
        int | None,
        option(
            "Tasks of each stage that is run once a shard; a source in shards must have as many. Default: 4, or for "
            f"{', '.join(BY_SHARD)} one task that makes all shards.",
            min=1,
        ),
    ] = None,
    registry: Annotated[str | None, option("Registry of the images. Default: ghcr.io/spanloom.")] = None,
    scratch: Annotated[
        str | None, option(f"Scratch space of a task: the value of `scratch` in the list. Default: {SCRATCH}.")
    ] = None,
    engine: Annotated[
        Literal["json", "slurm"], option("json: the list on stdout. slurm: files under --out.", "--for")
    ] = "json",
    slurm: SlurmOptions,
) -> None:
    """List the tasks of a pipeline: commands, sizes and order. Kubeflow's pipelines run the same.

    `{index}` in a command is the number of the task, from 0. With `--for slurm`, `submit.sh` submits a job array for
    each stage.

    Example: `spanloom tasks synth_kd source_uri=/data/synth_harmony dataset_root=/data/synth_kd --work /data/work
    --for slurm --out slurm`
    """

    def absolute(where: str) -> str:
        if is_uri(where):
            parse_uri(where)  # raises for an invalid URI before any task runs
        return where if is_uri(where) or not where else str(Path(where).absolute())

    listed = list_of(pipeline, shards)
    values = parameters_of(parameters or [], declared_parameters(listed))
    values |= {name: absolute(value) for name, value in values.items() if name.endswith(("_uri", "_root"))}
    places = {"work": absolute(work), "registry": registry or REGISTRY, "scratch": scratch_size(scratch or SCRATCH)}
    stages = listed_stages(listed, values, shards=shards, **places)
    for stage in stages:
        whole_cpus(stage.cpu)
        mebibytes(stage.memory)
    if engine == "json":
        shards = max(stage.count for stage in stages)
        print_json({"pipeline": pipeline, "shards": shards, "stages": [stage.as_dict() for stage in stages]})
        return
    _write_slurm(pipeline, stages, slurm)


def _write_slurm(pipeline: str, stages: Sequence[Stage], slurm: SlurmOptions) -> None:
    """Writes the batch scripts and submit.sh."""
    if slurm.out is None:
        raise SpanloomError("the files for Slurm need a folder", remedy="give --out DIR")
    if slurm.venv is not None and slurm.apptainer is not None:
        raise SpanloomError("--venv and --apptainer are two ways to run a step", remedy="give one of them")
    if slurm.apptainer is not None:
        started = in_apptainer(str(slurm.apptainer.absolute()))
    else:
        read = _READ_BY_MEGATRON & {stage.argv[2] for stage in stages}
        if slurm.venv is None and read and (missing := missing_packages()):
            raise SpanloomError(
                f"{' and '.join(missing)} cannot be imported, and validation reads through Megatron's own code",
                remedy="pip install 'spanloom[megatron]', or name the environment of the nodes: --venv DIR",
            )
        started = in_environment(str(slurm.venv.absolute() / "bin/spanloom") if slurm.venv else _this_program())
    files = slurm_files(pipeline, stages, started, slurm.sbatch or (), _commit(slurm))
    slurm.out.mkdir(parents=True, exist_ok=True)
    clear_temporaries_of(slurm.out / name for name in files)
    check_unused(slurm.out, {name for name, text in files.items() if _holds(slurm.out / name, text)})
    for name, text in files.items():  # submit.sh is the last: without it, a folder is unfinished
        if not _holds(slurm.out / name, text):
            write_atomically(slurm.out / name, text.encode())
        if name.endswith(".sh"):
            with suppress(PermissionError):  # of a file system without modes; it is run by bash
                (slurm.out / name).chmod(0o755)
    say(f"{len(files)} files under {slurm.out}; submit them with: bash {slurm.out / 'submit.sh'}")


def _commit(slurm: SlurmOptions) -> str | None:
    """The commit whose code may run the steps; None for any. Raises SpanloomError for an invalid one."""
    if slurm.git_sha is not None:
        if not _COMMIT.fullmatch(slurm.git_sha):
            raise SpanloomError(f"--git-sha {slurm.git_sha!r} is no commit", remedy="give 40 hex digits")
        return slurm.git_sha
    own = git_sha()
    return own if slurm.venv is slurm.apptainer is None and _COMMIT.fullmatch(own) else None


def _holds(path: Path, text: str) -> bool:
    """Whether a file is what an earlier run of the same command wrote."""
    return is_regular(path) and path.read_bytes() == text.encode()


def _this_program() -> str:
    """The running program `spanloom`. Raises SpanloomError if it cannot be found."""
    beside = Path(sys.executable).parent / "spanloom"
    program = str(beside) if beside.is_file() else shutil.which("spanloom")
    if program is None:
        raise SpanloomError("the program spanloom is not on the PATH", remedy="give --venv DIR")
    return program
