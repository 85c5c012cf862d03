"""Default values of the options of packed chat, for the commands, the steps and the pipeline.

Only constants, and no import of Spanloom: `pipelines/` reads this file where kfp is installed and Spanloom is not.
"""

from typing import Literal

CONTEXT_LEN = 1024
BLOCK_SIZE = 1024
POST_TRAINING = False
STRICT_USER = True
KEEP_LOSSLESS = True
PAD_TAIL = False
SHARDS = 1
RECORDS: Literal["line", "eos", "file"] = "line"
ON_ERROR: Literal["raise", "skip"] = "raise"
THINK: Literal["keep", "drop", "refuse"] = "refuse"
DEEP = 64

SAMPLE_CONVERSATIONS = 240
