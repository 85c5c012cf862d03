"""The pipeline of packed chat: conversations → transcripts → a validated dataset of packed blocks.

    generate-chat ─► pack-chat ─► validate-alignment

Only constants: `pipelines/` reads this file by its path where kfp is installed and Spanloom is not; hence the relative
import. `spanloom/tasks/listed.py` documents the fields of a task. Validation is the shared step, which reads the family
from the manifest. All steps publish files, so none is cached.
"""

from typing import Any

from ..shard_tasks import by_shard
from ..tasks import Parameters, given, needs, validated
from . import defaults

NAME = "packed_chat"
ABOUT = "conversations → transcripts → a validated dataset of packed blocks"

_GENERATE: Parameters = {
    "context_len": defaults.CONTEXT_LEN,
    "drop": "",
    "think": defaults.THINK,
    "on_error": "",
}

_PACK: Parameters = {
    "block_size": defaults.BLOCK_SIZE,
    # Differs from the commands' default, which is off unless the caller's environment has POST_TRAINING=1: the tasks
    # of a run do not have that environment. On a cluster, loss on the answers alone is usual; 0 packs plainly.
    "post_training": "1",
    "strict_user": str(int(defaults.STRICT_USER)),
    "keep_lossless": str(int(defaults.KEEP_LOSSLESS)),
    "pad_tail": str(int(defaults.PAD_TAIL)),
    "shards": defaults.SHARDS,
    "records": defaults.RECORDS,
    "workers": "",
}

PARAMETERS: Parameters = {
    "conversations_uri": None,
    "transcripts_uri": None,
    "dataset_root": None,
    "tokenizer_uri": "",
    **_GENERATE,
    **_PACK,
    "deep": defaults.DEEP,
    "generate_cpu": "2",
    "generate_memory": "4Gi",
    "pack_cpu": "8",
    "pack_memory": "16Gi",
    "validate_cpu": "2",
    "validate_memory": "16Gi",
}

READS = ("conversations_uri", "tokenizer_uri")
WRITES = ("transcripts_uri", "dataset_root")

TASKS: tuple[dict[str, Any], ...] = (
    {
        "step": "generate-chat",
        "options": {
            "--source": "{conversations_uri}",
            "--out": "{transcripts_uri}",
            "--tokenizer": "{tokenizer_uri}",
            **given(_GENERATE),
            "--report": ("out", "report"),
        },
        **needs("{generate_cpu}", "{generate_memory}", hours=24),
    },
    {
        "step": "pack-chat",
        "after": ("generate-chat",),
        "options": {
            "--transcripts": "{transcripts_uri}",
            "--root": "{dataset_root}",
            "--tokenizer": "{tokenizer_uri}",
            "--asset": ("out", "tokenizer"),
            **given(_PACK),
        },
        **needs("{pack_cpu}", "{pack_memory}", hours=24),
    },
    validated("pack-chat", "{dataset_root}", "{transcripts_uri}"),
)

BY_SHARD = by_shard(globals(), parts=False)
