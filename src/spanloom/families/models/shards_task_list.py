"""The pipeline for any model with a task for each shard of the source.

    tokenize-conversations ×N ─► assemble-dataset ─► validate-shard ×N ─► assemble-validation

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
SOURCE = task_list.SOURCE
PARAMETERS: Parameters = {**task_list.PARAMETERS, **shard_tasks.PARAMETERS}

_TOKENIZED = shard_tasks.made_by_shard(task_list.TASKS[0], shard_tasks.PARTS)

TASKS: tuple[dict[str, Any], ...] = (_TOKENIZED, *shard_tasks.joined_and_validated(_TOKENIZED, source="{source_uri}"))
