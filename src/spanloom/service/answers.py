"""Error answers: JSON with one key, `detail`, in ASCII, so that any text can be reported.

In: a status, what was wrong. Out: responses. For any request, an error answer stays below 256 KiB: only the first
errors are reported, and only the beginning of a text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

ERRORS_TOLD = 20
MORE_ERRORS = "more_errors"
TEXT_TOLD = 16_384
"""Maximum characters of an error. In ASCII each takes up to 12 bytes."""

_MESSAGE_TOLD, _PLACE_TOLD = 500, 100
"""Maximum characters of a message among several errors, and of each part of its place."""


def problem(status: int, detail: Any, headers: Mapping[str, str] | None = None) -> Response:
    """`{"detail": …}`; a long text is truncated."""
    if isinstance(detail, str):
        detail = _beginning(detail, TEXT_TOLD)
    return Response(
        json.dumps({"detail": detail}).encode(), status, headers=dict(headers or {}), media_type="application/json"
    )


def told_errors(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first `ERRORS_TOLD` errors as `type`, `loc` and `msg`; then an entry with the number of the others.

    Input values are not repeated. An error from `more_errors` counts as the number of errors that it represents.
    """
    more = sum(error["ctx"]["count"] for error in errors if error["type"] == MORE_ERRORS)
    errors = [error for error in errors if error["type"] != MORE_ERRORS]
    more += max(0, len(errors) - ERRORS_TOLD)
    shown = [
        {
            "type": error["type"],
            "loc": [_beginning(part, _PLACE_TOLD) if isinstance(part, str) else part for part in error["loc"]],
            "msg": _beginning(str(error["msg"]), _MESSAGE_TOLD),
        }
        for error in errors[:ERRORS_TOLD]
    ]
    return [*shown, {"type": MORE_ERRORS, "loc": ["body"], "msg": f"{more:,} more errors"}] if more else shown


def more_errors(count: int) -> dict[str, Any]:
    """An error that represents `count` errors that were not kept."""
    return {"type": MORE_ERRORS, "loc": ("body",), "msg": "", "ctx": {"count": count}}


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode(),
        status,
        headers=dict(headers or {}),
        media_type="application/json",
    )
