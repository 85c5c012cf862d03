"""Times in the store, in files and over HTTP.

In: datetimes, ISO 8601. Out: text. The store's text has a fixed width, so it sorts by time:

    stored    2025-12-01T10:00:00.000000Z    2025-12-01T10:00:00.000001Z
    exported  2025-12-01T10:00:00+00:00      2025-12-01T10:00:00.000001+00:00
    shown     2025-12-01T10:00:00Z           2025-12-01T10:00:00.000001Z      (HTTP, manifests)
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from spanloom.errors import OptionError

_SECONDS = len("2025-12-01T10:00:00")
_MICROSECONDS = 1_000_000
"""In a second."""


def stored(time: datetime) -> str:
    """A time with a zone → the store's text, in UTC."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def later(text: str, microseconds: int) -> str:
    """The store's text for a time this many microseconds later. Raises OptionError after the year 9999."""
    try:
        return stored(as_datetime(text) + timedelta(microseconds=microseconds))
    except OverflowError:
        raise OptionError("the times of these traces would be after the year 9999", where=text) from None


def series(text: str) -> Iterator[str]:
    """The store's texts for a time and each following microsecond. Raises OptionError after the year 9999."""
    while True:
        second, microsecond = text[:_SECONDS], int(text[_SECONDS + 1 : -1])
        for number in range(microsecond, _MICROSECONDS):
            yield f"{second}.{number:06}Z"
        text = later(f"{second}.000000Z", _MICROSECONDS)


def as_datetime(text: str) -> datetime:
    """The store's text → a datetime in UTC."""
    return datetime.fromisoformat(text)


def exported(text: str) -> str:
    """The store's text as exports write it: `+00:00`, and six digits only if there are microseconds."""
    return text[:_SECONDS] + ("" if text.endswith(".000000Z") else text[_SECONDS:-1]) + "+00:00"


def shown(text: str) -> str:
    """The same with `Z`, for HTTP and manifests."""
    return text[:_SECONDS] + ("Z" if text.endswith(".000000Z") else text[_SECONDS:])


def given(text: str) -> str:
    """A time that a user wrote, ISO 8601 with a zone (none: UTC) → the store's text. Raises OptionError."""
    try:
        time = datetime.fromisoformat(text)
        return stored(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise OptionError(
            f"{text!r} is not a time in ISO 8601", remedy="write it as 2025-12-01T10:00:00Z, with a year from 1 to 9999"
        ) from None


def now() -> str:
    """The current time, as the store's text."""
    return stored(datetime.now(UTC))
