"""Fixtures of this folder: datasets to look at, and object stores to fetch from."""

from support.demo_datasets import demo, hostile
from support.object_stores import (
    _fresh_clients,
    cloud_storage,
    emulator_address,
    enter,
    gs_place,
    ordinary_place,
    place,
    s3_address,
)

__all__ = [
    "_fresh_clients",
    "cloud_storage",
    "demo",
    "emulator_address",
    "enter",
    "gs_place",
    "hostile",
    "ordinary_place",
    "place",
    "s3_address",
]
