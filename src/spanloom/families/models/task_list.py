"""The pipeline for any model: conversations and a model's folder → a dataset in its chat template.

    tokenize-conversations ─► validate-alignment

Constants only: `pipelines/` reads this file by its path, where kfp is installed and Spanloom is not; hence the
relative import. `spanloom/tasks/listed.py` describes how a task is written.
Validation is the shared step: it reads the family from the manifest and makes sampled conversations again. Both steps
publish, so neither is cached.
"""

from typing import Any

from . import defaults

NAME = "model_chat"
ABOUT = "conversations, a model's folder → a dataset in its chat template"

PARAMETERS: dict[str, str | int | float | None] = {
    "source_uri": None,
    "model_uri": None,
    "dataset_root": None,
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
    "deep": defaults.DEEP,
    "tokenize_cpu": "8",
    "tokenize_memory": "16Gi",
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
            "--thinking": "{thinking}",
            "--inline-think": "{inline_think}",
            "--boundary": "{boundary}",
            "--stops": "{stops}",
            "--date": "{date}",
            "--variables": "{variables}",
            "--train": "{train}",
            "--turns": "{turns}",
            "--emission": "{emission}",
            "--control-texts": "{control_texts}",
            "--call-ids": "{call_ids}",
            "--inline-calls": "{inline_calls}",
            "--text-beside-calls": "{text_beside_calls}",
            "--proof": "{proof}",
            "--valid-fraction": "{valid_fraction}",
            "--max-rows": "{max_rows}",
            "--max-rows-per-shard": "{max_rows_per_shard}",
            "--longest": "{longest}",
            "--max-rejects": "{max_rejects}",
            "--on-duplicate": "{on_duplicate}",
            "--workers": "{workers}",
        },
        "cpu": "{tokenize_cpu}",
        "memory": "{tokenize_memory}",
        "hours": 24,
    },
    {
        "step": "validate-alignment",
        "inputs": {"dataset": ("tokenize-conversations", "dataset")},
        "options": {
            "--root": "{dataset_root}",
            "--source": "{source_uri}",
            "--tokenizer": ("tokenize-conversations", "tokenizer"),
            "--deep": "{deep}",
            "--report": ("out", "report"),
            "--html": ("out", "html"),
        },
        "cpu": "2",
        "memory": "{validate_memory}",
        "hours": 24,
    },
)
