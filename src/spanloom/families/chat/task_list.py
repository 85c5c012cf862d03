"""The pipeline of packed chat: conversations → transcripts → a validated dataset of packed blocks.

    generate-chat ─► pack-chat ─► validate-alignment

Only constants: `pipelines/` reads this file by its path where kfp is installed and Spanloom is not; hence the relative
import. `spanloom/tasks/listed.py` documents the fields of a task. Validation is the shared step, which reads the family
from the manifest. All steps publish files, so none is cached.
"""

from typing import Any

from . import defaults

NAME = "packed_chat"
ABOUT = "conversations → transcripts → a validated dataset of packed blocks"

PARAMETERS: dict[str, str | int | float | None] = {
    "conversations_uri": None,
    "transcripts_uri": None,
    "dataset_root": None,
    "tokenizer_uri": "",
    "context_len": defaults.CONTEXT_LEN,
    "drop": "",
    "think": defaults.THINK,
    "on_error": "",
    "block_size": defaults.BLOCK_SIZE,
    # Differs from the commands' default, which is off unless the caller's environment has POST_TRAINING=1: the tasks
    # of a run do not have that environment. On a cluster, loss on the answers alone is usual; 0 packs plainly.
    "post_training": "1",
    "strict_user": str(int(defaults.STRICT_USER)),
    "keep_lossless": str(int(defaults.KEEP_LOSSLESS)),
    "pad_tail": str(int(defaults.PAD_TAIL)),
    "shards": defaults.SHARDS,
    "records": defaults.RECORDS,
    "deep": defaults.DEEP,
    "workers": "",
    "generate_cpu": "2",
    "generate_memory": "4Gi",
    "pack_cpu": "8",
    "pack_memory": "16Gi",
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
            "--context-len": "{context_len}",
            "--drop": "{drop}",
            "--think": "{think}",
            "--on-error": "{on_error}",
            "--report": ("out", "report"),
        },
        "cpu": "{generate_cpu}",
        "memory": "{generate_memory}",
        "hours": 24,
    },
    {
        "step": "pack-chat",
        "after": ("generate-chat",),
        "options": {
            "--transcripts": "{transcripts_uri}",
            "--root": "{dataset_root}",
            "--tokenizer": "{tokenizer_uri}",
            "--asset": ("out", "tokenizer"),
            "--block-size": "{block_size}",
            "--post-training": "{post_training}",
            "--strict-user": "{strict_user}",
            "--keep-lossless": "{keep_lossless}",
            "--pad-tail": "{pad_tail}",
            "--shards": "{shards}",
            "--records": "{records}",
            "--workers": "{workers}",
        },
        "cpu": "{pack_cpu}",
        "memory": "{pack_memory}",
        "hours": 24,
    },
    {
        "step": "validate-alignment",
        "inputs": {"dataset": ("pack-chat", "dataset")},
        "options": {
            "--root": "{dataset_root}",
            "--source": "{transcripts_uri}",
            "--tokenizer": ("pack-chat", "tokenizer"),
            "--deep": "{deep}",
            "--report": ("out", "report"),
            "--html": ("out", "html"),
        },
        "cpu": "2",
        "memory": "{validate_memory}",
        "hours": 24,
    },
)
