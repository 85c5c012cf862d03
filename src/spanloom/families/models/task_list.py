"""The pipeline for any model: conversations and a model's folder → a dataset in its chat template.

    tokenize-conversations ─► validate-alignment

Constants only: `pipelines/` reads this file by its path, where kfp is installed and Spanloom is not; hence the
relative import. `spanloom/tasks/listed.py` describes how a task is written.
Validation is the shared step: it reads the family from the manifest and makes sampled conversations again. Both steps
publish, so neither is cached.
"""

from typing import Any

from ..shard_tasks import by_shard
from ..tasks import Parameters, given, needs, validated
from . import defaults

NAME = "model_chat"
ABOUT = "conversations, a model's folder → a dataset in its chat template"

_BUILD: Parameters = {
    "thinking": defaults.THINKING[0],
    "inline_think": "0",
    "boundary": defaults.BOUNDARY[0],
    "stops": "",
    "date": "",
    "variables": "{}",
    "train": defaults.TRAIN,
    "turns": defaults.TURNS[0],
    "emission": "",
    "control_texts": defaults.CONTROL_TEXTS[0],
    "call_ids": defaults.CALL_IDS[0],
    "inline_calls": "",
    "text_beside_calls": defaults.TEXT_BESIDE_CALLS[0],
    "proof": defaults.PROOF[0],
    "valid_fraction": defaults.VALID_FRACTION,
    "max_rows": "",
    "max_rows_per_shard": "",
    "longest": "",
    "max_rejects": defaults.MAX_REJECTS,
    "on_duplicate": defaults.ON_DUPLICATE,
    "workers": "",
}

PARAMETERS: Parameters = {
    "source_uri": None,
    "model_uri": None,
    "dataset_root": None,
    **_BUILD,
    "deep": defaults.DEEP,
    "tokenize_cpu": "8",
    "tokenize_memory": "16Gi",
    "validate_cpu": "8",
    "validate_memory": "16Gi",
}

READS = ("source_uri", "model_uri")
WRITES = ("dataset_root",)
SOURCE = "source_uri"

TASKS: tuple[dict[str, Any], ...] = (
    {
        "step": "tokenize-conversations",
        "options": {
            "--source": "{source_uri}",
            "--model": "{model_uri}",
            "--root": "{dataset_root}",
            "--asset": ("out", "tokenizer"),
            **given(_BUILD),
        },
        **needs("{tokenize_cpu}", "{tokenize_memory}", hours=24),
    },
    validated("tokenize-conversations", "{dataset_root}", "{source_uri}"),
)

BY_SHARD = by_shard(globals())
