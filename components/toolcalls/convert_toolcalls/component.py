"""Tool calls, step 1, once per source: its files → samples under `samples_uri`.

In: the URI of a file or folder of the source; if it is empty, the task does nothing. Out: files of samples, published
create-only by the step itself, and counts of written and rejected records.
"""

from components.of_task import component_of

convert_toolcalls = component_of(
    "toolcalls.task_list",
    "convert-toolcalls",
    names={"--from": "source", "--input": "source_uri", "--completions": "completions_uri"},
)
