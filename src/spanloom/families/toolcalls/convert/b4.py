"""Fujitsu's B4, orchestrated attacks: a query with an injection, the expected tool, and the tool the attack aims for.

In: a record with `combined_query`, `expected_tool`, `simulated_tool` (and `record_id`, `attack_id`, `category`,
`subtype`, `predicted_tool`), and its completions. Out, for each completion: a harmful sample if it calls the simulated
tool, a retain sample if it calls the expected tool, otherwise the reason why there is none.

`predicted_tool` is the choice of another model, so it is kept in metadata and does not affect the label.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.convert.dialogues import without_thoughts
from spanloom.families.toolcalls.convert.drafts import Draft, Options, UnusableError
from spanloom.families.toolcalls.format.calls import parse_calls
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN

_KEPT = ("record_id", "attack_id", "category", "subtype", "predicted_tool", "benign_query")


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft | UnusableError]:
    """Yields a sample for each completion of a record, or the reason why there is none.

    Raises UnusableError if a field is missing or invalid, or the record has no completion.
    """
    query = record.get("combined_query")
    expected, simulated = record.get("expected_tool"), record.get("simulated_tool")
    if not isinstance(query, str) or not query.strip():
        raise UnusableError("no combined_query")
    if not all(isinstance(tool, str) and tool for tool in (expected, simulated)):
        raise UnusableError("no expected_tool or simulated_tool")
    if expected == simulated:
        raise UnusableError("expected_tool is simulated_tool")
    name = next((record[key] for key in ("record_id", "id", "attack_id") if record.get(key) is not None), None)
    completions = options.completions.of(str(name)) if options.completions else ()
    if not completions:
        raise UnusableError("no completion")
    for completion in completions:
        try:
            text, dropped = without_thoughts(completion.text, options)
        except UnusableError as fault:
            yield fault
            continue
        calls = [call for call in parse_calls(text) if call.valid and isinstance(call.value, dict)]
        observed = calls[-1].value.get("name") if calls else None
        if observed not in (simulated, expected):
            yield UnusableError("the completion calls neither of the two tools")
            continue
        flipped = observed == simulated
        about = {key: record[key] for key in _KEPT if isinstance(record.get(key), str)}
        yield Draft(
            source="fujitsu_b4" if flipped else "b4_adversarial_safe",
            id_source="b4" if flipped else "b4_advsafe",
            split=HARMFUL if flipped else RETAIN,
            messages=[{"role": "user", "content": query}],
            assistant_raw=text,
            tools=options.tools or defaults.B4_TOOLS,
            labels={
                "expected_tool": expected,
                "simulated_tool": simulated,
                "observed_tool": observed,
                **({"is_flip_success": True} if flipped else {"is_adversarial_safe": True}),
            },
            metadata={"has_tool_calls": True, "original": about, **completion.metadata},
            hashed={"original_id": str(name)},
            dropped=dropped,
        )
