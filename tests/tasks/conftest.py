"""Where the test folders of `tests/tasks` take their object stores from."""

from support.object_stores import _fresh_clients, enter, seaweedfs_address, seaweedfs_place

__all__ = ["_fresh_clients", "enter", "seaweedfs_address", "seaweedfs_place"]
