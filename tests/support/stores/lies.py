"""What a lying store answers: other ranges, other lengths, other formats than it was asked for.

In: the true answer. Out: the false one.
"""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.stores.proxy import Answer, Request

HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><br>Please sign in.</body></html>"
XHTML = b"<html><head><title>Sign in</title></head><body><p>Please sign in to this network.</p></body></html>"
"""A browser's page that is well-formed XML too."""


def page(status: int = 200, data: bytes = HTML) -> Answer:
    """What a proxy, a login page or a load balancer answers in the store's place."""
    return Answer(status=status, headers={"Content-Type": "text/html", "ETag": '"5f3c-1b"'}, data=data)


def circle(code: int, address: str, request: Request) -> Answer:
    """A redirect to where the request came."""
    return Answer(status=code, headers={"Location": f"{address}{request.path}"})


def status(code: int, **headers: str) -> Answer:
    return Answer(status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})


def _content_range(answer: Answer) -> tuple[int, int, int]:
    bounds = re.fullmatch(
        r"bytes (\d+)-(\d+)/(\d+)", {k.lower(): v for k, v in answer.headers.items()}["content-range"]
    )
    assert bounds is not None
    return int(bounds[1]), int(bounds[2]), int(bounds[3])


def _ranged(answer: Answer, first: int, last: int, total: int) -> Answer:
    kept = {key: value for key, value in answer.headers.items() if key.lower() != "content-range"}
    return replace(answer, headers={**kept, "Content-Range": f"bytes {first}-{last}/{total}"})


def another_range(answer: Answer) -> Answer:
    """The bytes from one later on, and says so."""
    first, last, total = _content_range(answer)
    return _ranged(replace(answer, data=answer.data[1:]), first + 1, last, total)


def shifted_bytes(answer: Answer) -> Answer:
    """Other bytes than the range that it names."""
    return replace(answer, data=answer.data[1:] + answer.data[:1])


def another_total(answer: Answer) -> Answer:
    first, last, total = _content_range(answer)
    return _ranged(answer, first, last, total + 1000)


def no_content_range(answer: Answer) -> Answer:
    return replace(answer, headers={k: v for k, v in answer.headers.items() if k.lower() != "content-range"})


def part_of_the_range(answer: Answer) -> Answer:
    """The first half, truly named: a store may answer less than it was asked for."""
    first, _, total = _content_range(answer)
    half = answer.data[: max(1, len(answer.data) // 2)]
    return _ranged(replace(answer, data=half), first, first + len(half) - 1, total)


def whole_as_200(data: bytes) -> Callable[[Answer], Answer]:
    """The whole object, as of a store that knows no ranges."""
    return lambda answer: replace(no_content_range(answer), status=200, data=data)


def longer_length(answer: Answer) -> Answer:
    return replace(answer, length=len(answer.data) + 1000)


def shorter_length(answer: Answer) -> Answer:
    return replace(answer, length=len(answer.data) // 2)


def nothing(answer: Answer) -> Answer:
    return replace(answer, data=b"")


def zipped(answer: Answer) -> Answer:
    """Packed on the way, as some proxies do."""
    return replace(answer, headers={**answer.headers, "Content-Encoding": "gzip"}, data=gzip.compress(answer.data))


def header(name: str, value: str) -> Callable[[Answer], Answer]:
    def lie(answer: Answer) -> Answer:
        kept = {key: header_value for key, header_value in answer.headers.items() if key.lower() != name.lower()}
        return replace(answer, headers={**kept, name: value})

    return lie


def told_length(count: int) -> Callable[[Answer], Answer]:
    """Of an answer to HEAD."""
    return lambda answer: replace(answer, length=count)


def in_json(change: Callable[[dict[str, Any]], object]) -> Callable[[Answer], Answer]:
    """The answer's JSON, changed in place."""

    def lie(answer: Answer) -> Answer:
        value = json.loads(answer.data)
        change(value)
        return replace(answer, data=json.dumps(value).encode())

    return lie


def in_text(pattern: str, new: str) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, data=re.sub(pattern, new, answer.data.decode(), flags=re.DOTALL).encode())
