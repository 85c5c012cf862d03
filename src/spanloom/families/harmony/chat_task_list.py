"""The pipeline of conversations for gpt-oss: that of `task_list.py`, with the options of how they are cut.

Only constants: `pipelines/` reads this file by its path, where kfp is installed and Spanloom is not; hence the
relative import. `spanloom/tasks/listed.py` describes the form of a task.
"""

from typing import Any

from ..tasks import Parameters, given
from . import defaults, task_list

NAME = "harmony_chat"
ABOUT = "conversations → a validated dataset in the Harmony format for Megatron"
SHARDS = task_list.SHARDS

_CUT: Parameters = {
    "history": defaults.HISTORY,
    "train": defaults.TRAIN,
    "turns": defaults.TURNS,
    "call_format": defaults.CALL_FORMAT,
    "mask_generation_prompt": "0",
}

PARAMETERS: Parameters = {**task_list.PARAMETERS, **_CUT}
READS, WRITES, SOURCE = task_list.READS, task_list.WRITES, task_list.SOURCE

TASKS: tuple[dict[str, Any], ...] = tuple(
    {**task, "options": {**task["options"], **given(_CUT)}} if task["step"] == "render-shard" else task
    for task in task_list.TASKS
)
