"""The defaults of the options of chess: written here once, read by the commands, the library, the steps, the pipeline.

Constants alone, nothing of Spanloom imported: `pipelines/` reads this file where kfp is installed and Spanloom is not.
"""

from typing import Literal

SHARDS = 4
"""Tasks that prepare files side by side on a cluster."""

VALID_FRACTION = 0.001
ON_ERROR: Literal["raise", "skip"] = "skip"
DEEP = 16
"""Games of each file that validation makes again from the source."""

LEGAL = False
TOLERANCE = 0.01
"""By how much win + draw + loss may miss 1, and each be outside 0 … 1: engines round to per mille."""

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
