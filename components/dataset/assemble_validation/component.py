"""Step 7: joins the reports of all shards and does the global checks. Only then is manifest.json written.

In: the reports and digests of validate-shard, one input each; the dataset at `dataset_root`, of which the row tables
and the listing are read; the manifest of the source. Out: the report as JSON and HTML. Findings fail the run.
"""

from functools import partial

from components.of_task import component_of

assemble_validation_of = partial(
    component_of,
    "harmony.task_list",
    "assemble-validation",
    names={"--shard-report": "report", "--shard-digests": "digests"},
)
assemble_validation = assemble_validation_of()
