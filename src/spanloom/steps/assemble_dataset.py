"""Joins the shards of a dataset that were made by tasks of their own.

In: the inventories of all shards, and the manifests of their parts where ids are compared. Out:
`manifest.pending.json` at the dataset root; it is no dataset before validation has passed.
"""

from spanloom.building.steps import assembled_metadata as artifact_metadata
from spanloom.building.steps import run_assemble as run

__all__ = ["artifact_metadata", "run"]
