"""The pipeline of reasoning traces with a task for each shard of the token dataset.

    ingest-traces ─► build-traces ─► export-traces ×3 ─► validate-traces
                                └──► tokenize-traces ×N ─► assemble-dataset ─► validate-shard ×N ─► assemble-validation

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
    "on_duplicate": "keep",
    **shard_tasks.PARAMETERS,
}

*_BEFORE, _WHOLE, _ = task_list.TASKS
_TOKENIZED = shard_tasks.made_by_shard(
    _WHOLE, {"--max-rejects": "{max_rejects}", "--workers": "{workers}", **shard_tasks.PARTS}
)

TASKS: tuple[dict[str, Any], ...] = (
    *_BEFORE,
    _TOKENIZED,
    *shard_tasks.joined_and_validated(_TOKENIZED, source="", deep="0"),
)
