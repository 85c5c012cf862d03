"""Default values of the options of SYNTH KD and harmony_chat, for commands, steps and pipeline.

Only constants, and no import of Spanloom: `pipelines/` reads this file where kfp is installed and Spanloom is not.
"""

from typing import Literal

SOURCE = "data/synth_harmony"
ROOT = "data/megatron/synth_kd_v1"
CAPPED_ROOT = "data/megatron/synth_kd_v1_smoke"
CHAT_ROOT = "data/megatron/harmony_chat_v1"
CAPPED_CHAT_ROOT = "data/megatron/harmony_chat_v1_smoke"
RAW_SAMPLE = "data/synth_raw_sample"

SHARDS = 4
VALID_FRACTION = 0.001
MAX_ROWS = None
MAX_ROWS_PER_SHARD = None
MAX_TOKENS = None
MAX_REJECTS = "0"
ON_DUPLICATE: Literal["error", "keep"] = "error"
RENDERER: Literal["fast", "harmony"] = "fast"
AUDIT_FRACTION = 0.001
DEEP = 64

# For conversations (harmony_chat): the messages that each document shows, and those that it trains.
HISTORY: Literal["serve", "openai-harmony", "keep"] = "serve"
TRAIN = "analysis,final,commentary"
TURNS: Literal["all", "last"] = "all"
CALL_FORMAT: Literal["constrain", "json", "as-served"] = "constrain"

# Conversion of raw SYNTH: texts for every row, and how rows are assigned to shards.
MODEL_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
REASONING_EFFORT = "high"
START_DATE = "2026-01-01"
KNOWLEDGE_CUTOFF = "2024-06"
ASSIGNMENT: Literal["round-robin", "contiguous"] = "round-robin"
DATASET_NAME = "PleIAs/SYNTH"

# Conversion of chat data: no text is added to a conversation unless the user chooses it.
ROWS_PER_SHARD = 65_536


SAMPLE_ROWS = 240
