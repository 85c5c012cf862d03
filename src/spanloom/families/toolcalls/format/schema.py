"""The JSON Schema of a sample, as a value.

In: nothing. Out: the schema (2020-12). It is true for exactly the samples without F1, F2, M1 and M2, but for two things
that it cannot say: that `loss_mask_end` is above `loss_mask_start`, and that 3.0 is no integer.
"""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def sample_schema() -> dict[str, Any]:
    """`toolcall_sample.schema.json`."""
    text = (resources.files("spanloom.families.toolcalls.format") / "toolcall_sample.schema.json").read_bytes()
    schema: dict[str, Any] = json.loads(text)
    return schema
