"""Tool calls, step 3: both splits → one file without duplicates, in a seeded order.

In: the folder that the converters published into. Out: the merged file, published create-only by the step itself, and
its statistics. Gates on the ratio and on adversarial-safe samples stop it before anything is written.
"""

from components.of_task import component_of

merge_toolcalls = component_of(
    "toolcalls.task_list", "merge-toolcalls", names={"--harmful-dir": "harmful_uri", "--retain-dir": "retain_uri"}
)
