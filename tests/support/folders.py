"""What lies below a folder."""

from pathlib import Path


def files_of(folder: Path) -> dict[str, bytes]:
    """The bytes of each file below a folder, by its path from there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
