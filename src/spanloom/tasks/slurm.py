"""Stages → the files for Slurm: a batch script for each stage, and a script that submits them in order.

In: stages, the way to start `spanloom` on a node, further options of `sbatch`. Out: texts of files by name.

A stage of several tasks is a job array. It starts when all tasks of the stages before it have succeeded (`afterok`).
Between two arrays, a task waits only for the task of its own number (`aftercorr`).
A task that could not reach a store (exit code 75), or that was killed by a signal, is requeued, at most three times.
Slurm itself requeues a task whose node failed. Every other exit code is a fault of data or options, which would
fail again in the same way: the task stays failed, and Slurm cancels the stages after it.
"""

import shlex
from collections.abc import Callable, Sequence

from spanloom.errors import EXIT_TEMPORARY, SpanloomError
from spanloom.provenance import EXPECTED_SHA_VARIABLE
from spanloom.tasks.stage import INDEX, Stage, mebibytes, whole_cpus

SUBMIT = "submit.sh"
RETRIES = 3

Started = Callable[[Stage], Sequence[str]]
"""A stage → the words of its command on a node."""


def in_environment(program: str) -> Started:
    """Starts stages by the program `spanloom` of a virtual environment, which replaces the command's first word."""
    return lambda stage: [program, *stage.argv[1:]]


def in_apptainer(images: str) -> Started:
    """Starts stages in their images with Apptainer: files of the folder `images`, named as by `apptainer pull`."""

    def words(stage: Stage) -> list[str]:
        file = stage.image.rpartition("/")[2].replace(":", "_")
        return ["apptainer", "exec", f"{images.rstrip('/')}/{file}.sif", *stage.argv]

    return words


def slurm_files(
    pipeline: str, stages: Sequence[Stage], started: Started, options: Sequence[str] = (), commit: str | None = None
) -> dict[str, str]:
    """The texts of the files by name. `options`: of `sbatch`, for every job, such as `--partition=long`; `commit`: the
    only one whose code may run the stages, None for any.

    Raises SpanloomError for an option that does not begin with `--`, and for invalid sizes.
    """
    for option in options:
        if not option.startswith("--") or "\n" in option:
            raise SpanloomError(f"{option!r} is not an option of sbatch", remedy="write it as --partition=long")
    files = {f"{stage.name}.sbatch": _batch(stage, started(stage), options, commit) for stage in stages}
    return {**files, SUBMIT: _submit(pipeline, stages)}


def _batch(stage: Stage, words: Sequence[str], options: Sequence[str], commit: str | None) -> str:
    directives = [
        f"--job-name=spanloom-{stage.name}",
        *([f"--array=0-{stage.count - 1}"] if stage.each else []),
        "--requeue",
        "--kill-on-invalid-dep=yes",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={whole_cpus(stage.cpu)}",
        f"--mem={mebibytes(stage.memory)}M",
        f"--time={stage.hours}:00:00",
        *([f"--gres=gpu:{stage.accelerators}"] if stage.accelerators else []),
        f"--output=logs/{stage.name}-{'%A_%a' if stage.each else '%j'}.log",
        "--open-mode=append",
        *options,
    ]
    # The last task of an array has the job id of the whole array; requeuing by that id would requeue all its tasks.
    task = '"${SLURM_ARRAY_JOB_ID}_$index"' if stage.each else '"$SLURM_JOB_ID"'
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {directive}" for directive in directives),
        "",
        *([f"export {EXPECTED_SHA_VARIABLE}={commit}"] if commit else []),
        *(["index=$SLURM_ARRAY_TASK_ID"] if stage.each else []),
        " ".join(map(_quoted, words)),
        "code=$?",
        f"# {EXIT_TEMPORARY}: a deadline was reached. Above 128: a signal. Only these are tried again.",
        f"if [ $code -eq {EXIT_TEMPORARY} ] || [ $code -gt 128 ]; then",
        f'  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {RETRIES} ] && scontrol requeue {task}; then',
        "    sleep 300  # Slurm ends this script",
        "  fi",
        "fi",
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """Quotes a word for bash: `ids/{index}` becomes `ids/"$index"`."""
    return '"$index"'.join(shlex.quote(part) if part else "" for part in word.split(INDEX)) or "''"


def _submit(pipeline: str, stages: Sequence[Stage]) -> str:
    lines = [
        "#!/bin/bash",
        f"# The stages of {pipeline}, each after those before it. Logs go to the folder logs beside this file.",
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        "mkdir -p logs",
    ]
    arrays = {stage.name: stage.count for stage in stages if stage.each}
    for stage in stages:
        after = [
            f"{'aftercorr' if arrays.get(name) == stage.count and stage.each else 'afterok'}:${{{_variable(name)}%%;*}}"
            for name in stage.after
        ]
        dependency = f"--dependency={','.join(after)} " if after else ""
        lines.append(f"{_variable(stage.name)}=$(sbatch --parsable {dependency}{stage.name}.sbatch)")
        lines.append(f'echo "{stage.name} ${{{_variable(stage.name)}%%;*}}"')
    lines.append('echo "logs: $PWD/logs"')
    return "\n".join(lines) + "\n"


def _variable(stage: str) -> str:
    return f"job_{stage.replace('-', '_')}"
