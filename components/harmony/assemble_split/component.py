"""Step 3: global checks of the split: finds repeated ids, and counts the documents of valid.

In: the manifests of all rendered shards, one input each. Out: the split, a small file that the manifest
requires.
"""

from functools import partial

from components.of_task import component_of

assemble_split_of = partial(component_of, "harmony.convert.task_list", "assemble-split")
assemble_split = assemble_split_of()
