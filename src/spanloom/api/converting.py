"""Chat data in any known form → a source for `build`: `spanloom.convert` and `spanloom convert`.

In: the options of the command, as keywords. Out: the manifest of the source.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spanloom.families.harmony import defaults

if TYPE_CHECKING:
    from spanloom.families.harmony.contract.messages import SystemFields

Place = str | os.PathLike[str]


def convert(
    inputs: Place | Sequence[Place],
    out: Place,
    *,
    map: Mapping[str, str] | None = None,
    metadata: Sequence[str] = (),
    think_tags: bool | None = None,
    call_tags: str | None = None,
    text_as_is: bool = False,
    role: Mapping[str, str] | None = None,
    join_consecutive: bool = False,
    keep_unprompted: bool = False,
    calls_in_turn: bool = False,
    identity: str | None = None,
    effort: Literal["low", "medium", "high"] | None = None,
    date: str | None = None,
    cutoff: str | None = None,
    developer: str | None = None,
    drop: Sequence[str] = (),
    max_rejects: int | str = defaults.MAX_REJECTS,
    format: Literal["conversations", "harmony"] = "conversations",
    rows_per_shard: int = defaults.ROWS_PER_SHARD,
    workers: int = 1,
    dataset: str | None = None,
    license: str | None = None,
    scratch: Place | None = None,
) -> dict[str, Any]:
    """Converts chat data into the folder `out`, for `spanloom.build`. Prints nothing and does not ask.

    inputs   files (.jsonl, .json, .csv, .parquet, .arrow, also .gz or .zst), folders, patterns or URIs: one or several
    out      a folder or a URI: new, or from an interrupted run
    map      the meaning of keys of your records: {"query": "question", "answer": "response"}
    role     the meaning of roles of your messages: {"visitor": "user"}
    drop     records or messages to leave out and count: ["refusal", "role:moderator"]

    The other keywords are the options of `spanloom convert`, with its defaults; `spanloom convert --help` documents
    each. The same input and options give the same files; an interrupted run resumes.

    Returns the source's manifest: `conversion` has the counts. Raises SpanloomError for an unknown form, and for a
    rejected record beyond `max_rejects`; it names the file, the line and a remedy.
    """
    from spanloom.families.harmony.convert import chat as convert_chat
    from spanloom.families.harmony.convert.conversion import ChatConversion
    from spanloom.storage.scratch import scratch_for

    conversion = ChatConversion(
        system_fields=system_fields(identity=identity, effort=effort, date=date, cutoff=cutoff, developer=developer),
        maps=_pairs(map),
        metadata=tuple(metadata),
        think_tags=think_tags,
        call_tags=call_tags,
        text_as_is=text_as_is,
        roles=_pairs(role),
        join_consecutive=join_consecutive,
        keep_unprompted=keep_unprompted,
        calls_in_turn=calls_in_turn,
        drop=tuple(drop),
        max_rejects=str(max_rejects),
        format=format,
        rows_per_shard=rows_per_shard,
        dataset=dataset or None,
        license=license or None,
    )
    places = [os.fspath(place) for place in ([inputs] if isinstance(inputs, str | os.PathLike) else inputs)]
    place = os.fspath(out)
    with scratch_for("convert", [*places, place], None if scratch is None else Path(scratch)) as staging:
        chat = convert_chat.open_chat(convert_chat.local_inputs(staging, places), conversion)
        return convert_chat.run(staging=staging, chat=chat, out=place, conversion=conversion, workers=workers)


def _pairs(values: Mapping[str, str] | None) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in (values or {}).items())


def system_fields(
    *, identity: str | None, effort: str | None, date: str | None, cutoff: str | None, developer: str | None
) -> "SystemFields":
    """The fields added to every conversation; empty text means None. Raises SpanloomError for an unknown effort."""
    from spanloom.families.harmony.contract.messages import SystemFields, effort_of

    return SystemFields(
        model_identity=identity or None,
        reasoning_effort=effort_of(effort) if effort else None,
        start_date=date or None,
        knowledge_cutoff=cutoff or None,
        developer=developer or None,
    )
