"""The classes of findings: what each means, and what to do about it.

In: nothing; constants, and their texts in the packaged `classes.toml`. Out: `CLASSES` by name, in the order in which
reports list them.
"""

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class FindingClass:
    """`meaning`: what is wrong with such a document; `remedy`: what it should be; `cause`: what often made it."""

    meaning: str
    remedy: str
    cause: str


CONTEXT_TRAINED = "context_trained"
TOOL_RESULT_TRAINED = "tool_result_trained"
PROMPT_TRAINED = "prompt_supplied_trained"
COMPLETION_UNTRAINED = "completion_untrained"
HISTORY_UNTRAINED = "history_untrained"
STOP_UNTRAINED = "stop_untrained"
BEHIND_STOP_TRAINED = "trained_behind_stop"
NO_LOSS = "no_loss"
ALL_TRAINED = "all_trained"
TRUNCATED = "truncated"
DOUBLE_BOS = "double_bos"
MISSING_BOS = "missing_bos"
BEGINNING_DIFFERS = "beginning_differs"
SPECIAL_IN_TEXT = "special_in_text"
UNKNOWN_IDS = "unknown_ids"
LABELS_DIFFER = "labels_differ"
HISTORY_REWRITTEN = "history_rewritten"
RETOKENISED = "retokenised"
TEXT_DIFFERS = "text_differs"
DUPLICATE = "duplicate"

_LISTED = tomllib.loads(files(__package__).joinpath("classes.toml").read_text("utf-8"))
CLASSES = {name: FindingClass(**texts) for name, texts in _LISTED.items()}
NAMES = tuple(CLASSES)
