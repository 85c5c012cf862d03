"""The pipeline of tool calls: public sources → samples → two validated token datasets.

    convert b4 ───────┐
    convert agentdojo ┤                                               ┌► tokenize harmful ─► validate-alignment
    convert tau2 ─────┼─► validate-toolcalls ─► merge ─► audit ──────┤
    convert ultrachat ┤                                               └► tokenize retain ──► validate-alignment
    convert xstest ───┘

Only constants: `pipelines/` loads this file by its path in an environment with kfp but without Spanloom; hence the
relative import. `spanloom/tasks/listed.py` describes the fields of a task.
A converter whose source is empty writes nothing. All steps publish files, so none is cached.
"""

from typing import Any

from ..shard_tasks import by_shard
from ..tasks import Parameters, given, needs, validated
from . import defaults

NAME = "toolcalls_dataset"
ABOUT = "tool-call samples of public sources → two token datasets"

_MERGE: Parameters = {
    "dr_ratio": defaults.DR_RATIO,
    "seed": defaults.SEED,
    "min_ratio": defaults.MIN_RATIO,
    "min_adversarial_safe": defaults.MIN_ADVERSARIAL_SAFE,
}

_TOKENIZE: Parameters = {
    "eod": defaults.EOD,
    "max_length": 0,
    "valid_fraction": defaults.VALID_FRACTION,
    "spans": defaults.SPANS,
    "control_texts": defaults.CONTROL_TEXTS,
}

PARAMETERS: Parameters = {
    "samples_uri": None,
    "merged_uri": None,
    "template_uri": None,
    "tokenizer_uri": None,
    "harmful_root": None,
    "retain_root": None,
    "b4_uri": "",
    "b4_completions_uri": "",
    "agentdojo_uri": "",
    "tau2_uri": "",
    "ultrachat_uri": "",
    "xstest_uri": "",
    "xstest_completions_uri": "",
    "system": "",
    "turns": "last",
    **_MERGE,
    "audit_limit": defaults.AUDIT_LIMIT,
    **_TOKENIZE,
    "deep": defaults.DEEP,
    "convert_memory": "4Gi",
    "merge_memory": "16Gi",
    "tokenize_cpu": "2",
    "tokenize_memory": "8Gi",
    "validate_cpu": "2",
    "validate_memory": "8Gi",
}

READS = (
    *("template_uri", "tokenizer_uri", "b4_uri", "b4_completions_uri", "agentdojo_uri", "tau2_uri"),
    *("ultrachat_uri", "xstest_uri", "xstest_completions_uri"),
)
WRITES = ("samples_uri", "merged_uri", "harmful_root", "retain_root")

_SOURCES = {
    "b4": ("{b4_uri}", "{b4_completions_uri}"),
    "agentdojo": ("{agentdojo_uri}", ""),
    "tau2": ("{tau2_uri}", ""),
    "ultrachat": ("{ultrachat_uri}", ""),
    "xstest": ("{xstest_uri}", "{xstest_completions_uri}"),
}

_CONVERTED: tuple[dict[str, Any], ...] = tuple(
    {
        "step": "convert-toolcalls",
        "part": source,
        "options": {
            "--from": source,
            "--input": source_uri,
            "--completions": completions_uri,
            "--out": "{samples_uri}",
            **given(("system", "turns")),
            "--report": ("out", "report"),
        },
        **needs("1", "{convert_memory}", hours=12),
    }
    for source, (source_uri, completions_uri) in _SOURCES.items()
)

_MERGED: tuple[dict[str, Any], ...] = (
    {
        "step": "validate-toolcalls",
        "after": tuple(f"convert-toolcalls-{source}" for source in _SOURCES),
        "options": {"--data-dir": "{samples_uri}", "--report": ("out", "report"), "--html": ("out", "html")},
        **needs("1", "4Gi", hours=12),
    },
    {
        "step": "merge-toolcalls",
        "after": ("validate-toolcalls",),
        "options": {
            "--harmful-dir": "{samples_uri}/harmful",
            "--retain-dir": "{samples_uri}/retain",
            "--output": "{merged_uri}",
            **given(_MERGE),
            "--stats": ("out", "stats"),
        },
        **needs("1", "{merge_memory}", hours=12),
    },
    {
        "step": "audit-toolcalls",
        "after": ("merge-toolcalls",),
        "options": {
            "--data": "{merged_uri}",
            "--template": "{template_uri}",
            "--limit": "{audit_limit}",
            "--report": ("out", "report"),
        },
        **needs("1", "4Gi", hours=12),
    },
)


def _tokenized(split: str) -> tuple[dict[str, Any], ...]:
    root = f"{{{split}_root}}"
    return (
        {
            "step": "tokenize-toolcalls",
            "part": split,
            "after": ("audit-toolcalls",),
            "options": {
                "--split": split,
                "--data": "{merged_uri}",
                "--template": "{template_uri}",
                "--tokenizer": "{tokenizer_uri}",
                "--root": root,
                **given(_TOKENIZE),
                "--tokenizer-out": ("out", "tokenizer"),
            },
            **needs("{tokenize_cpu}", "{tokenize_memory}", hours=24),
        },
        validated(f"tokenize-toolcalls-{split}", root, "{merged_uri}", hours=12, part=split),
    )


TASKS: tuple[dict[str, Any], ...] = (*_CONVERTED, *_MERGED, *_tokenized("harmful"), *_tokenized("retain"))

BY_SHARD = by_shard(globals(), on_duplicate="error")
