"""Fixtures of this folder: object stores that this machine serves, and the demo's dataset."""

from support.demo_datasets import demo
from support.object_stores import _fresh_clients, cloud_storage, contents, enter, place, s3_address

__all__ = ["_fresh_clients", "cloud_storage", "contents", "demo", "enter", "place", "s3_address"]
