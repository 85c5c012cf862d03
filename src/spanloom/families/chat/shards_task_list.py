"""The pipeline of packed chat with a task for each shard of the dataset.

    generate-chat ─► pack-chat ×N ─► assemble-dataset ─► validate-shard ×N ─► assemble-validation

Each task reads all transcripts and packs its records. Only constants, of `task_list.py` and `shard_tasks.py`.
"""

from typing import Any

from .. import shard_tasks
from ..tasks import Parameters
from . import task_list

NAME = task_list.NAME
ABOUT = task_list.ABOUT + shard_tasks.ABOUT_SHARDS
SHARDS = shard_tasks.SHARDS
READS, WRITES = task_list.READS, task_list.WRITES
PARAMETERS: Parameters = {
    **{name: value for name, value in task_list.PARAMETERS.items() if name != "shards"},
    "assemble_memory": shard_tasks.PARAMETERS["assemble_memory"],
}

_GENERATED, _WHOLE, _ = task_list.TASKS
_PACKED = shard_tasks.made_by_shard(_WHOLE)

TASKS: tuple[dict[str, Any], ...] = (
    _GENERATED,
    _PACKED,
    *shard_tasks.joined_and_validated(_PACKED, source="{transcripts_uri}"),
)
