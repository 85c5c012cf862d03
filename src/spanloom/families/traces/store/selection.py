"""Selects the traces of a dataset: filters and conditions over the whole store, then the newest or a random sample.

In: ids and `meta` of all traces, newest first. Out: ids, in the order of the dataset.

The sample is that of CPython's `random.Random(seed).sample` over the pool, with a generator of its own.
"""

import random
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any
from uuid import UUID

from spanloom.families.traces.store.conditions import Candidate, Conditions
from spanloom.families.traces.store.database import Snapshot
from spanloom.families.traces.trace import parse_text
from spanloom.records.scalars import is_number


def same_json(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: numbers by value, but true and false are not numbers."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return left == right and (type(left) is type(right) or (is_number(left) and is_number(right)))


def matches(meta: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Whether every filter is a key of `meta` with an equal value; null also matches a missing key."""
    return all(same_json(meta.get(key), wanted) for key, wanted in filters.items())


def pool(snapshot: Snapshot, filters: Mapping[str, Any], where: Sequence[str] = ()) -> Generator[str]:
    """The ids that pass all filters and conditions, newest first. Close the iterator within the snapshot.

    `where`: texts of conditions (`spanloom.families.traces.store.conditions`). Raises ValueError for an invalid one.
    """
    if where:
        return _passing(snapshot, filters, Conditions(where))
    if not filters:
        return snapshot.ids()
    metas = ((trace_id, {} if meta is None else parse_text(meta)) for trace_id, meta in snapshot.metas())
    return (trace_id for trace_id, meta in metas if matches(meta, filters))


def _passing(snapshot: Snapshot, filters: Mapping[str, Any], conditions: Conditions) -> Generator[str]:
    with closing(snapshot.candidates(payloads=conditions.need_payload)) as rows:
        for trace_id, meta_text, steps, characters, payload in rows:
            meta = {} if meta_text is None else parse_text(meta_text)
            if not matches(meta, filters):
                continue
            texts = None if payload is None else parse_text(payload)
            if conditions.pass_all(Candidate(meta=meta, steps=steps, characters=characters, payload=texts)):
                yield trace_id


def newest(ids: Iterable[str], limit: int) -> list[str]:
    """The first `limit` ids."""
    return list(islice(ids, limit))


def sampled(ids: Iterable[str], limit: int, seed: int) -> list[str]:
    """A random sample of `limit` ids; all of them, shuffled, if there are fewer. Takes 16 bytes per id given."""
    held = bytearray()
    for trace_id in ids:
        held += UUID(trace_id).bytes
    count = len(held) // 16
    # A sample of positions gives the same sample as one of ids: the generator sees only the length.
    places = random.Random(seed).sample(range(count), min(limit, count))
    return [str(UUID(bytes=bytes(held[16 * place : 16 * place + 16]))) for place in places]
