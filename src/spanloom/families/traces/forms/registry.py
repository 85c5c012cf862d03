"""All forms of traces, in the order in which they are tried. Recognises the form of records.

In: records as JSON values, the pairs of `--map`. Out: the `TraceForm`, None for traces in Spanloom's own form.

A new form is two functions and a `TraceForm` in `published`, and a line in `FORMS`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from spanloom.families.traces.forms import published
from spanloom.families.traces.forms.chat import chat_form
from spanloom.families.traces.forms.form import TraceForm

Recognises = Callable[[Mapping[str, Any]], bool]

_OWN_KEYS = ("trace_version", "final_answer", "steps")
"""A record with one of these keys is meant to be a trace in Spanloom's own form."""


FORMS: tuple[tuple[Recognises, TraceForm], ...] = (
    (published.is_prm800k, published.PRM800K),
    (published.is_open_r1, published.OPEN_R1),
    (published.is_gsm8k, published.GSM8K),
    (lambda record: published.is_limo(record) and "thinking_trajectories" not in record, published.LIMO),  # else s1K
)
"""Forms of single data sets. Chat data is tried after them, since it would accept records of some of them."""


def is_own(record: Any) -> bool:
    """Whether a record is meant to be a trace in Spanloom's own form."""
    return isinstance(record, Mapping) and any(key in record for key in _OWN_KEYS)


def recognise_form(record: Any) -> TraceForm | None:
    """The form of a record that is not in Spanloom's own form; None if the form is unknown."""
    if not isinstance(record, Mapping):
        return None
    for recognises, form in FORMS:
        if recognises(record):
            return form
    return chat_form(record)
