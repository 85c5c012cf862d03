"""The pipeline of SYNTH KD: a `synth_harmony_v1` folder → a validated dataset for Megatron beside it.

    verify-tokenizer ─► render-shard ×N ─┬─► write-indexed ×N ─┬─► assemble-manifest
                                         └─► assemble-split ───┘
        ─► validate-shard ×N ─► assemble-validation

Only constants: `pipelines/` reads this file by its path, where kfp is installed and Spanloom is not; hence the
relative import. `spanloom/tasks/listed.py` describes the form of a task.
A shard is written as soon as it is rendered. A duplicate id fails assemble-split, and no manifest is written.
No step is cached. verify-tokenizer looks at places, which change; and publishing existing files again costs only a
lookup, but a skipped publish would leave the dataset incomplete.
"""

from typing import Any

from ..tasks import Parameters, given, needs, validated_by_shard
from . import defaults

NAME = "synth_kd"
ABOUT = "synth_harmony_v1 shards → a validated SYNTH KD dataset for Megatron"
SHARDS = defaults.SHARDS

_RENDER: Parameters = {
    "renderer": defaults.RENDERER,
    "audit_fraction": defaults.AUDIT_FRACTION,
    "max_rows": "",
    "max_rows_per_shard": "",
    "longest": "",
    "max_tokens": "",
    "max_rejects": defaults.MAX_REJECTS,
    "workers": "",
}

PARAMETERS: Parameters = {
    "source_uri": None,
    "dataset_root": None,
    "work_uri": "",
    "tokenizer_uri": "",
    "valid_fraction": defaults.VALID_FRACTION,
    **_RENDER,
    "on_duplicate": defaults.ON_DUPLICATE,
    "deep": defaults.DEEP,
    "render_cpu": "8",
    "render_memory": "16Gi",
    "write_cpu": "2",
    "write_memory": "8Gi",
    "split_memory": "8Gi",
    "validate_cpu": "8",
    "validate_memory": "16Gi",
}

READS = ("source_uri", "tokenizer_uri")
WRITES = ("dataset_root", "work_uri")
SOURCE = "source_uri"

_TOKENIZER = ("verify-tokenizer", "tokenizer")
_RENDERED = ("render-shard", "rendered")

TASKS: tuple[dict[str, Any], ...] = (
    {
        "step": "verify-tokenizer",
        "options": {
            "--tokenizer": "{tokenizer_uri}",
            "--source": "{source_uri}",
            "--shards": "{shards}",
            "--work": "{work_uri}",
            "--root": "{dataset_root}",
            "--asset": ("out", "tokenizer"),
            "--report": ("out", "report"),
        },
        **needs("1", "1Gi", hours=1),
        "preflight": True,
    },
    {
        "step": "render-shard",
        "each": True,
        "options": {
            "--shard": "{index}",
            "--shards": "{shards}",
            "--source": "{source_uri}",
            "--tokenizer": _TOKENIZER,
            **given(_RENDER),
            "--work": "{work_uri}",
            "--root": "{dataset_root}",
            "--rendered": ("out", "rendered"),
        },
        **needs("{render_cpu}", "{render_memory}", hours=24),
    },
    {
        "step": "assemble-split",
        "options": {
            "--rendered": _RENDERED,
            "--split": ("out", "split"),
            **given(("valid_fraction", "on_duplicate")),
        },
        **needs("1", "{split_memory}", hours=4),
    },
    {
        "step": "write-indexed",
        "each": True,
        "options": {
            "--rendered": _RENDERED,
            "--valid-fraction": "{valid_fraction}",
            "--root": "{dataset_root}",
            "--inventory": ("out", "inventory"),
        },
        **needs("{write_cpu}", "{write_memory}", hours=24),
    },
    {
        "step": "assemble-manifest",
        "options": {
            "--inventory": ("write-indexed", "inventory"),
            "--split": ("assemble-split", "split"),
            "--root": "{dataset_root}",
        },
        **needs("1", "1Gi", hours=1),
    },
    *validated_by_shard(
        "assemble-manifest", _TOKENIZER, root="{dataset_root}", source="{source_uri}", memory="{split_memory}"
    ),
)
