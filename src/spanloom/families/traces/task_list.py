"""The pipeline of reasoning traces: records → a store → a dataset's manifest → three exports, validated.

    ingest-traces ─► build-traces ─► export-traces ×3 ─► validate-traces
                                └──► tokenize-traces ─► validate-alignment      with a tokenizer

Constants only, with a relative import: `pipelines/` reads this file by its path, where kfp is installed and Spanloom
is not. `spanloom/tasks/listed.py` documents the fields of a task. Tasks that publish under the dataset root are not
cached.
"""

from typing import Any

from ..shard_tasks import by_shard
from ..tasks import Parameters, given, needs, validated
from . import defaults

NAME = "traces_dataset"
ABOUT = "reasoning traces → a dataset → exports and tokens, validated"

_INGEST: Parameters = {
    "source_name": None,
    "ids": defaults.IDS,
    "strict": "0",
    "created_at": "",
    "map": "",
    "max_step_characters": 0,
}

_BUILD: Parameters = {
    "filters": "{}",
    "limit": defaults.LIMIT,
    "strategy": defaults.STRATEGY,
    "seed": "",
    "reproducible": defaults.STEP_REPRODUCIBLE,
}

PARAMETERS: Parameters = {
    "traces_uri": None,
    **_INGEST,
    "dataset_name": None,
    "dataset_version": None,
    "dataset_root": "",
    "tokenizer_uri": "",
    **_BUILD,
    "control_tokens": defaults.CONTROL_TOKENS,
    "protect_metadata": str(int(defaults.PROTECT_METADATA)),
    "form": defaults.TOKENIZE_FORMAT,
    "eod": "",
    "tokenize_control_tokens": defaults.TOKENIZE_CONTROL_TOKENS,
    "valid_fraction": defaults.VALID_FRACTION,
    "ingest_memory": "4Gi",
    "tokenize_cpu": "4",
    "tokenize_memory": "8Gi",
    "validate_cpu": "2",
    "validate_memory": "16Gi",
}

READS = ("traces_uri", "tokenizer_uri")
WRITES = ("dataset_root",)

_STORE = ("ingest-traces", "store")
_MANIFEST = ("build-traces", "manifest")
_FORMATS = ("trace", "tunix_sft", "training_example")

_EXPORTED: tuple[dict[str, Any], ...] = tuple(
    {
        "step": "export-traces",
        "part": form,
        "options": {
            "--store": _STORE,
            "--manifest": _MANIFEST,
            "--format": form,
            **given(("control_tokens", "protect_metadata")),
            "--out": ("out", "export"),
        },
        **needs("1", "2Gi", hours=24),
        "cache": True,
    }
    for form in _FORMATS
)

TASKS: tuple[dict[str, Any], ...] = (
    {
        "step": "ingest-traces",
        "options": {
            "--source": "{traces_uri}",
            "--store": ("out", "store"),
            **given(_INGEST),
        },
        **needs("2", "{ingest_memory}", hours=24),
    },
    {
        "step": "build-traces",
        "options": {
            "--store": _STORE,
            "--manifest": ("out", "manifest"),
            "--name": "{dataset_name}",
            "--version": "{dataset_version}",
            **given(_BUILD),
        },
        **needs("1", "4Gi", hours=24),
        "cache": True,
    },
    *_EXPORTED,
    {
        "step": "validate-traces",
        "options": {
            **{f"--{form.replace('_', '-')}": (f"export-traces-{form}", "export") for form in _FORMATS},
            "--manifest": _MANIFEST,
            "--report": ("out", "report"),
        },
        **needs("1", "2Gi", hours=24),
        "cache": True,
    },
    {
        "step": "tokenize-traces",
        "when": "tokenizer_uri",
        "options": {
            "--store": _STORE,
            "--manifest": _MANIFEST,
            "--tokenizer": "{tokenizer_uri}",
            "--root": "{dataset_root}",
            "--asset": ("out", "tokenizer"),
            "--format": "{form}",
            "--eod": "{eod}",
            "--control-tokens": "{tokenize_control_tokens}",
            "--valid-fraction": "{valid_fraction}",
        },
        **needs("{tokenize_cpu}", "{tokenize_memory}", hours=24),
    },
    validated("tokenize-traces", "{dataset_root}", "", deep="0", when="tokenizer_uri"),
)

BY_SHARD = by_shard(globals(), on_duplicate="keep")
