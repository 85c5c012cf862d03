"""The defaults of the chess options, for the commands, the library, the steps and the pipeline.

Only constants, without imports from Spanloom: `pipelines/` loads this file in an environment with kfp but without
Spanloom.
"""

from typing import Literal

SHARDS = 4
"""Tasks that prepare files in parallel on a cluster."""

VALID_FRACTION = 0.001
ON_ERROR: Literal["raise", "skip"] = "skip"
DEEP = 16
"""Games of each file that validation converts again from the source."""

LEGAL = False
TOLERANCE = 0.01
"""The allowed deviation of win + draw + loss from 1, and of each from 0 … 1: engines round to per mille."""

MAX_SEQ_LEN = 2048
FINETUNE_MAX_SEQ_LEN = 1024
SKIP_BOARD_PROB = 0.2
VARIATION_RATIO = 0.2
MAX_VARIATIONS = 3
MAX_DEPTH = 5
TAU_BASE = 0.3
TAU_ALPHA = 1.0

INSPECT_MAX_SEQ_LEN = 512
SAMPLE_GAMES = 60
SAMPLE_THINKING_ROWS = 60
