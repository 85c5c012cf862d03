"""Whether a finished dataset is right.

blocks   what must hold in every block on disk, computed again
content  what the manifest says
"""
