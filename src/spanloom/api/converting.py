"""Chat data in any known form → a source for `build`: `spanloom.convert` and `spanloom convert`.

In: the options of the command, as keywords. Out: the manifest of the source.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.api.options import ConvertOptions, ConvertPlaces, local
from spanloom.families.harmony.contract.messages import SystemFields, effort_of
from spanloom.families.harmony.convert import chat as convert_chat
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion
from spanloom.options.keywords import by_keywords
from spanloom.report.progress import Progress
from spanloom.storage.scratch import scratch_for


@by_keywords(ConvertPlaces)
def convert(options: ConvertPlaces) -> dict[str, Any]:
    """Converts chat data into the folder `out`, for `spanloom.build`. Prints nothing and does not ask.

    inputs   files (.jsonl, .json, .csv, .parquet, .arrow, also .gz or .zst), folders, patterns or URIs: one or several
    out      a folder or a URI: new, from an interrupted run, or finished of the same input and options
    overwrite  replaces a source in `out` of another input or other options
    map      the meaning of keys of your records: {"query": "question", "answer": "response"}
    role     the meaning of roles of your messages: {"visitor": "user"}
    drop     records or messages to leave out and count: ["refusal", "role:moderator"]
    progress  True prints to stderr; a function is called with the name of the work, the amount done and the total

    The other keywords are the options of `spanloom convert`, with its defaults; `spanloom convert --help` documents
    each. The same input and options give the same files; an interrupted run resumes.

    Returns the source's manifest: `conversion` has the counts. Raises SpanloomError for an unknown form, and for a
    rejected record beyond `max_rejects`; it names the file, the line and a remedy.
    """
    conversion = conversion_of(options)
    inputs, place = options.inputs, os.fspath(options.out)
    places = [os.fspath(place) for place in ([inputs] if isinstance(inputs, str | os.PathLike) else inputs)]
    with scratch_for("convert", [*places, place], local(options.scratch)) as staging:
        chat = open_chat(convert_chat.local_inputs(staging, places), conversion)
        with Progress.given(options.progress).counting("convert", "bytes") as on_progress:
            return convert_chat.run(
                staging=staging,
                chat=chat,
                out=place,
                conversion=conversion,
                overwrite=options.overwrite,
                on_progress=on_progress,
                workers=options.workers,
            )


def conversion_of(options: ConvertOptions) -> ChatConversion:
    """The conversion of these options. Raises SpanloomError for an invalid value."""
    same = ("think_tags", "call_tags", "text_as_is", "join_consecutive", "keep_unprompted", "calls_in_turn", "format")
    return ChatConversion(
        **{name: getattr(options, name) for name in (*same, "on_duplicate_content", "rows_per_shard")},
        system_fields=system_fields(options),
        maps=_pairs(options.map),
        metadata=tuple(options.metadata),
        roles=_pairs(options.role),
        drop=tuple(options.drop),
        max_rejects=str(options.max_rejects),
        dataset=options.dataset or None,
        license=options.license or None,
    )


def _pairs(values: Mapping[str, str] | Sequence[str] | None) -> tuple[str, ...]:
    return (
        tuple(f"{name}={value}" for name, value in values.items())
        if isinstance(values, Mapping)
        else tuple(values or ())
    )


def system_fields(options: ConvertOptions) -> SystemFields:
    """The fields added to every conversation; empty text means None. Raises SpanloomError for an unknown effort."""
    return SystemFields(
        model_identity=options.identity or None,
        reasoning_effort=effort_of(options.effort) if options.effort else None,
        start_date=options.date or None,
        knowledge_cutoff=options.cutoff or None,
        developer=options.developer or None,
    )
