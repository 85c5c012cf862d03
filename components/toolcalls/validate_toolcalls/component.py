"""Tool calls, step 2: checks all samples against all rules, and against each other.

In: the folder that the converters published into. Out: the report as JSON and HTML. Errors fail the run.
"""

from components.of_task import component_of

validate_toolcalls = component_of("toolcalls.task_list", "validate-toolcalls")
