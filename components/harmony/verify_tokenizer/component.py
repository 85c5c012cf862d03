"""Step 1: checks that the tokenizer asset is the pinned file.

In: a URI, or nothing for the asset in the image. Out: the verified asset, and a report of the checks.
"""

from components.of_task import component_of

verify_tokenizer = component_of("harmony.convert.task_list", "verify-tokenizer", outputs=())
