"""Step 1: checks that the tokenizer asset is the pinned file, and that the places of the pipeline can be used.

In: a URI, or nothing for the asset in the image; the places. Out: the verified asset, and a report of the checks.
"""

from functools import partial

from components.of_task import component_of

verify_tokenizer = component_of("harmony.task_list", "verify-tokenizer", outputs=())
OTHERS = (partial(component_of, "harmony.convert.task_list", "verify-tokenizer", outputs=()),)
"""The component of raw SYNTH, whose source is not there yet."""
