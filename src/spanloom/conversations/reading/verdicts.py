"""Keys of a record that say that its answer is no good one: yes or no, a word, or the error of what wrote it.

In: a key and its value. Out: what the value says, and whether the record is a doubtful one. Names are compared in lower
case, with `_` between words: `isCorrect` and `is-correct` are `is_correct`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from spanloom.conversations.turns import says_nothing
from spanloom.records.scalars import is_number

_GOOD = re.compile(
    r"((is|was|all|tests?|answer|final_answer|response)_)*(chosen|preferred|accepted|approved|correct|accurate|pass(ed)?"
    r"|valid(ated)?|verified|safe|solved|resolved|succeeded|success(ful)?)"
)
_BAD = re.compile(
    r"((is|was|has)_)?(rejected|excluded?|discard(ed)?|skip(ped)?|ignored?|deleted|failed|errored|timed_out|incorrect)"
)
_JUDGED = re.compile(r"(\w+_)?(verdict|judge?ment|judge|correctness|evaluation|grade)")
_IN_WORDS = re.compile(r"(\w+_)?(status|outcome|result|decision)(_code)?")
_RATED = re.compile(r"(\w+_)?(feedback|rating)")
_LEVEL = re.compile(r"level")
_ERROR = re.compile(r"(has_|is_)?(errors?|exceptions?)|(\w+_)?error(_(message|msg|str|type|code))?|traceback")
_HOLDER = re.compile(r"metadata|meta|extra_info|extra|info|report")
"""Names of keys: false is doubtful, true is, no or a word such as `failed` is, such a word alone, `dislike` is, the
level ERROR is, anything but nothing is, an object that holds one of these is."""

_YES = frozenset({"true", "yes", "y", "1", "1_0"})
_NO = frozenset({"false", "no", "n", "0", "0_0"})
_SUCCEEDED = frozenset({
    "correct", "right", "pass", "passed", "ok", "success", "successful", "succeeded", "complete", "completed", "done",
    "finished", "valid", "accepted", "approved", "good", "safe", "chosen", "desirable", "thumbs_up", "positive", "like",
    "liked", "resolved", "solved", "👍", "✅", "✓", "✔",
})  # fmt: skip
_DISLIKED = frozenset({"thumbs_down", "negative", "dislike", "disliked", "down", "👎"})
_FAILED = frozenset({
    "incorrect", "not_correct", "wrong", "fail", "failed", "failure", "unsuccessful", "error", "errored", "exception",
    "server_error", "exit_error", "invalid", "rejected", "bad", "unsafe", "timeout", "timed_out", "cancelled",
    "canceled", "aborted", "killed", "crashed", "flagged", "spam", "undesirable", "unresolved", "unsolved", "❌", "✗",
    "thumbs_down", "dislike", "disliked", "👎",
})  # fmt: skip
_NOTHING = frozenset({"", "none", "none_reported", "null", "nil", "nan", "na", "n_a"})


def _words(text: str) -> str:
    return re.sub(r"[\s_.,;!?<>/'\"-]+", "_", text.strip().lower()).strip("_")


def _word(value: Any) -> str:
    """A text as a word, up to a colon: `Failed: timeout` is `failed`."""
    return _words(value.partition(":")[0]) if isinstance(value, str) else ""


def says(value: Any) -> bool | None:
    """What a verdict says, as a boolean, as 0 or 1, or in words: yes, no, or None for neither."""
    if isinstance(value, str):
        word = _word(value)
        good, bad = word in _YES or word in _SUCCEEDED, word in _NO or word in _FAILED or word in _DISLIKED
        return good if good or bad else None
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _is_no(value: Any) -> bool:
    return _word(value) in _NO or value is False


def _failed(value: Any) -> bool:
    return _word(value) in _FAILED or (is_number(value) and 400 <= value < 600) or _holds(value, words=True)


def _holds(value: Any, *, words: bool = False) -> bool:
    """Whether an object, or one of a list, holds a doubtful key. `words`: or the word of a failure under any key."""
    objects = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
    return any(
        is_doubtful(key, each) or (words and (_word(each) in _FAILED or each is False))
        for inner in objects
        for key, each in inner.items()
    )


def _is_error(value: Any) -> bool:
    if isinstance(value, str):
        word = _word(value)
        return not (word in _NOTHING or word in _NO or word in _SUCCEEDED or word.startswith("no_error"))
    if isinstance(value, list | dict):
        return any(map(_is_error, value.values() if isinstance(value, dict) else value))
    if isinstance(value, bool) or not is_number(value):
        return bool(value)
    return value == value and value != 0 and not 200 <= value < 300  # NaN is a missing one


_DOUBTFUL: tuple[tuple[re.Pattern[str], bool, Callable[[Any], bool]], ...] = (
    (_GOOD, True, lambda value: says(value) is False),
    (_BAD, False, lambda value: says(value) is True and _word(value) not in _SUCCEEDED),
    (_JUDGED, True, lambda value: _is_no(value) or _failed(value)),
    (_IN_WORDS, True, lambda value: value is False or _failed(value)),
    (_RATED, True, lambda value: value is False or _word(value) in _DISLIKED or _failed(value) or _disliked(value)),
    (_LEVEL, False, lambda value: _word(value) in {"error", "critical", "fatal"}),
    (_ERROR, False, _is_error),
    (_HOLDER, False, _holds),
)
"""Names, whether `--map preferred=KEY` reads the values as they are meant, and which values are doubtful."""


def _disliked(value: Any) -> bool:
    return isinstance(value, dict) and any(_word(each) in _DISLIKED for each in value.values())


@lru_cache(maxsize=1024)
def _named(key: str) -> int | None:
    name = _words(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key))
    return next((at for at, (names, *_) in enumerate(_DOUBTFUL) if names.fullmatch(name)), None)


def is_verdict(key: str) -> bool:
    """Whether a key of a record is named as a verdict on it, or as an object that may hold one."""
    return _named(key) is not None


def is_doubtful(key: str, value: Any) -> bool:
    """Whether a key says that its record may be no good one."""
    at = _named(key) if isinstance(key, str) else None
    return at is not None and not says_nothing(value) and _DOUBTFUL[at][2](value)


def is_preference(key: str, value: Any) -> bool:
    """Whether `--map preferred=KEY` leaves the doubtful records out."""
    at = _named(key)
    return at is not None and _DOUBTFUL[at][1] and not isinstance(value, dict | list)
