"""Validation of a finished dataset.

blocks    checks every block on disk, computed independently
sequence  checks that each block follows from those before it
content   checks the manifest
stream    compares the text of blocks with the records
source    checks the dataset against its transcripts
"""
