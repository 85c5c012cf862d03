"""Pipeline steps that all families share, one module each; a family's own steps are in `families/NAME/steps`.

assemble_dataset     joins the shards that tasks of their own have made
validate_shard       validates one shard of a dataset
assemble_validation  joins the reports of all shards and does the global checks; then as the step below
score_teacher        scores shards of a dataset by a teacher
validate_teacher     checks what one of these tasks has made
join_teacher         joins the signals that tasks of their own have made
validate_alignment   validates the dataset; if it is clean, the pending manifest becomes the manifest
"""
