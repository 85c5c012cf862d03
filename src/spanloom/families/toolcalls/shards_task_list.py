"""The pipeline of tool calls with a task for each shard of both token datasets.

    … audit-toolcalls ─┬► tokenize harmful ×N ─► assemble-dataset ─► validate-shard ×N ─► assemble-validation
                       └► tokenize retain ×N ──► assemble-dataset ─► validate-shard ×N ─► assemble-validation

Only constants, of `task_list.py` and `shard_tasks.py`.
"""

from typing import Any

from .. import shard_tasks
from ..tasks import Parameters
from . import task_list

NAME = task_list.NAME
ABOUT = task_list.ABOUT + shard_tasks.ABOUT_SHARDS
SHARDS = shard_tasks.SHARDS
READS, WRITES = task_list.READS, (*task_list.WRITES, *shard_tasks.WRITES)
PARAMETERS: Parameters = {
    **task_list.PARAMETERS,
    **shard_tasks.REJECTS,
    "on_duplicate": "error",
    **shard_tasks.PARAMETERS,
}

_OF_ROOTS = ("tokenize-toolcalls", "validate-alignment")
_TOKENIZED = [
    shard_tasks.made_by_shard(task, {"--max-rejects": "{max_rejects}", "--workers": "{workers}", **shard_tasks.PARTS})
    for task in task_list.TASKS
    if task["step"] == "tokenize-toolcalls"
]

TASKS: tuple[dict[str, Any], ...] = (
    *(task for task in task_list.TASKS if task["step"] not in _OF_ROOTS),
    *(each for task in _TOKENIZED for each in (task, *shard_tasks.joined_and_validated(task, source="{merged_uri}"))),
)
