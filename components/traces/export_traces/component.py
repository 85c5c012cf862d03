"""Traces, step 3, once per format: a dataset → one export for trainers.

In: the store, the manifest, a format. Out: JSON Lines.
"""

from components.of_task import component_of

export_traces = component_of("traces.task_list", "export-traces", names={"--format": "form"})
