"""Traces, step 4: validates the exports.

In: the three exports, the manifest. Out: the report as JSON. Errors fail the run.
"""

from components.of_task import component_of

validate_traces = component_of("traces.task_list", "validate-traces")
