"""The JSON Schema of a sample, as a value.

In: nothing. Out: the schema (draft 2020-12). It accepts exactly the samples without findings F1, F2, M1 and M2, with
two exceptions that it cannot express: `loss_mask_end` must be above `loss_mask_start`, and 3.0 is no integer.
"""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def sample_schema() -> dict[str, Any]:
    """The content of `toolcall_sample.schema.json`."""
    text = (resources.files("spanloom.families.toolcalls.format") / "toolcall_sample.schema.json").read_bytes()
    schema: dict[str, Any] = json.loads(text)
    return schema
