"""Tool calls, step 4: renders samples with the chat template that will be used for tokenization.

In: the merged file, the template. Out: the audit. Errors fail the run: a mask would be missing or wrong.
"""

from components.of_task import component_of

audit_toolcalls = component_of("toolcalls.task_list", "audit-toolcalls", names={"--limit": "limit"})
