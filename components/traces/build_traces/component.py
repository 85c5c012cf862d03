"""Traces, step 2: a selection of the store → the manifest of a dataset.

In: the store; filter, strategy, limit. Out: the manifest, which lists the traces in order.
"""

from components.of_task import component_of

build_traces = component_of("traces.task_list", "build-traces")
