"""Parameters of a run from the command line.

In: `NAME=VALUE` words and a compiled pipeline. Out: the values, in the types that the pipeline declares.
"""

import json
from collections.abc import Sequence

from kfp.dsl import base_component


def run_arguments(pipeline: base_component.BaseComponent, words: Sequence[str]) -> dict[str, object]:
    """Values by name. A text stays a text: `max_rows=1000` is "1000" if the pipeline declares a string.

    Raises ValueError for a word without `=`, a name that the pipeline does not have, a value of another type, and a
    parameter without a default and without a value.
    """
    declared = pipeline.component_spec.inputs
    values: dict[str, object] = {}
    for word in words:
        name, found, value = word.partition("=")
        if not found:
            raise ValueError(f"{word!r} is not NAME=VALUE")
        if name not in declared:
            raise ValueError(f"the pipeline has no parameter {name!r}; it has {', '.join(sorted(declared))}")
        kind = declared[name].type
        try:
            values[name] = value if kind == "String" else {"Integer": int, "Float": float}.get(kind, json.loads)(value)
        except ValueError:
            raise ValueError(f"{name} must be of type {kind}, not {value!r}") from None
    if missing := [name for name, spec in declared.items() if not spec.optional and name not in values]:
        raise ValueError(f"the pipeline needs {', '.join(missing)}")
    return values
