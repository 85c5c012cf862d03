"""Validation of a finished dataset.

blocks   checks every block on disk, computed independently
content  checks the manifest
source   checks the dataset against its transcripts
"""
