"""XSTest: prompts that look unsafe but are safe, with answers that comply.

In: a row with `prompt`, `type`, `label`; and its answer, in the row (`completion`, with `final_label`) or in a file of
completions by `id`. Out: one retain sample for each answer to a safe prompt.

An answer in the row is used only if its `final_label` says full compliance. Answers from a file of completions are not
checked: the author of the file has selected them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spanloom.families.toolcalls.convert.dialogues import without_thoughts
from spanloom.families.toolcalls.convert.drafts import Completion, Draft, Options, UnusableError
from spanloom.families.toolcalls.format.tables import RETAIN

_UNSAFE_TYPES = "contrast"
_COMPLIANT = "1"
_KEPT = ("type", "focus", "note")


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft | UnusableError]:
    """Yields the samples of one prompt. Raises UnusableError if it is unsafe or has no compliant answer."""
    prompt = record.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise UnusableError("no prompt")
    if not _is_safe(record):
        raise UnusableError("the prompt is unsafe")
    name = next((record[key] for key in ("id", "id_v2", "id_v1") if record.get(key) not in (None, "")), None)
    for completion in _answers(record, str(name), options):
        try:
            text, dropped = without_thoughts(completion.text, options)
        except UnusableError as fault:
            yield fault
            continue
        about = {key: record[key] for key in _KEPT if isinstance(record.get(key), str) and record[key]}
        yield Draft(
            source="xstest",
            id_source="xstest",
            split=RETAIN,
            messages=[{"role": "user", "content": prompt}],
            assistant_raw=text,
            metadata={
                "has_tool_calls": False,
                "original": {**({} if name is None else {"id": str(name)}), **about},
                **completion.metadata,
            },
            dropped=dropped,
        )


def _is_safe(record: Mapping[str, Any]) -> bool:
    label, kind = record.get("label"), record.get("type")
    if isinstance(label, str) and label:
        return label.lower() == "safe"
    if isinstance(kind, str) and kind:
        return not kind.startswith(_UNSAFE_TYPES)
    raise UnusableError("no label and no type")


def _answers(record: Mapping[str, Any], name: str, options: Options) -> Sequence[Completion]:
    if options.completions is not None:
        completions = options.completions.of(name)
        if not completions:
            raise UnusableError("no completion")
        return completions
    text, verdict = record.get("completion"), record.get("final_label")
    if not isinstance(text, str) or not text.strip():
        raise UnusableError("no completion")
    if verdict in (None, ""):
        raise UnusableError("no final_label")
    if not str(verdict).startswith(_COMPLIANT):
        raise UnusableError("the answer does not comply")
    return [Completion(text=text, about={})]
