"""Fixtures of this folder: object stores that this machine serves."""

from support.object_stores import _fresh_clients, cloud_storage, enter, gs_place

__all__ = ["_fresh_clients", "cloud_storage", "enter", "gs_place"]
