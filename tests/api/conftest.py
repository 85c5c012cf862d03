"""Fixtures of this folder: a dataset to read."""

from support.demo_datasets import demo

__all__ = ["demo"]
