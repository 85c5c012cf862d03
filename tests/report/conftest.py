"""Fixtures of this folder: the demo's dataset, and one whose content wants to be more than text."""

from support.demo_datasets import demo, hostile

__all__ = ["demo", "hostile"]
