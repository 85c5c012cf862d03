"""The pipeline of a teacher: a dataset of any family and a model's folder → the signals of the model beside it.

    score-teacher ×4 ─► join-teacher

Constants only: `pipelines/` reads this file by its path, where kfp is installed and Spanloom is not.
`spanloom/tasks/listed.py` describes how a task is written. Task i of N scores the shards whose number modulo N is i, so
that the number of tasks need not be that of the shards. Both steps publish, so neither is cached.
"""

from typing import Any

NAME = "teacher"
ABOUT = "a dataset, a model's folder → the model's log-probabilities at each trained label"
SHARDS = 4

PARAMETERS: dict[str, str | int | float | None] = {
    "dataset_root": None,
    "teacher_uri": None,
    "signals_root": None,
    "engine": "model",
    "top_k": 32,
    "spans": "",
    "dtype": "",
    "padded_ids": "refuse",
    "quantization": "",
    "tensor_parallel": 1,
    "score_cpu": "8",
    "score_memory": "64Gi",
    "accelerator": "nvidia.com/gpu",
    "accelerators": "1",
}

READS = ("dataset_root", "teacher_uri")
WRITES = ("signals_root",)

TASKS: tuple[dict[str, Any], ...] = (
    {
        "step": "score-teacher",
        "each": True,
        "options": {
            "--root": "{dataset_root}",
            "--model": "{teacher_uri}",
            "--out": "{signals_root}",
            "--inventory": ("out", "inventory"),
            "--shard": "{index}",
            "--shards": "{shards}",
            "--engine": "{engine}",
            "--top-k": "{top_k}",
            "--spans": "{spans}",
            "--dtype": "{dtype}",
            "--padded-ids": "{padded_ids}",
            "--quantization": "{quantization}",
            "--tensor-parallel": "{tensor_parallel}",
        },
        "cpu": "{score_cpu}",
        "memory": "{score_memory}",
        "accelerator": "{accelerator}",
        "accelerators": "{accelerators}",
        "hours": 72,
    },
    {
        "step": "join-teacher",
        "options": {
            "--inventory": ("score-teacher", "inventory"),
            "--root": "{dataset_root}",
            "--out": "{signals_root}",
        },
        "cpu": "1",
        "memory": "4Gi",
        "hours": 1,
    },
)
