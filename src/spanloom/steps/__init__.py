"""Steps of the pipelines that every family shares, one module each; a family's own are in `families/NAME/steps`.

validate_shard       is one shard of a dataset right?
assemble_validation  the reports of all shards joined, and what is global; then as the last step below
validate_alignment   is the dataset right? Only then does the pending manifest become the manifest
"""
