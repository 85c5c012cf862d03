"""Which spans of conversations are trained: the option `--train`.

In: its text. Out: names of spans.
"""

from collections.abc import Sequence

from spanloom.conversations.source.format import CONVERSATIONS
from spanloom.errors import SpanloomError

SPAN_NAMES = CONVERSATIONS.span_names


def parsed_train(text: str) -> tuple[str, ...]:
    """`final,analysis` → the names, in the order of the spans. Raises SpanloomError: see `check_train`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    check_train(names)
    return tuple(sorted(names, key=SPAN_NAMES.index))


def check_train(names: Sequence[str]) -> None:
    """Raises SpanloomError unless at least one span is named, and each once."""
    known = SPAN_NAMES[1:]
    if not names or set(names) - set(known) or len(set(names)) != len(names):
        raise SpanloomError(f"--train must name spans of {', '.join(known)}, each once, not {','.join(names)!r}")
