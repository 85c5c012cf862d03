"""The pipeline of chess: Parquet files of games and of thinking rows → validated prepared games.

    prepare-chess ×4 ─► assemble-chess ─► validate-chess

Only constants: `pipelines/` loads this file by its path in an environment with kfp but without Spanloom; hence the
relative import. `spanloom/tasks/listed.py` describes the fields of a task.
All steps publish files, so none is cached.
"""

from typing import Any

from ..tasks import Parameters, given, needs
from . import defaults

NAME = "chess_games"
ABOUT = "Parquet files of games → validated prepared games"
SHARDS = defaults.SHARDS

PARAMETERS: Parameters = {
    "dataset_root": None,
    "games_uri": "",
    "thinking_uri": "",
    "valid_fraction": defaults.VALID_FRACTION,
    "on_error": defaults.ON_ERROR,
    "deep": defaults.DEEP,
    "tolerance": defaults.TOLERANCE,
    "prepare_cpu": "2",
    "prepare_memory": "16Gi",
    "validate_memory": "16Gi",
}

READS = ("games_uri", "thinking_uri")
WRITES = ("dataset_root",)

TASKS: tuple[dict[str, Any], ...] = (
    {
        "step": "prepare-chess",
        "each": True,
        "options": {
            "--shard": "{index}",
            "--games": "{games_uri}",
            "--thinking": "{thinking_uri}",
            "--root": "{dataset_root}",
            "--shards": "{shards}",
            **given(("valid_fraction", "on_error")),
            "--inventory": ("out", "inventory"),
        },
        **needs("{prepare_cpu}", "{prepare_memory}", hours=24),
    },
    {
        "step": "assemble-chess",
        "options": {"--inventory": ("prepare-chess", "inventory"), "--root": "{dataset_root}"},
        **needs("1", "1Gi", hours=1),
    },
    {
        "step": "validate-chess",
        "inputs": {"dataset": ("assemble-chess", "dataset")},
        "options": {
            "--root": "{dataset_root}",
            "--games": "{games_uri}",
            "--thinking": "{thinking_uri}",
            **given(("deep", "tolerance")),
            "--report": ("out", "report"),
            "--html": ("out", "html"),
        },
        **needs("2", "{validate_memory}", hours=24),
    },
)
