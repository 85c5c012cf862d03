"""Keys of a record that say that its answer is no good one: yes or no, a word, or the error of what wrote it.

In: a key and its value. Out: what the value says, and whether the record is a doubtful one.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from spanloom.conversations.turns import says_nothing
from spanloom.records.scalars import is_number

_GOOD = re.compile(
    r"(is_)?(chosen|preferred|accepted|approved|correct|passed|valid|safe|solved|resolved|succeeded|success(ful)?)"
)
_BAD = re.compile(r"(is_)?(rejected|excluded?|discard(ed)?|skip(ped)?|ignored?|deleted)")
_IN_WORDS = re.compile(
    r"((final|exit|run|task|eval|evaluation)_)?(status|verdict|grade|judge?ment|judge|outcome|result|correctness"
    r"|feedback|evaluation)"
)
_ERROR = re.compile(r"(has_|is_)?(errors?|exceptions?|error_(message|type|code))")
"""Names of keys, in lower case: false is doubtful, true is, a word such as `failed` is, anything but nothing is."""

_YES = frozenset({"true", "yes", "y", "1"})
_NO = frozenset({"false", "no", "n", "0"})
_SUCCEEDED = frozenset({
    "correct", "right", "pass", "passed", "ok", "success", "successful", "succeeded", "complete", "completed", "done",
    "finished", "valid", "accepted", "approved", "good", "safe", "chosen", "desirable", "thumbs_up", "positive", "like",
    "liked", "resolved", "solved",
})  # fmt: skip
_FAILED = frozenset({
    "incorrect", "wrong", "fail", "failed", "failure", "error", "errored", "exception", "invalid", "rejected", "bad",
    "unsafe", "timeout", "timed_out", "cancelled", "canceled", "aborted", "crashed", "undesirable", "thumbs_down",
    "negative", "dislike", "disliked", "unresolved", "unsolved",
})  # fmt: skip
_NOTHING = frozenset({"none", "null", "nan", "n/a", "no_error", "no_errors"})


def _word(value: Any) -> str:
    return "_".join(value.lower().replace("-", " ").split()) if isinstance(value, str) else ""


def says(value: Any) -> bool | None:
    """What a verdict says, as a boolean, as 0 or 1, or in words: yes, no, or None for neither."""
    if isinstance(value, str):
        word = _word(value)
        return True if word in _YES or word in _SUCCEEDED else False if word in _NO or word in _FAILED else None
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _holds_failure(value: Any) -> bool:
    """As `{"rating": "dislike"}`, `{"passed": false}`."""
    inner = value.items() if isinstance(value, dict) else ()
    return any(_word(each) in _FAILED or is_doubtful(key, each) for key, each in inner)


def _is_error(value: Any) -> bool:
    if isinstance(value, str):
        return _word(value) not in _NO | _SUCCEEDED | _NOTHING
    if isinstance(value, bool) or not is_number(value):
        return bool(value)
    return value not in (0, None) and value == value  # NaN is a missing one


_DOUBTFUL: tuple[tuple[re.Pattern[str], bool, Callable[[Any], bool]], ...] = (
    (_GOOD, True, lambda value: says(value) is False),
    (_BAD, False, lambda value: says(value) is True and _word(value) not in _SUCCEEDED),
    (_IN_WORDS, True, lambda value: _word(value) in _FAILED or _holds_failure(value)),
    (_ERROR, False, _is_error),
)
"""Names, whether `--map preferred=KEY` reads the values as they are meant, and which values are doubtful."""


@lru_cache(maxsize=1024)
def _named(key: str) -> int | None:
    return next((at for at, (names, *_) in enumerate(_DOUBTFUL) if names.fullmatch(key.lower())), None)


def is_verdict(key: str) -> bool:
    """Whether a key of a record is named as a verdict on it."""
    return _named(key) is not None


def is_doubtful(key: str, value: Any) -> bool:
    """Whether a key says that its record may be no good one."""
    at = _named(key)
    return at is not None and not says_nothing(value) and _DOUBTFUL[at][2](value)


def is_preference(key: str, value: Any) -> bool:
    """Whether `--map preferred=KEY` leaves the doubtful records out."""
    at = _named(key)
    return at is not None and _DOUBTFUL[at][1] and not isinstance(value, dict)
