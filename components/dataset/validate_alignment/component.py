"""Step 6: validates the published dataset. Only then is manifest.json written.

In: the dataset at `dataset_root`, the source for the rows that are rendered again. Out: the validation
report as JSON and HTML. Findings fail the run.
"""

from components.of_task import component_of

validate_alignment = component_of("models.task_list", "validate-alignment")
