"""Checks before the tasks of a pipeline start: what would fail them after an hour fails here in seconds.

places  inputs are read; in output places a file is created, refused a second time and removed
source  the shards of a source: all there, as many as the pipeline has tasks, and the scratch space that they need
checks  all checks of a pipeline at once, with a deadline → all faults, each with its remedy
"""
