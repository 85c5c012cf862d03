"""The defaults of the options of `spanloom model`; constants only."""

THINKING = ("auto", "on", "off")
BOUNDARY = ("served", "refuse")
LAST_TURN = "last"
TURNS = ("all", LAST_TURN)
"""Which turns are trained."""

CONTROL_TEXTS = ("refuse", "as-served", "text")
"""What becomes of control tokens in texts that are not trained."""

PATHS, FULL = PROOF = ("paths", "full")
"""How conversations are proven."""

REWRITE, KEEP = CALL_IDS = ("rewrite", "keep")
"""What becomes of ids of calls where the template takes no other than its own."""
INLINE_CALLS = ("hermes", "json")
"""Formats in which tools, calls and results become text."""
REFUSE_BESIDE, SPLIT = TEXT_BESIDE_CALLS = ("refuse", "split")
"""What becomes of a text beside calls that the template drops."""

PROBE_DATE = "2025-01-01"
"""Today's date for templates in `probe` if none is given; `build` then refuses templates that write the date."""

SPAN_NAMES = ("context", "analysis", "final", "commentary")
"""Names of the spans by number, as in the family harmony_chat, so that the same span weights can be used."""

SPAN_ANALYSIS, SPAN_FINAL, SPAN_COMMENTARY = 1, 2, 3

TRAIN = ",".join(SPAN_NAMES[1:])
VALID_FRACTION = 0.001
MAX_REJECTS = "0"
MAX_ROWS = None
MAX_ROWS_PER_SHARD = None
ON_DUPLICATE = "error"
ROOT = "data/megatron/model_chat_v1"
CAPPED_ROOT = "data/megatron/model_chat_v1_smoke"
MODELS = "data/models"
"""Where `spanloom model fetch` puts the folders of models."""

DEEP = 256
"""Rows that validation of a build renders again."""

MODEL_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
)
"""The files of a model's folder that decide bytes; those that exist are copied into the dataset."""
