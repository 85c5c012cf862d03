"""Fixtures of every family: object stores that this machine serves."""

from support.object_stores import (
    _fresh_clients,
    cloud_storage,
    contents,
    emulator_address,
    enter,
    gs_place,
    ordinary_place,
    place,
    proxy,
    s3_address,
    seaweedfs_address,
    seaweedfs_place,
)

__all__ = [
    "_fresh_clients",
    "cloud_storage",
    "contents",
    "emulator_address",
    "enter",
    "gs_place",
    "ordinary_place",
    "place",
    "proxy",
    "s3_address",
    "seaweedfs_address",
    "seaweedfs_place",
]
